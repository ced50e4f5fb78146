//! Whether the device can take what is about to be written.
//!
//! As long as there is plenty of room nothing waits. When room is short, what is on its way is
//! stored first, so that its compressed size decides, then garbage is collected; only then is a
//! write refused.

use std::time::Duration;

use crate::janitor::LIVE_PERCENT_FULL;
use crate::store::Inner;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::thread;
use crate::{Error, Store};

/// How long the kernel is given to let go of a deleted file.
const FORGETTING: u32 = 10;
const FORGETTING_STEP: Duration = Duration::from_millis(10);

/// One writer at a time finds out whether there is room.
#[derive(Debug)]
pub(crate) struct Admission {
    turn: Mutex<()>,
    /// How much had died in packs when they were collected last for want of room.
    collected: AtomicU64,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            turn: Mutex::new(()),
            // What earlier sessions have left may be worth a pass.
            collected: AtomicU64::new(u64::MAX),
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

    /// Whether room is short, so that a cache above has to ask ([`Store::admit_cached`]) before
    /// it accepts more.
    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.inner.is_removed() || self.inner.space.is_short()
    }

    /// Whether all that a cache above may accept is covered, without waiting.
    #[must_use]
    pub fn covers_cached(&self) -> bool {
        !self.inner.is_removed() && self.inner.cover(0).is_ok()
    }

    /// Returns when all that a cache above may accept can be stored.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`, or why nothing can be stored.
    pub fn admit_cached(&self) -> Result<(), Error> {
        let inner = &*self.inner;
        inner.check()?;
        inner.check_there()?;
        let _turn = inner.admission.turn.lock();
        inner.make_room(0)
    }

    /// Whether a small write that was not asked for would still be covered.
    #[must_use]
    pub fn covers_a_few(&self) -> bool {
        let inner = &*self.inner;
        !inner.is_removed() && inner.space.covers_half_above(inner.budget.used())
    }
}

impl Inner {
    /// Covers what has been accepted and `more` bytes.
    pub(crate) fn cover(&self, more: u64) -> Result<(), Error> {
        self.space.cover(&*self.backing, self.budget.used() + more)
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

    /// Waits until `len` more bytes are covered.
    fn make_room(&self, len: u64) -> Result<(), Error> {
        loop {
            match self.cover(len) {
                Ok(()) => return Ok(()),
                Err(refused) => {
                    let used = self.budget.used();
                    let stored =
                        used > 0 && self.budget.wait_below(used, || self.committer.press());
                    if !stored && !self.collect_for_room()? {
                        return Err(refused);
                    }
                }
            }
            self.check()?;
            self.check_there()?;
        }
    }

    /// Makes way for `bytes` that were accepted and did not fit; returns whether to try again.
    pub(crate) fn give_way(&self, bytes: u64) -> Result<bool, Error> {
        Ok(self.space.release(bytes) || self.collect_for_room()?)
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

    /// Frees what has died in packs; returns whether anything may have been freed.
    fn collect_for_room(&self) -> Result<bool, Error> {
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
        let died = packs.died();
        if self.admission.collected.swap(died, Ordering::SeqCst) == died {
            return Ok(false);
        }
        self.collector.ask_and_wait(LIVE_PERCENT_FULL);
        Ok(true)
    }
}
