//! Packs: append-only files of frames.
//!
//! ```text
//! +--------+-------+-------+-- ... --+-----------+---------+
//! | header | frame | frame |         | directory | trailer |
//! +--------+-------+-------+-- ... --+-----------+---------+
//!  64 bytes                            a frame     32 bytes
//! ```
//! Directory and trailer are written when the pack is sealed. Between frames there may be bytes
//! that belong to nothing: an append that failed or was cut short. Only what the index points at
//! is data.

mod format;
mod scan;
mod writer;

pub use format::{DirectoryEntry, PackId};
pub(crate) use format::{HEADER_LEN, decode_header, encode_footer, read_directory};
pub(crate) use scan::{Scanned, scan, scan_from};
pub(crate) use writer::{Appended, Lane};

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shale_backing::{Access, Backing, BackingFile};
use shale_index::extent::FramePart;

use crate::Error;
use crate::counters::Counters;
use crate::pins::{Pin, Pins};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use writer::{Placed, Writer};

/// Directory of packs in a store.
pub(crate) const DIR: &str = "packs";

/// Pack files held open for reading at most.
const OPEN_FILES: usize = 256;

/// A pack is sealed when it has grown to this size, on a device that is large enough.
const SEAL_BYTES: u64 = 1 << 30;
/// On others it is sealed at this share of the device: as much is kept free to copy one.
const SEAL_SHARE: u64 = 256;
/// Smallest size at which a pack is sealed.
const SEAL_BYTES_MIN: u64 = 4 << 20;
/// Less that is dead in a pack is not worth ending it early.
const WASTE_MIN: u64 = 1 << 20;

/// All packs of a store: one being appended to, the others to be read.
#[derive(Debug)]
pub(crate) struct Packs {
    backing: Arc<dyn Backing>,
    writer: Writer,
    files: Mutex<OpenFiles>,
    sequence: AtomicU64,
    /// Live bytes of each pack that has any or that waits to be deleted.
    live: Mutex<BTreeMap<u64, u64>>,
    pins: Arc<Pins>,
    /// Lengths of packs that do not grow any more.
    lengths: Mutex<HashMap<u64, u64>>,
    /// Something died in a pack since somebody asked.
    shrunk: AtomicBool,
    /// Bytes that have died in packs in this session.
    died: AtomicU64,
    pub(crate) counters: Counters,
}

#[derive(Debug, Default)]
struct OpenFiles {
    files: HashMap<u64, (Arc<dyn BackingFile>, u64)>,
    clock: u64,
    /// Packs deleted so far.
    deleted: u64,
}

impl Packs {
    pub(crate) fn open(
        backing: Arc<dyn Backing>,
        store_id: [u8; 16],
        session: u64,
        live: BTreeMap<u64, u64>,
    ) -> Result<Self, Error> {
        let capacity = backing
            .space()
            .map_err(Error::io("query the space of", DIR))?
            .total;
        let seal_bytes = seal_bytes(capacity).next_multiple_of(backing.pack_unit().max(1));
        Ok(Self {
            writer: Writer::new(Arc::clone(&backing), store_id, session, seal_bytes),
            backing,
            files: Mutex::default(),
            // Sequences of a later session are above those of an earlier one.
            sequence: AtomicU64::new(session << 40),
            live: Mutex::new(live),
            pins: Arc::default(),
            lengths: Mutex::default(),
            shrunk: AtomicBool::new(true),
            died: AtomicU64::new(0),
            counters: Counters::default(),
        })
    }

    /// Size at which a pack is sealed.
    pub(crate) fn seal_bytes(&self) -> u64 {
        self.writer.seal_bytes
    }

    /// A number above those of all frames made before.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Appends one frame or several behind each other. They are durable after the next
    /// successful [`Packs::sync`].
    pub(crate) fn append(&self, lane: Lane, frames: &[u8]) -> Result<(Appended, Pin), Error> {
        let Placed {
            appended,
            pin,
            fresh,
        } = self.writer.append(lane, frames, &self.pins)?;
        if let Some(file) = fresh {
            self.files.lock().insert(appended.pack, file);
            // It may be that nothing in it is ever committed: then it is dead like others.
            self.condemn(appended.pack);
        }
        self.counters.appends.one();
        self.counters.appended.add(frames.len() as u64);
        Ok((appended, pin))
    }

