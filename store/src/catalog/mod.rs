//! The catalog: a copy of the index, kept beside the data.
//!
//! Every index transaction is written a second time into files in the directory of packs, so that
//! names and extents can be recovered when the whole index is lost. It is a plain log of frames of
//! kind `Catalog`; now and then a new file begins with a dump of everything and the older files are
//! deleted.
//!
//! ```text
//! packs/catalog/c00000001.log, c00000002.log, ...        frames back to back
//! frame: inode 0, sequence = newest version in it, offset = what it holds:
//!     1  commits
//!     2  part of a dump: single keys in the form of commits
//!     3  end of the dump: everything older is in this section
//!     4  nothing: commits before it may be missing, until a dump follows
//!     5  whose it is: identity of the store (16 bytes), number of the file (8 bytes), begins every
//!        section; its sequence is a version that everything before it has, durably
//! contents: per commit a length (4 bytes, little-endian) and the commit as the journal writes it
//! ```
//! One session or one dump writes one section. A session continues the last file, so there is one
//! file, and a second one during a dump. A dump is taken while commits continue; when it has ended,
//! its section has everything. Within a section the highest version of a key wins, in whichever
//! part it is found; a later section overrides an earlier one, which may hold commits that the
//! index lost in a crash. A session that shuts down cleanly ends its catalog before its index: from
//! then on the catalog has the newest version of the index, or it is damaged.

mod dump;
mod log;
mod read;
#[cfg(test)]
mod tests;

pub(crate) use read::{Expected, recover};

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shale_backing::Backing;
use shale_index::engine::Recovery;
use shale_index::kv::Kv;

use crate::Error;
use crate::pack::DIR;
use log::CatalogLog;

const COMMITS: u64 = 1;
const DUMP: u64 = 2;
const DUMP_END: u64 = 3;
const LACKING: u64 = 4;
const IDENTITY: u64 = 5;
/// Upper bound of the unsynced bytes at the end of the last file when a session crashes: the
/// commits of half a second are fewer.
const UNSYNCED: u64 = 8 << 20;

/// Log bytes after which the next dump is due, unless the last dump was larger.
const DUMP_AFTER: u64 = 64 << 20;

/// How long the end of a session waits for a dump that is needed.
const MEND_TIME: Duration = Duration::from_secs(5);
/// Files that need not be merged: one, and the file of a dump that was given up.
const FILES: usize = 2;

/// The catalog of a store in use.
#[derive(Debug)]
pub(crate) struct Catalog {
    log: Arc<CatalogLog>,
    engine: Arc<dyn Kv>,
    dumper: Mutex<Option<std::thread::JoinHandle<()>>>,
}

fn dir() -> PathBuf {
    Path::new(DIR).join("catalog")
}

/// Syncs the directory and its name, which is in the directory of packs: a session that writes no
/// pack would not sync that.
fn make_dir(backing: &dyn Backing) -> Result<(), Error> {
    backing
        .create_dir_all(&dir())
        .map_err(Error::io("create", dir()))?;
    backing
        .sync_dir(Path::new(DIR))
        .map_err(Error::io("sync", DIR))
}

fn path(number: u64) -> PathBuf {
    dir().join(format!("c{number:08x}.log"))
}

/// A file of a catalog.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct LogFile {
    number: u64,
    len: u64,
}

/// The files of a catalog, in order.
fn list(backing: &dyn Backing) -> Result<Vec<LogFile>, Error> {
    let entries = match backing.list(&dir()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("list", dir())(e)),
    };
    let mut files: Vec<LogFile> = entries
        .iter()
        .filter_map(|entry| {
            let name = entry
                .name
                .to_str()?
                .strip_prefix('c')?
                .strip_suffix(".log")?;
            Some(LogFile {
                number: u64::from_str_radix(name, 16).ok()?,
                len: entry.len,
            })
        })
        .collect();
    files.sort_unstable();
    Ok(files)
}

