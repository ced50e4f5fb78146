//! Admission: whether the device has room for a write.
//!
//! As long as there is plenty of room nothing waits. When room is short, pending data is stored
//! first, so that its compressed size decides, then gc makes room; only then is a write refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_index::Ino;

use super::control::CommitControl;
use shale_index::Orphan;

use crate::Error;
use crate::file::{File, FileTable};
use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicU64, Ordering};
use crate::primitives::thread;
use crate::volume::Volume;

/// A rewrite of packs that frees less than this is not worth it.
pub(crate) const FREED_MIN: u64 = 64 << 10;

/// Space that a written file takes in addition to its bytes: frame headers, records of the index.
const FILE_COST: u64 = 3 << 10;
/// How often, and after which pauses, to ask whether the kernel has forgotten a deleted file.
const FORGETTING: u32 = 10;
const FORGETTING_STEP: Duration = Duration::from_millis(10);

/// No gc pass has run for lack of room; the garbage of earlier sessions may be worth one.
const NEVER: u64 = u64::MAX;

/// Makes room on the device. Implemented by gc, which is above this room.
pub(crate) trait Reclaim: Send + Sync + std::fmt::Debug {
    /// Frees garbage until `bytes` more are covered or nothing is left to free.
    fn make_room(&self, bytes: u64);
}

/// A write that a cache above is about to accept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// The writing thread, which makes one call at a time.
    pub thread: u32,
    /// Its length; 0 if unknown.
    pub bytes: u64,
}

#[derive(Debug)]
struct Promise {
    ino: Ino,
    thread: u32,
    left: u64,
}

/// One writer at a time finds out whether there is room.
#[derive(Debug)]
pub(crate) struct Admission {
    volume: Arc<Volume>,
    files: Arc<FileTable>,
    commits: Arc<CommitControl>,
    gc: Arc<dyn Reclaim>,
    turn: Mutex<()>,
    asking: Mutex<()>,
    promises: Promises,
    /// Garbage in packs when gc last ran for lack of room.
    collected: AtomicU64,
}

/// Promises: bytes that a cache above was allowed to accept and has not sent yet.
#[derive(Debug, Default)]
struct Promises(Mutex<Vec<Promise>>);

impl Promises {
    fn add(&self, file: &File, asked: Asked) {
        if asked.bytes > 0 {
            self.0.lock().push(Promise {
                ino: file.ino,
                thread: asked.thread,
                left: asked.bytes,
            });
        }
    }

    fn forget(&self, is_over: impl Fn(&Promise) -> bool) {
        self.0.lock().retain(|promise| !is_over(promise));
    }

    /// Bytes of a file have arrived.
    fn arrived(&self, ino: Ino, mut bytes: u64) {
        self.0.lock().retain_mut(|promise| {
            if promise.ino == ino {
                let came = bytes.min(promise.left);
                promise.left -= came;
                bytes -= came;
            }
            promise.left > 0
        });
    }

    fn bytes(&self) -> u64 {
        self.0.lock().iter().map(|promise| promise.left).sum()
    }
}

/// Writes that a cache above accepts before it sends them.
impl Admission {
    /// Sets how many bytes a cache above may have accepted that it has not sent yet. From now on
    /// that much of the device is held for them.
    pub(crate) fn set_cached_above(&self, bytes: u64) {
        if self.volume.check_writable().is_ok() {
            self.volume.space.set_above(bytes);
            let _ = self.cover(0);
        }
    }

    /// Whether room is short, so that a cache above has to ask ([`Admission::admit_cached`])
    /// before it accepts more.
    pub(crate) fn is_short_of_room(&self) -> bool {
        self.volume.is_removed() || self.volume.space.is_short()
    }

    /// A writer asks before a cache above accepts its write to a file. Returns, without waiting,
    /// whether the write and all that the cache may hold are covered.
    pub(crate) fn covers_cached(&self, file: &File, asked: Asked) -> bool {
        file.note_asked();
        // The thread's earlier request has been accepted by now, or refused.
        self.promises
            .forget(|promise| promise.thread == asked.thread);
        !self.volume.is_removed() && self.cover_and_promise(file, asked)
    }

    /// Returns when the requested write can be stored.
    pub(crate) fn admit_cached(&self, file: &File, asked: Asked) -> Result<(), Error> {
        self.volume.check()?;
        self.volume.check_there()?;
        let _turn = self.turn.lock();
        loop {
            self.make_room(asked.bytes)?;
            // Other writers ask meanwhile, and may have been faster.
            if self.cover_and_promise(file, asked) {
                return Ok(());
            }
        }
    }

    /// No program writes to a file any more: the promised data has been written, or never will be.
    pub(crate) fn forget_asked(&self, ino: Ino) {
        self.promises.forget(|promise| promise.ino == ino);
    }

    /// Whether a small write without a promise would still be covered.
    pub(crate) fn covers_a_few(&self) -> bool {
        !self.volume.is_removed() && self.volume.space.covers_half_above(self.accepted())
    }

    /// Covers a requested write and counts it as accepted; one at a time, or several writers would
    /// be promised the same room.
    fn cover_and_promise(&self, file: &File, asked: Asked) -> bool {
        let _alone = self.asking.lock();
        let covered = self.cover(asked.bytes).is_ok();
        if covered {
            self.promises.add(file, asked);
        }
        covered
    }

