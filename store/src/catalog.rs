//! The catalogue: what the index says, kept beside the data.
//!
//! Every index transaction is written a second time into files in the directory of packs, so that
//! names and extents can be brought back when the whole index is gone. It is a plain log of
//! frames of kind `Catalog`; now and then a new file begins with a dump of everything and the
//! older files are deleted.
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
//! A section is what one session or one dump writes: a session goes on with the last file, and so
//! there is one file, and the next while a dump is being made. A dump is taken while commits go
//! on; when it has ended, its section has everything. Within a section the highest version of a
//! key wins, whichever part it is found in; a later section wins over an earlier one, which may
//! hold commits that a crash has taken out of the index. A session that ends in order ends its
//! catalogue before its index: from then on the catalogue has the newest version of the index, or
//! something is wrong with it.

mod read;
#[cfg(test)]
mod tests;

pub(crate) use read::{Expected, recover};

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use shale_backing::{Access, Backing, BackingFile};
use shale_codec::{Effort, Encoder, FrameKind, FrameMeta, Hint};
use shale_index::engine::journal::encode_commit;
use shale_index::engine::{Change, Commit, Embedded, Recovery};
use shale_index::kv::{Kv, Version};

use crate::Error;
use crate::pack::DIR;

const COMMITS: u64 = 1;
const DUMP: u64 = 2;
const DUMP_END: u64 = 3;
const LACKING: u64 = 4;
const IDENTITY: u64 = 5;
/// At the end of the last file, so many bytes may not have been synced when a session was cut short:
/// half a second's worth of commits is less.
const UNSYNCED: u64 = 8 << 20;

/// Raw bytes of a frame, roughly.
const FRAME_BYTES: usize = 1 << 20;
/// Commits waiting to be written from which on a commit writes them itself.
const BUFFER_MAX: usize = 4 << 20;
/// Log bytes after which everything is dumped anew, unless the last dump was larger.
const DUMP_AFTER: u64 = 64 << 20;

/// How long the end of a session waits for a dump that it needs.
const MEND_TIME: Duration = Duration::from_secs(5);
/// Files that need not be merged: one, and the next of a dump that was given up.
const FILES: usize = 2;

/// The catalogue of a store in use.
#[derive(Debug)]
pub(crate) struct Catalog {
    shared: Arc<Shared>,
    engine: Arc<Embedded>,
    dumper: Mutex<Option<std::thread::JoinHandle<()>>>,
}

#[derive(Debug)]
struct Shared {
    backing: Arc<dyn Backing>,
    store_id: [u8; 16],
    state: Mutex<State>,
    /// Held by who syncs: whoever finds nothing to sync must not overtake.
    syncing: Mutex<()>,
    stop: AtomicBool,
}

