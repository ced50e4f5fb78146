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
//!     3  end of the dump: everything older is in this file
//!     4  nothing: commits before it may be missing, until a dump follows
//! contents: per commit a length (4 bytes, little-endian) and the commit as the journal writes it
//! ```
//! A dump is taken while commits go on. For each key the highest version wins, whichever part it
//! is found in.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use shale_backing::{Access, Backing, BackingFile};
use shale_codec::{Decoder, Effort, Encoder, FrameKind, FrameMeta, Hint};
use shale_index::engine::journal::{decode_commit, encode_commit};
use shale_index::engine::{Change, Commit, Embedded};
use shale_index::kv::{Kv, Version, Versioned};

use crate::Error;
use crate::pack::{DIR, Scanned, scan_from};

const COMMITS: u64 = 1;
const DUMP: u64 = 2;
const DUMP_END: u64 = 3;
const LACKING: u64 = 4;
/// At the end of the last file, so many bytes may not have been synced when a session was cut short:
/// half a second's worth of commits is less.
const UNSYNCED: u64 = 8 << 20;

/// Raw bytes of a frame, roughly.
const FRAME_BYTES: usize = 1 << 20;
/// Commits waiting to be written from which on a commit writes them itself.
const BUFFER_MAX: usize = 4 << 20;
/// Log bytes after which everything is dumped anew, unless the last dump was larger.
const DUMP_AFTER: u64 = 64 << 20;

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
    state: Mutex<State>,
    stop: AtomicBool,
}

