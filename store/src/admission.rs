//! Whether the device can take what is about to be written.
//!
//! As long as there is plenty of room nothing waits. When room is short, what is on its way is
//! stored first, so that its compressed size decides, then garbage is collected; only then is a
//! write refused.

use std::time::Duration;

use crate::collector::WORTH;
use crate::file::File;
use crate::store::Inner;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread;
use crate::{Error, Store};

/// What a file that is written takes beside its bytes: heads of frames, records of the index.
const FILE_COST: u64 = 3 << 10;
/// How long the kernel is given to let go of a deleted file.
const FORGETTING: u32 = 10;
const FORGETTING_STEP: Duration = Duration::from_millis(10);

/// No pass has been made for want of room; what earlier sessions have left may be worth one.
const NEVER: u64 = u64::MAX;

/// A write that a cache above is about to accept.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Who writes: one call at a time.
    pub thread: u32,
    /// How much; 0 if that is not known.
    pub bytes: u64,
}

#[derive(Debug)]
struct Promise {
    ino: u64,
    thread: u32,
    left: u64,
}

/// One writer at a time finds out whether there is room.
#[derive(Debug)]
pub(crate) struct Admission {
    turn: Mutex<()>,
    asking: Mutex<()>,
    /// What a cache above was allowed to accept and has not sent yet.
    promises: Mutex<Vec<Promise>>,
    /// How much had died in packs when they were collected last for want of room.
    collected: AtomicU64,
}

impl Admission {
    fn promise(&self, file: &File, asked: Asked) {
        if asked.bytes > 0 {
            self.promises.lock().push(Promise {
                ino: file.ino,
                thread: asked.thread,
                left: asked.bytes,
            });
        }
    }

    fn forget(&self, is_over: impl Fn(&Promise) -> bool) {
        self.promises.lock().retain(|promise| !is_over(promise));
    }

    /// Bytes of a file have come.
    fn arrived(&self, ino: u64, mut bytes: u64) {
        self.promises.lock().retain_mut(|promise| {
            if promise.ino == ino {
                let came = bytes.min(promise.left);
                promise.left -= came;
                bytes -= came;
            }
            promise.left > 0
        });
    }

    fn promised(&self) -> u64 {
        self.promises
            .lock()
            .iter()
            .map(|promise| promise.left)
            .sum()
    }
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            turn: Mutex::new(()),
            asking: Mutex::new(()),
            promises: Mutex::default(),
            collected: AtomicU64::new(NEVER),
        }
    }
}

impl Store {
    /// Tells how many bytes a cache above may have accepted that it has not sent yet. From now on
    /// as much of the device is held for them.
    pub fn set_cached_above(&self, bytes: u64) {
        let inner = &*self.inner;
        if inner.check_writable().is_ok() {
            inner.space.set_above(bytes);
            let _ = inner.cover(0);
        }
    }

    /// Has `changed` called whenever room on the device becomes short or is there again. It must
    /// not wait.
    pub fn on_shortage(&self, changed: Box<dyn Fn() + Send + Sync>) {
        self.inner.space.listen(changed);
    }

    /// Number of the present shortage of room.
    #[must_use]
    pub fn shortage(&self) -> u64 {
        self.inner.space.shortage()
    }

    /// All writers know that they have to ask ([`Store::covers_cached`]) in this shortage, and what
    /// a cache above had accepted before has been written back.
    pub fn set_writers_told(&self, shortage: u64) {
        self.inner.space.set_told(shortage);
    }

    /// Whether room is short, so that a cache above has to ask ([`Store::admit_cached`]) before
    /// it accepts more.
    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.inner.is_removed() || self.inner.space.is_short()
    }

    /// Somebody asks before a cache above accepts a write to a file. Whether that, and all that
    /// the cache may hold, is covered, without waiting.
    #[must_use]
    pub fn covers_cached(&self, file: &File, asked: Asked) -> bool {
        let inner = &*self.inner;
        file.asked.store(true, Ordering::SeqCst);
        // What the thread had asked for before has been accepted by now, or refused.
        inner
            .admission
            .forget(|promise| promise.thread == asked.thread);
        !inner.is_removed() && inner.cover_and_promise(file, asked)
    }

    /// Returns when what was asked for can be stored.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`, or why nothing can be stored.
    pub fn admit_cached(&self, file: &File, asked: Asked) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.check()?;
        inner.check_there()?;
        let _turn = inner.admission.turn.lock();
        loop {
            inner.make_room(asked.bytes)?;
            // Others ask meanwhile, and may have been faster.
            if inner.cover_and_promise(file, asked) {
                return Ok(());
            }
        }
    }

    /// Nobody writes to a file any more: what was asked for has been written, or never will be.
    pub fn forget_asked(&self, ino: u64) {
        self.inner.admission.forget(|promise| promise.ino == ino);
    }

    /// Whether a small write that was not asked for would still be covered.
    #[must_use]
    pub fn covers_a_few(&self) -> bool {
        let inner = &*self.inner;
        !inner.is_removed() && inner.space.covers_half_above(inner.accepted())
    }

    /// Returns when there is room for another name or attribute.
    ///
    /// # Errors
    /// `ENOSPC`: what is left is needed to commit what was accepted, and to delete.
    pub fn admit_names(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.check_writable()?;
        if inner.space.has_margin(&*inner.backing) {
            return Ok(());
        }
        let _turn = inner.admission.turn.lock();
        while !inner.space.has_margin(&*inner.backing) {
            let freed = inner.space.release_surplus(inner.accepted())
                || inner.store_accepted()
                || inner.collect_for_room(0)?;
            if !freed {
                return Err(Error::Refused(libc::ENOSPC));
            }
        }
        Ok(())
    }
}