    /// Makes every frame durable whose append has returned. The packs for which that failed are
    /// returned: nothing appended to them since the last success can be relied upon.
    pub(crate) fn sync(&self) -> Vec<(u64, io::Error)> {
        self.counters.pack_syncs.one();
        self.writer.sync()
    }

    /// Makes the frames behind these pins durable.
    pub(crate) fn make_durable(&self, pins: &[Pin]) -> Result<(), Error> {
        if pins.is_empty() {
            return Ok(());
        }
        self.sync_round().check(pins)
    }

    /// One sync for several callers: each checks its own frames against the result.
    pub(crate) fn sync_round(&self) -> SyncRound {
        let failed = self.sync();
        SyncRound {
            failed: failed
                .into_iter()
                .map(|(pack, e)| (pack, e.raw_os_error().unwrap_or(libc::EIO)))
                .collect(),
            // Another thread may have met the failure.
            abandoned: self.abandoned(),
        }
    }

    /// Packs that could not be synced at some time: what was not committed then never may be.
    pub(crate) fn abandoned(&self) -> Vec<u64> {
        self.writer.abandoned()
    }

    /// Whether nothing is or will be appended to a pack and nothing in it waits for a commit.
    pub(crate) fn is_quiet(&self, pack: u64) -> bool {
        !self.writer.is_active(pack) && !self.pins.is_pinned(pack)
    }

    /// Whether so much of a pack that is being appended to is dead that it had better be ended
    /// and rewritten: less than `percent` of it is alive.
    pub(crate) fn is_wasteful(&self, percent: u64) -> bool {
        let live = self.live();
        self.writer.growing().into_iter().any(|(pack, end)| {
            let live = live.get(&pack).copied().unwrap_or(0);
            live * 100 < end * percent && end.saturating_sub(live) >= WASTE_MIN
        })
    }

    /// Ends the pack that is being appended to; the next append begins another.
    pub(crate) fn roll(&self) {
        self.writer.roll();
    }

    /// Packs sealed since the last call, each with the place of its directory.
    pub(crate) fn take_sealed(&self) -> Vec<(u64, u64)> {
        self.writer.take_sealed()
    }

    /// Reads a whole frame as it is stored.
    pub(crate) fn read(&self, part: &FramePart, buf: &mut Vec<u8>) -> Result<(), Error> {
        self.read_at(part.pack, part.at, u64::from(part.frame_len), buf)
    }

    /// Reads bytes of a pack.
    pub(crate) fn read_at(
        &self,
        pack: u64,
        at: u64,
        len: u64,
        buf: &mut Vec<u8>,
    ) -> Result<(), Error> {
        buf.clear();
        buf.resize(len as usize, 0);
        self.counters.pack_reads.one();
        self.counters.pack_read.add(len);
        self.file(pack)
            .and_then(|file| file.read_exact_at(buf, at))
            .map_err(Error::io("read", PackId(pack).path()))
    }

    /// Lets the device begin with frames that will be read soon.
    pub(crate) fn will_need(&self, frames: &[FramePart]) {
        let mut frames: Vec<_> = frames.iter().map(|f| (f.pack, f.at, f.frame_len)).collect();
        frames.sort_unstable();
        for frames in frames.chunk_by(|a, b| a.0 == b.0 && a.1 + u64::from(a.2) == b.1) {
            let (Some(&(pack, start, _)), Some(&(_, at, len))) = (frames.first(), frames.last())
            else {
                continue;
            };
            // Whoever reads it meets the error.
            if let Ok(file) = self.file(pack) {
                file.will_need(start, at + u64::from(len) - start);
            }
        }
    }