struct State {
    number: u64,
    file: Option<Arc<dyn BackingFile>>,
    end: u64,
    /// The section has begun that the next frame belongs to.
    begun: bool,
    /// The file could not be synced once: a dump does not go there.
    suspect: bool,
    /// Commits not written yet.
    buffer: Vec<u8>,
    newest: Version,
    /// The newest version that is in a file, and the newest that is durable there; 0 when
    /// something older is missing.
    logged: Version,
    durable: Version,
    unsynced: bool,
    /// Files that there were when it was opened.
    files: usize,
    /// Bytes since the last dump, and of that dump.
    since_dump: u64,
    dump: u64,
    /// Something is missing in the log: only a dump makes it whole again.
    incomplete: bool,
    /// The log itself says so.
    admitted: bool,
    /// A dump is being made for that reason.
    mending: bool,
    encoder: Encoder,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl State {
    /// Notes that commits are missing in the log.
    fn lose(&mut self) {
        self.incomplete = true;
        self.admitted = false;
        self.durable = 0;
    }
}

fn dir() -> PathBuf {
    Path::new(DIR).join("catalog")
}

/// The directory with its name, which is in the directory of packs: a session that writes none
/// would not sync that.
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

/// Numbers and lengths of the files of a catalogue, in order.
fn list(backing: &dyn Backing) -> Result<Vec<(u64, u64)>, Error> {
    let entries = match backing.list(&dir()) {
        Ok(entries) => entries,
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(Error::io("list", dir())(e)),
    };
    let mut files: Vec<(u64, u64)> = entries
        .iter()
        .filter_map(|entry| {
            let name = entry
                .name
                .to_str()?
                .strip_prefix('c')?
                .strip_suffix(".log")?;
            Some((u64::from_str_radix(name, 16).ok()?, entry.len))
        })
        .collect();
    files.sort_unstable();
    Ok(files)
}

impl Catalog {
    /// Begins a section, in the last file where that is sound, and follows the engine from now on.
    pub(crate) fn open(
        backing: Arc<dyn Backing>,
        store_id: [u8; 16],
        engine: &Arc<Embedded>,
        recovery: &Recovery,
    ) -> Result<Self, Error> {
        make_dir(&*backing)?;
        let files = list(&*backing)?;
        let version = engine.version();
        let survey = read::survey(&*backing, store_id, &files)?;
        // After a crash the index may have less than the catalogue, under the same versions.
        let lacking = !recovery.closed || survey.lacking || survey.newest != version;
        let number = files.last().map_or(0, |(number, _)| *number);
        let shared = Arc::new(Shared::new(backing, store_id, number + 1, version));
        {
            let mut state = shared.state.lock();
            state.since_dump = files.iter().map(|(_, len)| len).sum();
            // With an index that is new, the catalogue of a lost one is all that is left of it.
            state.files = if version == 0 { 0 } else { files.len() };
            if let Some(end) = survey.end {
                shared.go_on(&mut state, number, end);
            }
            if version == 0 {
                shared.write(&mut state, DUMP_END, &[])?;
            } else if lacking {
                // Should this session end before the dump, the next one has to know.
                state.incomplete = true;
                state.durable = 0;
                shared.admit(&mut state)?;
            }
        }
        let tapped = Arc::clone(&shared);
        engine.set_tap(Box::new(move |commit| tapped.record(commit)));
        Ok(Self {
            shared,
            engine: Arc::clone(engine),
            dumper: Mutex::default(),
        })
    }

    /// Writes what has been committed since the last call.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        let mut state = self.shared.state.lock();
        self.shared.flush(&mut state)
    }

