//! Packs: append-only files of frames.
//!
//! ```text
//! +--------+-------+-------+-- ... --+-----------+---------+
//! | header | frame | frame |         | directory | trailer |
//! +--------+-------+-------+-- ... --+-----------+---------+
//!  64 bytes                            a frame     32 bytes
//! ```
//! Directory and trailer are written when the pack is sealed. Between frames there may be bytes
//! that belong to no frame: an append that failed or was torn. Only bytes that the index points at
//! are data.

mod format;
mod live_bytes;
mod open_files;
mod pin;
mod scan;
#[cfg(feature = "shuttle")]
mod testing;
mod writer;

pub(crate) use format::{
    DirectoryEntry, HEADER_LEN, decode_header, encode_footer, entries_of, read_directory,
};
pub(crate) use format::{FrameAt, PackId};
pub(crate) use pin::Pin;
#[cfg(feature = "shuttle")]
pub(crate) use pin::Pins as PackPins;
pub(crate) use scan::{Scanned, scan, scan_from};
pub(crate) use shale_index::extent::{PACKS_DIR as DIR, PackBytes};
#[cfg(feature = "shuttle")]
pub use testing::{ListedFrame, PackWriter, PlacedFrame, listed_frames};
pub(crate) use writer::Lane;

use std::collections::{BTreeMap, HashMap};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shale_backing::{Backing, BackingFile};
use shale_index::Namespace;
use shale_index::extent::FramePart;

use crate::Error;
use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicU64, Ordering};
use crate::stats::Counters;
use live_bytes::LiveBytes;
use open_files::OpenFiles;
use pin::Pins;
use writer::{PackAppender, Placed};

/// A pack is sealed when it has grown to this size, on a device that is large enough.
const SEAL_BYTES: u64 = 1 << 30;
/// On smaller devices it is sealed at this share: the same share is kept free to copy a pack.
const SEAL_SHARE: u64 = 256;
/// Smallest size at which a pack is sealed.
const SEAL_BYTES_MIN: u64 = 4 << 20;
/// A pack with less garbage is not sealed early.
const WASTE_MIN: u64 = 1 << 20;

/// Sequence numbers for each commit of the index: more frames are never made between two.
const FRAMES_PER_COMMIT: u64 = 1 << 20;

/// All packs of a store: one being appended to, the others to be read.
#[derive(Debug)]
pub(crate) struct Packs {
    backing: Arc<dyn Backing>,
    writer: PackAppender,
    files: OpenFiles,
    sequence: AtomicU64,
    live: LiveBytes,
    pins: Arc<Pins>,
    /// Lengths of packs that no longer grow.
    lengths: Mutex<HashMap<PackId, u64>>,
    pub(crate) counters: Arc<Counters>,
}

impl Packs {
    /// The packs of a store that a session appends to. `live` are the live bytes that the index
    /// counts.
    pub(crate) fn open(
        backing: Arc<dyn Backing>,
        store_id: [u8; 16],
        session: u64,
        live: BTreeMap<PackId, u64>,
        counters: Arc<Counters>,
    ) -> Result<Self, Error> {
        let capacity = backing
            .space()
            .map_err(Error::io("query the space of", DIR))?
            .total;
        let seal_bytes = seal_bytes(capacity).next_multiple_of(backing.pack_unit().max(1));
        Ok(Self {
            writer: PackAppender::new(Arc::clone(&backing), store_id, session, seal_bytes),
            files: OpenFiles::new(Arc::clone(&backing)),
            backing,
            sequence: AtomicU64::new(0),
            live: LiveBytes::new(live),
            pins: Arc::default(),
            lengths: Mutex::default(),
            counters,
        })
    }

    /// The packs of a store that is only read.
    pub(crate) fn open_to_read(
        backing: Arc<dyn Backing>,
        store_id: [u8; 16],
    ) -> Result<Self, Error> {
        Self::open(backing, store_id, 0, BTreeMap::new(), Arc::default())
    }

    /// Size at which a pack is sealed.
    pub(crate) fn seal_bytes(&self) -> u64 {
        self.writer.seal_bytes
    }