struct State {
    number: u64,
    file: Option<Arc<dyn BackingFile>>,
    end: u64,
    /// Commits not written yet.
    buffer: Vec<u8>,
    newest: Version,
    unsynced: bool,
    /// Bytes since the last dump, and of that dump.
    since_dump: u64,
    dump: u64,
    /// Something is missing in the log: only a dump makes it whole again.
    incomplete: bool,
    encoder: Encoder,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

fn dir() -> PathBuf {
    Path::new(DIR).join("catalog")
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
    /// Begins a new file and follows the engine from now on.
    pub(crate) fn open(backing: Arc<dyn Backing>, engine: &Arc<Embedded>) -> Result<Self, Error> {
        backing
            .create_dir_all(&dir())
            .map_err(Error::io("create", dir()))?;
        let files = list(&*backing)?;
        let survey = survey(&*backing, &files)?;
        if let Some(&(last, _)) = files.last() {
            // A session that was cut short may have left it to the page cache alone. Only the
            // last file may end in what is not durable.
            let path = path(last);
            let synced = backing
                .open(&path, Access::Read)
                .and_then(|file| file.sync_data());
            synced.map_err(Error::io("sync", path))?;
        }
        let number = files.last().map_or(0, |(number, _)| *number) + 1;
        let state = State {
            number,
            file: None,
            end: 0,
            buffer: Vec::new(),
            newest: engine.version(),
            unsynced: false,
            since_dump: files.iter().map(|(_, len)| len).sum(),
            dump: 0,
            incomplete: survey.lacking || survey.newest < engine.version(),
            encoder: Encoder::new(),
        };
        let shared = Arc::new(Shared {
            backing,
            state: Mutex::new(state),
            stop: AtomicBool::new(false),
        });
        {
            let mut state = shared.state.lock();
            if engine.version() == 0 {
                shared.write(&mut state, DUMP_END, &[])?;
                state.incomplete = false;
            } else if state.incomplete {
                // Should this session end before the dump, the next one has to know.
                shared.write(&mut state, LACKING, &[])?;
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
            state.incomplete || state.since_dump > DUMP_AFTER.max(2 * state.dump)
        };
        let mut dumper = self.dumper.lock();
        if due
            && dumper
                .as_ref()
                .is_none_or(std::thread::JoinHandle::is_finished)
        {
            let (shared, engine) = (Arc::clone(&self.shared), Arc::clone(&self.engine));
            let body = move || {
                if let Err(e) = shared.dump(&engine) {
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

    /// Gives up a dump that is running: the engine is going to be closed.
    pub(crate) fn stop_dumping(&self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(thread) = self.dumper.lock().take() {
            let _ = thread.join();
        }
    }

    /// Ends the log durably, after the last commit of the engine.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.flush()?;
        self.shared.sync()
    }
}

impl Shared {
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
            state.incomplete = true;
        }
    }

    fn flush(&self, state: &mut State) -> Result<(), Error> {
        if state.buffer.is_empty() {
            return Ok(());
        }
        let buffer = std::mem::take(&mut state.buffer);
        let written = self.write(state, COMMITS, &buffer);
        if written.is_err() {
            state.buffer = buffer;
        }
        written
    }

    fn write(&self, state: &mut State, holds: u64, raw: &[u8]) -> Result<(), Error> {
        let file = match &state.file {
            Some(file) => Arc::clone(file),
            None => {
                let path = path(state.number);
                let file = self
                    .backing
                    .open(&path, Access::CreateNew)
                    .map_err(Error::io("create", &path))?;
                self.backing
                    .sync_dir(&dir())
                    .map_err(Error::io("sync", dir()))?;
                state.file = Some(Arc::clone(&file));
                state.end = 0;
                file
            }
        };
        let meta = FrameMeta {
            kind: FrameKind::Catalog,
            inode: 0,
            offset: holds,
            sequence: state.newest,
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
        let file = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.unsynced) {
                return Ok(());
            }
            state.file.clone()
        };
        if let Some(file) = file
            && let Err(e) = file.sync_data()
        {
            let mut state = self.state.lock();
            state.incomplete = true;
            return Err(Error::io("sync", path(state.number))(e));
        }
        Ok(())
    }

    /// Makes the file durable before another is begun: only the last one may end in something
    /// that is not.
    fn end_file(&self, state: &mut State) -> Result<(), Error> {
        self.flush(state)?;
        match &state.file {
            Some(file) if std::mem::take(&mut state.unsynced) => file
                .sync_data()
                .map_err(Error::io("sync", path(state.number))),
            _ => Ok(()),
        }
    }

    /// Writes everything into a new file and deletes the older ones.
    fn dump(&self, engine: &Embedded) -> Result<(), Error> {
        let number = {
            // Most of it without keeping commits waiting.
            let synced = self.sync();
            let mut state = self.state.lock();
            let ended = synced.and_then(|()| self.end_file(&mut state));
            state.number += 1;
            state.file = None;
            state.since_dump = 0;
            // What cannot be written to the old file is in the dump anyway.
            if let Err(e) = ended {
                tracing::warn!("the catalogue lacks something until it is renewed: {e}");
                state.buffer.clear();
                state.incomplete = true;
            }
            if state.incomplete {
                self.write(&mut state, LACKING, &[])?;
            }
            state.incomplete = false;
            state.number
        };
        let dumped = self.dump_pairs(engine);
        let mut state = self.state.lock();
        if let Err(e) = dumped {
            state.incomplete = true;
            return Err(e);
        }
        self.write(&mut state, DUMP_END, &[])?;
        state.dump = std::mem::take(&mut state.since_dump);
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

/// What the headers of a catalogue's frames say.
#[derive(Debug, Default)]
struct Survey {
    /// The newest version in the last file that has any.
    newest: Version,
    /// Something is damaged, or known to be missing since the last dump.
    lacking: bool,
}

fn survey(backing: &dyn Backing, files: &[(u64, u64)]) -> Result<Survey, Error> {
    let mut survey = Survey::default();
    let last = files.last().map(|&(number, _)| number);
    for &(number, len) in files {
        let path = path(number);
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        let mut newest = None;
        let mut gap = false;
        let mut fresh = Vec::new();
        scan_from(&*file, 0, |found| match found {
            Scanned::Frame { at, header } => {
                if last == Some(number) && at + UNSYNCED >= len {
                    fresh.push((at, header.frame_len));
                }
                newest = newest.max(Some(header.meta.sequence));
                match header.meta.offset {
                    DUMP_END => survey.lacking = false,
                    LACKING => survey.lacking = true,
                    _ => {}
                }
            }
            Scanned::Gap { .. } => gap = true,
        })
        .map_err(Error::io("read", &path))?;
        survey.newest = newest.unwrap_or(survey.newest);
        survey.lacking |= gap || !fresh.iter().all(|&(at, len)| is_whole(&*file, at, len));
    }
    Ok(survey)
}

/// Whether all of a frame is what was written, not only its header.
fn is_whole(file: &dyn BackingFile, at: u64, len: u32) -> bool {
    let mut frame = vec![0; len as usize];
    let mut raw = Vec::new();
    file.read_exact_at(&mut frame, at).is_ok() && Decoder::new().decode(&frame, &mut raw).is_ok()
}

/// What a catalogue holds.
#[derive(Debug, Default)]
pub(crate) struct Recovered {
    /// Live keys.
    pub(crate) pairs: BTreeMap<Vec<u8>, Versioned>,
    /// The version after the newest one seen.
    pub(crate) next: Version,
    /// Whether a whole dump was found below the log.
    pub(crate) complete: bool,
    /// Frames that could not be read.
    pub(crate) damaged: Vec<String>,
    /// The same where a crash may have left them, and where the log says so itself.
    pub(crate) torn: Vec<String>,
}

/// Reads the catalogue of a store.
pub(crate) fn recover(backing: &dyn Backing) -> Result<Recovered, Error> {
    let mut recovered = Recovered {
        next: 1,
        ..Recovered::default()
    };
    let mut slots: BTreeMap<Vec<u8>, (Version, Option<Versioned>)> = BTreeMap::new();
    let files = list(backing)?;
    let last = files.last().map(|&(number, _)| number);
    for (number, _) in files {
        let path = path(number);
        let file = backing
            .open(&path, Access::Read)
            .map_err(Error::io("open", &path))?;
        let whole = file.len().map_err(Error::io("measure", &path))?;
        let fresh = |at: u64| last == Some(number) && at + UNSYNCED >= whole;
        let mut frames = Vec::new();
        scan_from(&*file, 0, |found| match found {
            Scanned::Frame { at, header } => frames.push((at, header)),
            Scanned::Gap { at, len } => {
                let what = format!("{}: {len} bytes at {at}", path.display());
                if at + len == whole || fresh(at) {
                    recovered.torn.push(what);
                } else {
                    recovered.damaged.push(what);
                }
            }
        })
        .map_err(Error::io("read", &path))?;
        for (at, header) in frames {
            let mut frame = vec![0; header.frame_len as usize];
            file.read_exact_at(&mut frame, at)
                .map_err(Error::io("read", &path))?;
            let mut raw = Vec::new();
            if Decoder::new().decode(&frame, &mut raw).is_err() || !replay(&raw, &mut slots) {
                let what = format!("{}: frame at {at}", path.display());
                if fresh(at) {
                    recovered.torn.push(what);
                } else {
                    recovered.damaged.push(what);
                }
                continue;
            }
            recovered.next = recovered.next.max(header.meta.sequence.saturating_add(1));
            match header.meta.offset {
                DUMP_END => recovered.complete = true,
                LACKING => {
                    recovered.complete = false;
                    recovered.torn.append(&mut recovered.damaged);
                }
                _ => {}
            }
        }
    }
    recovered.pairs = slots
        .into_iter()
        .filter_map(|(key, (_, value))| Some((key, value?)))
        .collect();
    Ok(recovered)
}

fn replay(mut raw: &[u8], slots: &mut BTreeMap<Vec<u8>, (Version, Option<Versioned>)>) -> bool {
    while let Some((len, rest)) = raw.split_first_chunk::<4>() {
        let Some((bytes, rest)) = rest.split_at_checked(u32::from_le_bytes(*len) as usize) else {
            return false;
        };
        let Ok(commit) = decode_commit(bytes) else {
            return false;
        };
        for change in commit.changes {
            // Keys under a lease went with the process that held it.
            let value = change.value.filter(|_| !change.leased);
            let slot = slots.entry(change.key).or_insert((0, None));
            if commit.version >= slot.0 {
                *slot = (commit.version, value);
            }
        }
        raw = rest;
    }
    raw.is_empty()
}

#[cfg(test)]
mod tests {
    use shale_backing::PosixBacking;
    use shale_backing::faults::{FaultDisk, Left};
    use shale_index::schema::S_IFREG;
    use shale_index::{Namespace, NewNode, ROOT};

    use super::*;
    use crate::{Store, StoreOptions};

    fn create(namespace: &Namespace, name: &str) {
        let node = NewNode {
            mode: S_IFREG | 0o644,
            uid: 0,
            gid: 0,
            rdev: 0,
            target: Vec::new(),
            chunk_shift: 20,
            xattrs: Vec::new(),
        };
        namespace.create(ROOT, name.as_bytes(), &node).unwrap();
    }

    #[test]
    fn an_orderly_end_leaves_nothing_to_renew() {
        let dir = tempfile::tempdir().unwrap();
        let options = StoreOptions {
            memory: 1 << 20,
            workers: 1,
            owner: (0, 0),
            effort: Effort::Fast,
            purpose: "test".to_owned(),
            device: shale_backing::Choice::default(),
            kernel_cache: true,
        };
        for session in 0..3 {
            let store = Store::open(dir.path(), &options).unwrap();
            let catalog = store.inner.catalog.as_ref().unwrap();
            assert!(!catalog.shared.state.lock().incomplete, "{session}");
            create(store.namespace(), &format!("{session}"));
            store.shut_down().unwrap();
        }
    }

    /// The power goes at each step of writing it anew, while the last commits before that were
    /// not written yet.
    #[test]
    fn a_renewal_that_is_cut_short_is_no_damage() {
        let work = tempfile::tempdir().unwrap();
        let mut renewed = false;
        for step in 1.. {
            let live = work.path().join(format!("live{step}"));
            std::fs::create_dir(&live).unwrap();
            let disk = FaultDisk::new(&live).unwrap();
            let (engine, _) =
                Embedded::open(disk.backing(), shale_index::engine::Options::default()).unwrap();
            let engine = Arc::new(engine);
            let catalog = Catalog::open(disk.backing(), &engine).unwrap();
            let namespace = Namespace::open(Arc::clone(&engine) as Arc<dyn Kv>, 1, (0, 0)).unwrap();
            for name in 0..200 {
                create(
                    &namespace,
                    &format!("a name that fills a sector soon {name}"),
                );
            }
            disk.cut_power_at(disk.changes() + step);
            let dumped = catalog.shared.dump(&engine);
            for seed in 0..8 {
                let after = work.path().join(format!("after{step}-{seed}"));
                std::fs::create_dir(&after).unwrap();
                disk.after_power_loss(&after, Left::Some(8 * step + seed))
                    .unwrap();
                let recovered = recover(&PosixBacking::new(&after)).unwrap();
                assert!(
                    recovered.damaged.is_empty(),
                    "{step}: {:?}",
                    recovered.damaged
                );
            }
            if dumped.is_ok() {
                renewed = true;
                break;
            }
        }
        assert!(renewed);
    }
}