    /// Makes the log durable and begins a dump when it is time for one.
    pub(crate) fn maintain(&self) -> Result<(), Error> {
        self.shared.sync()?;
        let due = {
            let state = self.shared.state.lock();
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
            let (shared, engine) = (Arc::clone(&self.shared), Arc::clone(&self.engine));
            let body = move || {
                // One that is given up because the store is closed is made by the next mount.
                if let Err(e) = shared.dump(&engine)
                    && !shared.stop.load(Ordering::SeqCst)
                {
                    tracing::warn!("the catalogue could not be renewed, it is tried again: {e}");
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

    /// Ends the log durably. A dump that is running is given up, unless something is missing without
    /// it and it does not take long: after a crash, sessions that are short would never have one.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.mend(MEND_TIME);
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.dumper.lock().take() {
            let _ = thread.join();
        }
        {
            let mut state = self.shared.state.lock();
            self.shared.flush(&mut state)?;
            self.shared.admit(&mut state)?;
        }
        self.shared.sync()
    }

    /// Waits for the dump that makes the log whole again, if that is needed.
    fn mend(&self, limit: Duration) {
        let lacking = || {
            let state = self.shared.state.lock();
            state.incomplete || state.mending
        };
        // Whoever ends the log meets the error.
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

/// Replaces the catalogue of a store that is not in use by what its index says.
pub(crate) fn renew(
    backing: &Arc<dyn Backing>,
    store_id: [u8; 16],
    engine: &Embedded,
) -> Result<(), Error> {
    make_dir(&**backing)?;
    let number = list(&**backing)?.last().map_or(0, |(number, _)| *number);
    Shared::new(Arc::clone(backing), store_id, number, engine.version()).dump(engine)
}

impl Shared {
    fn new(backing: Arc<dyn Backing>, store_id: [u8; 16], number: u64, version: Version) -> Self {
        let state = State {
            number,
            file: None,
            end: 0,
            begun: false,
            suspect: false,
            buffer: Vec::new(),
            newest: version,
            logged: version,
            durable: version,
            unsynced: false,
            files: 0,
            since_dump: 0,
            dump: 0,
            incomplete: false,
            admitted: false,
            mending: false,
            encoder: Encoder::new(),
        };
        Self {
            backing,
            store_id,
            state: Mutex::new(state),
            syncing: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Says in the log that something is missing in it, if that is so.
    fn admit(&self, state: &mut State) -> Result<(), Error> {
        if state.incomplete && !state.admitted {
            self.write(state, LACKING, &[])?;
            state.admitted = true;
        }
        Ok(())
    }

    /// Takes a commit; called by the engine in the order of versions.
    fn record(&self, commit: &Commit) {
        let mut state = self.state.lock();
        push(&mut state.buffer, commit);
        state.newest = commit.version;
        if state.buffer.len() > BUFFER_MAX
            && let Err(e) = self.flush(&mut state)
        {
            tracing::warn!("the catalogue falls behind and will be renewed: {e}");
            state.buffer.clear();
            state.lose();
        }
    }

    fn flush(&self, state: &mut State) -> Result<(), Error> {
        if state.buffer.is_empty() {
            return Ok(());
        }
        self.admit(state)?;
        let buffer = std::mem::take(&mut state.buffer);
        let written = self.write(state, COMMITS, &buffer);
        if written.is_err() {
            state.buffer = buffer;
        } else {
            state.logged = state.newest;
        }
        written
    }

    /// Goes on with a file that is there, after its last good frame. What a crash has left behind
    /// that would seem to belong to what is written next.
    fn go_on(&self, state: &mut State, number: u64, end: u64) {
        let opened = self.backing.open(&path(number), Access::Write);
        let cut = opened.and_then(|file| {
            if file.len()? > end {
                file.set_len(end)?;
            }
            Ok(file)
        });
        // Where that is not possible a new file is begun.
        if let Ok(file) = cut {
            (state.number, state.file, state.end) = (number, Some(file), end);
        }
    }

    /// Appends a frame; the first one of a section says whose it is.
    fn write(&self, state: &mut State, holds: u64, raw: &[u8]) -> Result<(), Error> {
        if state.file.is_none() {
            let path = path(state.number);
            let file = self
                .backing
                .open(&path, Access::CreateNew)
                .map_err(Error::io("create", &path))?;
            if let Err(e) = self.backing.sync_dir(&dir()) {
                // The next attempt needs a name that is not taken yet.
                state.number += 1;
                return Err(Error::io("sync", dir())(e));
            }
            state.file = Some(file);
            (state.end, state.begun, state.suspect) = (0, false, false);
        }
        if !state.begun {
            let identity = read::encode_identity(self.store_id, state.number);
            let durable = state.durable;
            self.append(state, IDENTITY, durable, &identity)?;
            state.begun = true;
        }
        let newest = state.newest;
        self.append(state, holds, newest, raw)
    }

    fn append(
        &self,
        state: &mut State,
        holds: u64,
        sequence: Version,
        raw: &[u8],
    ) -> Result<(), Error> {
        let Some(file) = state.file.clone() else {
            return Ok(());
        };
        let meta = FrameMeta {
            kind: FrameKind::Catalog,
            inode: 0,
            offset: holds,
            sequence,
        };
        let mut frame = Vec::new();
        state
            .encoder
            .encode(&meta, &Hint::Unknown, Effort::Zstd(1), raw, &mut frame)?;
        file.write_all_at(&frame, state.end)
            .map_err(Error::io("append to", path(state.number)))?;
        state.end += frame.len() as u64;
        state.since_dump += frame.len() as u64;
        state.unsynced = true;
        Ok(())
    }

    fn sync(&self) -> Result<(), Error> {
        let _alone = self.syncing.lock();
        let (file, logged) = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.unsynced) {
                return Ok(());
            }
            (state.file.clone(), state.logged)
        };
        let synced = file.map_or(Ok(()), |file| file.sync_data());
        let mut state = self.state.lock();
        if let Err(e) = synced {
            state.lose();
            state.suspect = true;
            return Err(Error::io("sync", path(state.number))(e));
        }
        if !state.incomplete {
            state.durable = logged;
        }
        Ok(())
    }

    /// Writes everything into a new file and deletes the older ones. Where there are older ones, a
    /// dump was given up before: then the last file is the new one.
    fn dump(&self, engine: &Embedded) -> Result<(), Error> {
        let files = list(&*self.backing)?.len();
        let (number, before, whole, old) = {
            let mut state = self.state.lock();
            // What cannot be written to the old file is in the dump anyway, but until that is
            // whole, the log must not be taken for it.
            if self.flush(&mut state).is_err() {
                state.buffer.clear();
                state.lose();
            }
            let mut old = None;
            if state.file.is_none() || state.suspect || files < FILES {
                state.number += 1;
                old = state.file.take();
            }
            state.begun = false;
            state.admitted = false;
            self.admit(&mut state)?;
            let whole = !std::mem::take(&mut state.incomplete);
            state.mending = !whole;
            let before = std::mem::take(&mut state.since_dump);
            (state.number, before, whole, old)
        };
        if let Some(Err(_)) = old.map(|old| old.sync_data()) {
            self.state.lock().lose();
        }
        let dumped = self.dump_pairs(engine);
        let mut state = self.state.lock();
        let ended = dumped.and_then(|()| self.write(&mut state, DUMP_END, &[]));
        state.mending = false;
        if let Err(e) = ended {
            // What was before is still there; the next dump is due as soon as this one was.
            state.since_dump += before;
            state.incomplete |= !whole;
            return Err(e);
        }
        state.dump = std::mem::take(&mut state.since_dump);
        // What cannot be deleted now is merged once more by the next session, not by this one.
        state.files = 1;
        drop(state);
        self.sync()?;
        for (old, _) in list(&*self.backing)?
            .into_iter()
            .filter(|(old, _)| *old < number)
        {
            self.backing
                .remove_file(&path(old))
                .map_err(Error::io("delete", path(old)))?;
        }
        Ok(())
    }

    fn dump_pairs(&self, engine: &Embedded) -> Result<(), Error> {
        let mut raw = Vec::new();
        let mut failed = None;
        engine
            .dump(&mut |key, value| {
                if self.stop.load(Ordering::SeqCst) {
                    return Err(shale_index::Error::Closed(
                        "the store is being closed".to_owned(),
                    ));
                }
                let change = Change {
                    key: key.to_vec(),
                    value: Some(value.clone()),
                    leased: false,
                };
                push(
                    &mut raw,
                    &Commit {
                        version: value.version,
                        changes: vec![change],
                    },
                );
                if raw.len() >= FRAME_BYTES {
                    if let Err(e) = self.write(&mut self.state.lock(), DUMP, &raw) {
                        failed = Some(e);
                        return Err(shale_index::Error::Closed("a write failed".to_owned()));
                    }
                    raw.clear();
                }
                Ok(())
            })
            .map_err(|e| failed.take().unwrap_or(Error::Index(e)))?;
        self.write(&mut self.state.lock(), DUMP, &raw)
    }
}

fn push(out: &mut Vec<u8>, commit: &Commit) {
    let bytes = encode_commit(commit);
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&bytes);
}