    /// A number above those of all frames made before.
    pub(crate) fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::Relaxed)
    }

    /// Has the frames that are made from now on be newer than those that any session has made
    /// before it saw this commit. `floor` is what an older format has numbered frames up to.
    pub(crate) fn note_version(&self, floor: u64, version: u64) {
        let sequence = floor.saturating_add(version.saturating_mul(FRAMES_PER_COMMIT));
        self.sequence.fetch_max(sequence, Ordering::Relaxed);
    }

    /// Appends one frame or several behind each other and returns where the first begins.
    /// `entries` describe them, with places from the first frame on. They are durable after the
    /// next successful [`Packs::sync`].
    pub(crate) fn append(
        &self,
        lane: Lane,
        frames: &[u8],
        entries: &[DirectoryEntry],
    ) -> Result<(FrameAt, Pin), Error> {
        let Placed { at, pin, fresh } = self.writer.append(lane, frames, entries, &self.pins)?;
        if let Some(file) = fresh {
            self.files.insert(at.pack, file);
            // If nothing in it is ever committed, it is dead like others.
            self.condemn(at.pack);
        }
        self.counters.appends.one();
        self.counters.appended.add(frames.len() as u64);
        Ok((at, pin))
    }

    /// Makes every frame durable whose append has returned. Returns the packs for which that
    /// failed: frames appended to them since the last success are not durable.
    pub(crate) fn sync(&self) -> Vec<(PackId, io::Error)> {
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
            // Another thread's sync may have failed.
            abandoned: self.abandoned(),
        }
    }

    /// Packs whose sync has failed: frames in them that were not committed by then never may be.
    pub(crate) fn abandoned(&self) -> Vec<PackId> {
        self.writer.abandoned()
    }

    /// Whether nothing is or will be appended to a pack and no frame in it waits for a commit.
    pub(crate) fn is_quiet(&self, pack: PackId) -> bool {
        !self.writer.is_active(pack) && !self.pins.is_pinned(pack)
    }

    /// Whether a pack that is being appended to should be sealed and rewritten: less than `percent`
    /// of it is live.
    pub(crate) fn is_wasteful(&self, percent: u64) -> bool {
        let live = self.live();
        self.writer
            .growing()
            .into_iter()
            .any(|PackBytes { pack, bytes: end }| {
                let live = live.get(&pack).copied().unwrap_or(0);
                live * 100 < end * percent && end.saturating_sub(live) >= WASTE_MIN
            })
    }

    /// Ends the pack that is being appended to; the next append begins another.
    pub(crate) fn roll(&self) {
        self.writer.roll();
    }

    /// Records in the index which packs have got a directory since the last call. A crash before
    /// that loses no data: fsck then does not expect the directory.
    pub(crate) fn note_sealed(&self, namespace: &Namespace) -> Result<(), Error> {
        let sealed = self.writer.take_sealed();
        if !sealed.is_empty() {
            namespace.note_sealed(&sealed)?;
        }
        Ok(())
    }

    /// Reads a whole frame as stored.
    pub(crate) fn read(&self, part: &FramePart, buf: &mut Vec<u8>) -> Result<(), Error> {
        self.read_at(part.pack, part.at, u64::from(part.frame_len), buf)
    }

    /// Reads bytes of a pack.
    pub(crate) fn read_at(
        &self,
        pack: PackId,
        at: u64,
        len: u64,
        buf: &mut Vec<u8>,
    ) -> Result<(), Error> {
        buf.clear();
        buf.resize(len as usize, 0);
        self.counters.pack_reads.one();
        self.counters.pack_read.add(len);
        self.files
            .get(pack)
            .and_then(|file| file.read_exact_at(buf, at))
            .map_err(failed("read", pack))
    }

    /// Tells the device which frames will be read soon.
    pub(crate) fn will_need(&self, frames: &[FramePart]) {
        let mut frames: Vec<_> = frames.iter().map(|f| (f.pack, f.at, f.frame_len)).collect();
        frames.sort_unstable();
        for frames in frames.chunk_by(|a, b| a.0 == b.0 && a.1 + u64::from(a.2) == b.1) {
            let (Some(&(pack, start, _)), Some(&(_, at, len))) = (frames.first(), frames.last())
            else {
                continue;
            };
            // The reader gets the error.
            if let Ok(file) = self.files.get(pack) {
                file.will_need(start, at + u64::from(len) - start);
            }
        }
    }

    /// Opens a pack for scanning.
    pub(crate) fn open_pack(&self, pack: PackId) -> Result<Arc<dyn BackingFile>, Error> {
        self.files.get(pack).map_err(failed("open", pack))
    }

    /// Length of a pack that no longer grows.
    pub(crate) fn len(&self, pack: PackId) -> Result<u64, Error> {
        if let Some(&len) = self.lengths.lock().get(&pack) {
            return Ok(len);
        }
        let len = self
            .open_pack(pack)?
            .len()
            .map_err(Error::io("query", pack.path()))?;
        self.lengths.lock().insert(pack, len);
        Ok(len)
    }

    /// Whether bytes of a pack have died since the last call.
    pub(crate) fn take_shrunk(&self) -> bool {
        self.live.take_shrunk()
    }

    /// Bytes that have died in packs in this session.
    pub(crate) fn died(&self) -> u64 {
        self.live.died()
    }

    /// Follows a commit that changed live bytes.
    pub(crate) fn account(&self, changes: &BTreeMap<PackId, i64>) {
        self.live.account(changes);
    }

    /// Takes over what the index counts where other sessions count, too. Only packs of this
    /// session and of those that have `ended` are this session's business.
    pub(crate) fn set_live(&self, counted: &[PackBytes], ended: impl Fn(PackId) -> bool) {
        let ours = |pack: PackId| pack.session() == self.writer.session || ended(pack);
        let counted: Vec<_> = counted.iter().filter(|on| ours(on.pack)).copied().collect();
        self.live.set(&counted, ours);
    }

    /// Live bytes of every known pack.
    pub(crate) fn live(&self) -> BTreeMap<PackId, u64> {
        self.live.all()
    }

    /// Packs without live bytes, with no append in progress and no frame waiting for a commit.
    pub(crate) fn dead(&self) -> Vec<PackId> {
        self.live.dead(|pack| self.is_quiet(pack))
    }

    /// Whether a pack has no live bytes; its file may be gone.
    pub(crate) fn is_dead(&self, pack: PackId) -> bool {
        self.live.is_dead(pack)
    }

    /// Deletes the file of a dead pack. Readers that have it open are not affected.
    pub(crate) fn delete(&self, pack: PackId) -> Result<(), Error> {
        let path = pack.path();
        match self.backing.remove_file(&path) {
            Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("delete", path)(e)),
            _ => {}
        }
        let session = pack.session();
        if session != self.writer.session {
            // Its session has ended: the directory goes with the last pack.
            let _ = self.backing.remove_dir(&PackId::session_dir(session));
        }
        // Not before: a reader that looks for frames that have moved could open it again.
        self.files.remove(pack);
        self.live.forget(pack);
        self.lengths.lock().remove(&pack);
        Ok(())
    }

    /// Removes the directory of this session if it has no pack. Nothing is appended afterwards.
    pub(crate) fn leave(&self) {
        let dir = PackId::session_dir(self.writer.session);
        remove_empty_sessions(&*self.backing, &[dir]);
    }

    /// Registers a pack without live bytes, to be deleted like others.
    pub(crate) fn condemn(&self, pack: PackId) {
        self.live.register(pack);
    }
}