    fn file(&self, pack: u64) -> io::Result<Arc<dyn BackingFile>> {
        let deleted = {
            let mut files = self.files.lock();
            if let Some(file) = files.get(pack) {
                return Ok(file);
            }
            files.deleted
        };
        let file = self.backing.open(&PackId(pack).path(), Access::Read)?;
        let mut files = self.files.lock();
        // It may have been deleted meanwhile, and would keep its space as long as it is open.
        if files.deleted == deleted {
            files.insert(pack, Arc::clone(&file));
        }
        Ok(file)
    }

    /// Opens a pack for scanning.
    pub(crate) fn open_pack(&self, pack: u64) -> Result<Arc<dyn BackingFile>, Error> {
        self.file(pack)
            .map_err(Error::io("open", PackId(pack).path()))
    }

    /// Length of a pack that does not grow any more.
    pub(crate) fn len(&self, pack: u64) -> Result<u64, Error> {
        if let Some(&len) = self.lengths.lock().get(&pack) {
            return Ok(len);
        }
        let len = self
            .open_pack(pack)?
            .len()
            .map_err(Error::io("query", PackId(pack).path()))?;
        self.lengths.lock().insert(pack, len);
        Ok(len)
    }

    /// Whether something has died in a pack since the last call.
    pub(crate) fn take_shrunk(&self) -> bool {
        self.shrunk.swap(false, Ordering::Relaxed)
    }

    /// Bytes that have died in packs in this session.
    pub(crate) fn died(&self) -> u64 {
        self.died.load(Ordering::Relaxed)
    }

    /// Asks for another look at what is dead.
    pub(crate) fn note_shrunk(&self) {
        self.shrunk.store(true, Ordering::Relaxed);
    }

    /// Follows a commit that changed live bytes.
    pub(crate) fn account(&self, changes: &BTreeMap<u64, i64>) {
        let mut live = self.live.lock();
        for (&pack, &delta) in changes {
            let bytes = live.entry(pack).or_default();
            *bytes = bytes.saturating_add_signed(delta);
            if delta < 0 {
                self.died.fetch_add(delta.unsigned_abs(), Ordering::Relaxed);
                self.note_shrunk();
            }
        }
    }

    /// Live bytes of every known pack.
    pub(crate) fn live(&self) -> BTreeMap<u64, u64> {
        self.live.lock().clone()
    }

    /// Packs without any live byte that nobody appends to.
    pub(crate) fn dead(&self) -> Vec<u64> {
        let live = self.live.lock();
        live.iter()
            .filter(|&(&pack, &bytes)| bytes == 0 && self.is_quiet(pack))
            .map(|(&pack, _)| pack)
            .collect()
    }

    /// Whether nothing in a pack is alive any more; its file may be gone.
    pub(crate) fn is_dead(&self, pack: u64) -> bool {
        self.live.lock().get(&pack).is_none_or(|&bytes| bytes == 0)
    }

    /// Deletes the file of a dead pack. Readers that have it open are not disturbed.
    pub(crate) fn delete(&self, pack: u64) -> Result<(), Error> {
        let path = PackId(pack).path();
        match self.backing.remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("delete", path)(e)),
            _ => {}
        }
        let session = PackId(pack).session();
        if session != self.writer.session {
            // Its session has ended: with the last pack the directory goes.
            let _ = self.backing.remove_dir(&PackId::session_dir(session));
        }
        // Not before: somebody who looks for frames that have moved could open it again.
        self.files.lock().remove(pack);
        self.live.lock().remove(&pack);
        self.lengths.lock().remove(&pack);
        Ok(())
    }

    /// Takes the directory of this session away if there is no pack in it. Nothing is appended any
    /// more.
    pub(crate) fn leave(&self) {
        let dir = PackId::session_dir(self.writer.session);
        remove_empty_sessions(&*self.backing, &[dir]);
    }

    /// Registers a pack that holds nothing alive, to be deleted like others.
    pub(crate) fn condemn(&self, pack: u64) {
        self.live.lock().entry(pack).or_insert(0);
    }
}

/// What a sync could not make durable.
#[derive(Debug, Default)]
pub(crate) struct SyncRound {
    /// The errno of each pack for which it failed.
    failed: BTreeMap<u64, i32>,
    abandoned: Vec<u64>,
}