    /// Admits data that a cache above has accepted. Only bytes of files for which no writer has
    /// asked have to wait for room, such as pages of mappings.
    pub(super) fn admit_accepted(&self, file: &File, len: u64) -> Result<(), Error> {
        self.promises.arrived(file.ino, len);
        if self.cover(len).is_ok() || file.was_asked_for() || self.volume.space.is_promised(len) {
            return Ok(());
        }
        let _turn = self.turn.lock();
        self.make_room(len)
    }
}

impl Admission {
    pub(crate) fn new(
        volume: Arc<Volume>,
        files: Arc<FileTable>,
        commits: Arc<CommitControl>,
        gc: Arc<dyn Reclaim>,
    ) -> Self {
        Self {
            volume,
            files,
            commits,
            gc,
            turn: Mutex::new(()),
            asking: Mutex::new(()),
            promises: Promises::default(),
            collected: AtomicU64::new(NEVER),
        }
    }

    /// Returns when there is room for another name or attribute.
    pub(crate) fn admit_names(&self) -> Result<(), Error> {
        let volume = &*self.volume;
        volume.check_writable()?;
        if volume.space.has_margin(&*volume.backing) {
            return Ok(());
        }
        let _turn = self.turn.lock();
        while !volume.space.has_margin(&*volume.backing) {
            let freed = volume.space.release_surplus(self.accepted())
                || self.store_accepted()
                || self.collect_for_room(0)?;
            if !freed {
                return Err(Error::NoSpace);
            }
        }
        Ok(())
    }

    /// Takes memory for `len` bytes that can be stored.
    pub(super) fn admit(&self, len: u64) -> Result<(), Error> {
        if !self.volume.space.is_short() && self.cover(len).is_ok() {
            return self.take_memory(len);
        }
        let _turn = self.turn.lock();
        self.make_room(len)?;
        self.take_memory(len)
    }

    /// Takes memory, waiting for other data to be written.
    pub(super) fn take_memory(&self, bytes: u64) -> Result<(), Error> {
        let mut waiting = None;
        let taken = self.volume.limiter.take(bytes, || {
            waiting.get_or_insert_with(Instant::now);
            self.commits.press();
        });
        if let Some(since) = waiting {
            let counters = &self.volume.stats;
            counters.waits.one();
            counters.wait_nanos.time(since.elapsed());
        }
        taken
    }

    /// Bytes that accepted data may take if nothing compresses, including the index.
    fn accepted(&self) -> u64 {
        let files = self.files.dirty_len();
        self.volume.limiter.used() + self.promises.bytes() + files * FILE_COST
    }

    /// Covers accepted data and `more` bytes.
    pub(crate) fn cover(&self, more: u64) -> Result<(), Error> {
        let volume = &*self.volume;
        volume.space.cover(&*volume.backing, self.accepted() + more)
    }

    /// Waits until `len` more bytes are covered. A writer that had to wait gets some more room, or
    /// the last bytes of a device would be given away one small write and one sync at a time.
    fn make_room(&self, len: u64) -> Result<(), Error> {
        let mut wanted = len;
        loop {
            let Err(refused) = self.cover(wanted) else {
                return Ok(());
            };
            wanted = len + self.volume.space.slack();
            if !self.store_accepted() && !self.collect_for_room(wanted)? {
                return Err(refused);
            }
            self.volume.check()?;
            self.volume.check_there()?;
        }
    }

    /// Waits until some accepted data is stored; returns whether it was.
    fn store_accepted(&self) -> bool {
        let limiter = &self.volume.limiter;
        let used = limiter.used();
        used > 0 && limiter.wait_below(used, || self.commits.press())
    }

    /// Makes room for `bytes` that were accepted and did not fit; returns whether to retry.
    pub(super) fn give_way(&self, bytes: u64) -> Result<bool, Error> {
        Ok(self.volume.space.release(bytes) || self.collect_for_room(bytes)?)
    }

    /// Waits a moment for orphans that are not in use: the kernel may be about to forget files that
    /// were just deleted.
    fn await_orphans(&self) -> Result<bool, Error> {
        for _ in 0..FORGETTING {
            if self.files.has_released() {
                return Ok(true);
            }
            let (orphans, _) = self.volume.namespace.orphans()?;
            let idle = |orphan: &Orphan| self.files.in_use(orphan.ino).is_none();
            if !orphans.iter().any(idle) {
                return Ok(false);
            }
            thread::sleep(FORGETTING_STEP);
        }
        Ok(false)
    }

    /// Frees garbage in packs until `bytes` more are covered; returns whether anything may have
    /// been freed.
    fn collect_for_room(&self, bytes: u64) -> Result<bool, Error> {
        let volume = &*self.volume;
        let packs = &volume.frames.packs;
        let purging = self.await_orphans()?;
        if purging || !packs.dead().is_empty() {
            let deleted = volume.stats.packs_deleted.get();
            let died = packs.died();
            self.commits.run()?;
            if volume.stats.packs_deleted.get() > deleted || packs.died() > died {
                return Ok(true);
            }
        }
        let collected = self.collected.load(Ordering::SeqCst);
        if collected != NEVER && packs.died() < collected + FREED_MIN {
            return Ok(false);
        }
        let before = volume.space.usable(&*volume.backing);
        self.gc.make_room(bytes);
        // Copying turns the originals into garbage; that is not new.
        self.collected.store(packs.died(), Ordering::SeqCst);
        Ok(volume.space.usable(&*volume.backing) > before + FREED_MIN)
    }
}