impl Catalog {
    /// Begins a section, in the last file if that is sound, and follows the engine from now on.
    pub(crate) fn open(
        backing: Arc<dyn Backing>,
        store_id: [u8; 16],
        engine: Arc<dyn Kv>,
        recovery: &Recovery,
    ) -> Result<Self, Error> {
        make_dir(&*backing)?;
        let files = list(&*backing)?;
        let version = engine.version();
        let survey = read::survey(&*backing, store_id, &files)?;
        // After a crash the index may have less than the catalog, under the same versions.
        let lacking = !recovery.closed || survey.lacking || survey.newest != version;
        let number = files.last().map_or(0, |file| file.number);
        let log = Arc::new(CatalogLog::new(backing, store_id, number + 1, version));
        {
            let mut state = log.state.lock();
            state.since_dump = files.iter().map(|file| file.len).sum();
            // When the index is new, the catalog is all that is left of a lost one.
            state.files = if version == 0 { 0 } else { files.len() };
            if let Some(end) = survey.end {
                log.go_on(&mut state, number, end);
            }
            if version == 0 {
                log.write(&mut state, DUMP_END, &[])?;
            } else if lacking {
                // If this session ends before the dump, the next one has to know.
                state.incomplete = true;
                state.durable = 0;
                log.admit(&mut state)?;
            }
        }
        let tapped = Arc::clone(&log);
        engine.follow(Box::new(move |commit| tapped.record(commit)))?;
        Ok(Self {
            log,
            engine,
            dumper: Mutex::default(),
        })
    }

    /// Writes the commits since the last call.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let mut state = self.log.state.lock();
        self.log.flush(&mut state)
    }

    /// Makes the log durable and begins a dump when one is due.
    pub(crate) fn maintain(&self) -> Result<(), Error> {
        self.log.sync()?;
        let due = {
            let state = self.log.state.lock();
            state.incomplete
                || state.files > FILES
                || state.since_dump > DUMP_AFTER.max(2 * state.dump)
        };
        let mut dumper = self.dumper.lock();
        if due
            && dumper
                .as_ref()
                .is_none_or(std::thread::JoinHandle::is_finished)
        {
            let (log, engine) = (Arc::clone(&self.log), Arc::clone(&self.engine));
            let body = move || {
                // The next mount writes a dump that is given up because the store is closed.
                if let Err(e) = log.dump(&*engine)
                    && !log.stop.load(Ordering::SeqCst)
                {
                    tracing::warn!(
                        "{}: cannot write a dump of the catalog, retrying in the next commit cycle: \
                         {e}; check the device of the store",
                        log.backing.root().join(dir()).display()
                    );
                }
            };
            let thread = std::thread::Builder::new()
                .name("shale-catalog".to_owned())
                .spawn(body)
                .map_err(Error::io("start a thread for", dir()))?;
            *dumper = Some(thread);
        }
        Ok(())
    }

    /// Ends the log durably. Gives up a running dump, unless the log is incomplete without it and
    /// it does not take long: after a crash, short sessions would never complete one.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.mend(MEND_TIME);
        self.log.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.dumper.lock().take() {
            let _ = thread.join();
        }
        {
            let mut state = self.log.state.lock();
            self.log.flush(&mut state)?;
            self.log.admit(&mut state)?;
        }
        self.log.sync()
    }

    /// Waits for the dump that completes the log, if one is needed.
    fn mend(&self, limit: Duration) {
        let lacking = || {
            let state = self.log.state.lock();
            state.incomplete || state.mending
        };
        // Closing the log reports the error.
        if !lacking() || self.maintain().is_err() {
            return;
        }
        let running = || {
            let dumper = self.dumper.lock();
            dumper.as_ref().is_some_and(|thread| !thread.is_finished())
        };
        let begun = Instant::now();
        while lacking() && running() && begun.elapsed() < limit {
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Replaces the catalog of a store that is not in use by a dump of its index.
pub(crate) fn renew(
    backing: &Arc<dyn Backing>,
    store_id: [u8; 16],
    engine: &dyn Kv,
) -> Result<(), Error> {
    make_dir(&**backing)?;
    let number = list(&**backing)?.last().map_or(0, |file| file.number);
    CatalogLog::new(Arc::clone(backing), store_id, number, engine.version()).dump(engine)
}