impl SyncRound {
    /// Whether the frames behind these pins are durable, if they were appended before the sync.
    pub(crate) fn check(&self, pins: &[Pin]) -> Result<(), Error> {
        for pack in pins.iter().map(Pin::pack) {
            let errno = match self.failed.get(&pack) {
                Some(&errno) => errno,
                None if self.abandoned.contains(&pack) => libc::EIO,
                None => continue,
            };
            let source = io::Error::from_raw_os_error(errno);
            return Err(Error::io("sync", PackId(pack).path())(source));
        }
        Ok(())
    }
}

/// Size at which packs are sealed on a device of so many bytes.
pub(crate) fn seal_bytes(capacity: u64) -> u64 {
    (capacity / SEAL_SHARE).clamp(SEAL_BYTES_MIN, SEAL_BYTES)
}

/// Pack files in a store, with their lengths.
pub(crate) fn list(backing: &dyn Backing) -> Result<Vec<(u64, u64)>, Error> {
    Ok(list_sessions(backing)?.packs)
}

/// Removes the directories of sessions that have no pack.
pub(crate) fn remove_empty_sessions(backing: &dyn Backing, empty: &[PathBuf]) {
    for dir in empty {
        // It is in nobody's way.
        let _ = backing.remove_dir(dir);
    }
}

/// What the sessions of a store have left.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Packs with their lengths, in order.
    pub(crate) packs: Vec<(u64, u64)>,
    /// Directories without any file.
    pub(crate) empty: Vec<PathBuf>,
}

/// Looks into the directories of all sessions.
pub(crate) fn list_sessions(backing: &dyn Backing) -> Result<Sessions, Error> {
    let list = |path: &Path| backing.list(path).map_err(Error::io("list", path));
    let Sessions {
        mut packs,
        mut empty,
    } = Sessions::default();
    for entry in list(Path::new(DIR))? {
        let Some(session) = PackId::session_of(&entry.name).filter(|_| entry.is_dir) else {
            continue;
        };
        let dir: PathBuf = Path::new(DIR).join(&entry.name);
        let files = list(&dir)?;
        for file in &files {
            if let Some(id) = PackId::parse(session, &file.name).filter(|_| !file.is_dir) {
                packs.push((id.0, file.len));
            }
        }
        if files.is_empty() {
            empty.push(dir);
        }
    }
    packs.sort_unstable();
    Ok(Sessions { packs, empty })
}

impl OpenFiles {
    fn get(&mut self, pack: u64) -> Option<Arc<dyn BackingFile>> {
        self.clock += 1;
        let (file, used) = self.files.get_mut(&pack)?;
        *used = self.clock;
        Some(Arc::clone(file))
    }

    fn insert(&mut self, pack: u64, file: Arc<dyn BackingFile>) {
        if self.files.len() >= OPEN_FILES
            && let Some(oldest) = self.files.iter().min_by_key(|(_, (_, used))| *used)
        {
            let oldest = *oldest.0;
            self.files.remove(&oldest);
        }
        self.clock += 1;
        self.files.insert(pack, (file, self.clock));
    }

    fn remove(&mut self, pack: u64) {
        self.files.remove(&pack);
        self.deleted += 1;
    }
}

#[cfg(test)]
mod tests {
    use shale_backing::faults::{FaultDisk, Step};

    use super::*;

    #[test]
    fn a_reader_that_comes_late_does_not_keep_a_deleted_pack() {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultDisk::new(dir.path()).unwrap();
        let backing = disk.backing();
        let pack = PackId::new(1, 0);
        let path = pack.path();
        backing.create_dir_all(path.parent().unwrap()).unwrap();
        backing.open(&path, Access::CreatePack).unwrap();
        let packs = Packs::open(backing, [1; 16], 2, BTreeMap::from([(pack.0, 0)])).unwrap();
        let packs = Arc::new(packs);
        let late = Arc::clone(&packs);
        disk.rule(move |step, _, _| {
            if step == Step::Remove {
                late.open_pack(pack.0).unwrap();
            }
            None
        });
        packs.delete(pack.0).unwrap();
        disk.heal();
        assert!(packs.files.lock().get(pack.0).is_none());
    }
}