impl Inner {
    /// What has been accepted may take so much, if nothing compresses, with what the index needs.
    fn accepted(&self) -> u64 {
        let files = self.dirty.lock().len() as u64;
        self.budget.used() + self.admission.promised() + files * FILE_COST
    }

    /// Covers what was asked for and counts it as accepted; one after the other, or several would
    /// be promised the same room.
    fn cover_and_promise(&self, file: &File, asked: Asked) -> bool {
        let _alone = self.admission.asking.lock();
        let covered = self.cover(asked.bytes).is_ok();
        if covered {
            self.admission.promise(file, asked);
        }
        covered
    }

    /// Covers what has been accepted and `more` bytes.
    pub(crate) fn cover(&self, more: u64) -> Result<(), Error> {
        self.space.cover(&*self.backing, self.accepted() + more)
    }

    /// Takes memory for `len` bytes that can be stored.
    pub(crate) fn admit(&self, len: u64) -> Result<(), Error> {
        if !self.space.is_short() && self.cover(len).is_ok() {
            return self.take_memory(len);
        }
        let _turn = self.admission.turn.lock();
        self.make_room(len)?;
        self.take_memory(len)
    }

    /// Lets in what a cache above has accepted. Only what nobody had asked for has to wait for
    /// room, as pages of mappings do.
    pub(crate) fn admit_accepted(&self, file: &File, len: u64) -> Result<(), Error> {
        self.admission.arrived(file.ino, len);
        if self.cover(len).is_ok()
            || file.asked.load(Ordering::SeqCst)
            || self.space.is_promised(len)
        {
            return Ok(());
        }
        let _turn = self.admission.turn.lock();
        self.make_room(len)
    }

    /// Waits until `len` more bytes are covered. Who had to wait finds room for some more, or the
    /// last bytes of a device would be given away one small write and one sync at a time.
    fn make_room(&self, len: u64) -> Result<(), Error> {
        let mut wanted = len;
        loop {
            let Err(refused) = self.cover(wanted) else {
                return Ok(());
            };
            wanted = len + self.space.slack();
            if !self.store_accepted() && !self.collect_for_room(wanted)? {
                return Err(refused);
            }
            self.check()?;
            self.check_there()?;
        }
    }

    /// Waits for some of what was accepted to be stored; returns whether it was.
    fn store_accepted(&self) -> bool {
        let used = self.budget.used();
        used > 0 && self.budget.wait_below(used, || self.committer.press())
    }

    /// Makes way for `bytes` that were accepted and did not fit; returns whether to try again.
    pub(crate) fn give_way(&self, bytes: u64) -> Result<bool, Error> {
        Ok(self.space.release(bytes) || self.collect_for_room(bytes)?)
    }

    /// Waits a moment for orphans that are not in use: the kernel may be about to let go of files
    /// that were just deleted.
    fn await_orphans(&self) -> Result<bool, Error> {
        for _ in 0..FORGETTING {
            if !self.released.lock().is_empty() {
                return Ok(true);
            }
            let idle = |ino: &u64| self.file_in_use(*ino).is_none();
            if !self.namespace.orphans()?.iter().any(idle) {
                return Ok(false);
            }
            thread::sleep(FORGETTING_STEP);
        }
        Ok(false)
    }

    /// Frees what has died in packs, until `bytes` more are covered; returns whether anything may have been freed.
    fn collect_for_room(&self, bytes: u64) -> Result<bool, Error> {
        let packs = &self.frames.packs;
        let purging = self.await_orphans()?;
        if purging || !packs.dead().is_empty() {
            let deleted = packs.counters.packs_deleted.get();
            let died = packs.died();
            self.committer.run()?;
            if packs.counters.packs_deleted.get() > deleted || packs.died() > died {
                return Ok(true);
            }
        }
        let collected = self.admission.collected.load(Ordering::SeqCst);
        if collected != NEVER && packs.died() < collected + WORTH {
            return Ok(false);
        }
        let before = self.space.usable(&*self.backing);
        self.collector.ask_for_room(bytes);
        // Copying makes what was copied die; that is not new.
        self.admission
            .collected
            .store(packs.died(), Ordering::SeqCst);
        Ok(self.space.usable(&*self.backing) > before + WORTH)
    }
}