/// An error of the file of a pack; a file that does not exist is [`Error::PackGone`].
pub(crate) fn failed(action: &'static str, pack: PackId) -> impl FnOnce(io::Error) -> Error {
    move |source| match source.kind() {
        ErrorKind::NotFound => Error::PackGone { pack },
        _ => Error::io(action, pack.path())(source),
    }
}

/// The failures of a sync.
#[derive(Debug, Default)]
pub(crate) struct SyncRound {
    /// The errno of each pack for which it failed.
    failed: BTreeMap<PackId, i32>,
    abandoned: Vec<PackId>,
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
            return Err(Error::io("sync", pack.path())(source));
        }
        Ok(())
    }
}

/// Size at which packs are sealed on a device of `capacity` bytes.
pub(crate) fn seal_bytes(capacity: u64) -> u64 {
    (capacity / SEAL_SHARE).clamp(SEAL_BYTES_MIN, SEAL_BYTES)
}

/// Pack files in a store, with their lengths.
pub(crate) fn list(backing: &dyn Backing) -> Result<Vec<PackBytes>, Error> {
    Ok(list_sessions(backing)?.packs)
}

/// Removes the directories of sessions that have no pack.
pub(crate) fn remove_empty_sessions(backing: &dyn Backing, empty: &[PathBuf]) {
    for dir in empty {
        // A directory that stays does no harm.
        let _ = backing.remove_dir(dir);
    }
}

/// The packs of the sessions of a store.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    /// Packs with their lengths, in order.
    pub(crate) packs: Vec<PackBytes>,
    /// Directories without any file.
    pub(crate) empty: Vec<PathBuf>,
}

/// Lists the directories of all sessions.
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
                packs.push(PackBytes {
                    pack: id,
                    bytes: file.len,
                });
            }
        }
        if files.is_empty() {
            empty.push(dir);
        }
    }
    packs.sort_unstable();
    Ok(Sessions { packs, empty })
}

#[cfg(test)]
mod tests {
    use shale_backing::Access;
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
        let packs = Packs::open(
            backing,
            [1; 16],
            2,
            BTreeMap::from([(pack, 0)]),
            Arc::default(),
        )
        .unwrap();
        let packs = Arc::new(packs);
        let late = Arc::clone(&packs);
        disk.rule(move |step, _, _| {
            if step == Step::Remove {
                late.open_pack(pack).unwrap();
            }
            None
        });
        packs.delete(pack).unwrap();
        disk.heal();
        assert!(!packs.files.has(pack));
    }
}
