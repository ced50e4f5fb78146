//! Free space on the device: what is accepted must fit.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use shale_backing::Backing;

use super::reserve::Reserve;
use crate::Error;
use crate::primitives::Mutex;

/// How long an answer of the device is good for.
const FRESH: Duration = Duration::from_millis(200);
/// Space that is left to the index when the device is full, also by garbage collection.
const MARGIN_MIN: u64 = 4 << 20;
const MARGIN_MAX: u64 = 64 << 20;

/// What the index is left on a device of `total` bytes.
pub(crate) fn margin(total: u64) -> u64 {
    (total / 64).clamp(MARGIN_MIN, MARGIN_MAX)
}

/// How often a device that counts late is made to count: for a write that seems not to fit, and to
/// know whether the device is nearly full.
const COUNT: Duration = Duration::from_secs(1);
const COUNT_LOW: Duration = Duration::from_secs(5);

/// Room for what calls may write that have begun before room became short: Linux limits each to
/// 2 GiB.
const CALLS: u64 = 4 << 30;

/// Unit in which most file systems give space away.
const BLOCK: u64 = 4096;

/// Space is held in steps of a share of the device, within bounds.
const STEP_SHARE: u64 = 64;
const STEP_MIN: u64 = 1 << 20;
const STEP_MAX: u64 = 64 << 20;

/// Refuses writes that would not fit, so that `write` can say so and not only `fsync`.
///
/// Whatever has been accepted, in this process and in a cache above it, is covered by space that
/// is held for it ([`Reserve`]), or where the device cannot hold any, was free when it was
/// accepted.
#[derive(Debug)]
pub(crate) struct SpaceGuard {
    held: Reserve,
    /// Bytes that a cache above may have accepted and not sent yet.
    above: AtomicU64,
    /// Room is short: what is accepted from now on has to be asked for first.
    short: AtomicBool,
    /// How often room has become short.
    shortages: AtomicU64,
    /// Bytes that came since then from files without a promise of room.
    unasked: AtomicU64,
    /// The last shortage in which all writers have been told to ask.
    told: AtomicU64,
    listener: OnceLock<Listener>,
    /// The device would not hold more when it was asked last because of a quota.
    over_quota: AtomicBool,
    step: u64,
    available: AtomicI64,
    asked: Mutex<Asked>,
    /// Bytes written since the device counted, where it does so late.
    uncounted: AtomicI64,
    late: bool,
    margin: u64,
    /// What programs leave: the margin, and room for the copy of a pack. A pack can be deleted
    /// only when everything alive in it has been copied.
    reserve: u64,
}

/// Called when room becomes short, or is there again.
struct Listener(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

/// When the device was asked, and what it said last when it had counted everything.
#[derive(Debug, Default)]
struct Asked {
    at: Option<Instant>,
    counted: Option<(Instant, i64)>,
}

impl SpaceGuard {
    /// For packs that are sealed at `seal_bytes`, on a device of `total` bytes.
    pub(crate) fn new(backing: &Arc<dyn Backing>, total: u64, seal_bytes: u64) -> Self {
        let margin = margin(total);
        let late = backing.space_lags();
        Self {
            held: Reserve::new(Arc::clone(backing)),
            above: AtomicU64::new(0),
            short: AtomicBool::new(false),
            shortages: AtomicU64::new(0),
            unasked: AtomicU64::new(0),
            told: AtomicU64::new(0),
            listener: OnceLock::new(),
            over_quota: AtomicBool::new(false),
            step: (total / STEP_SHARE).clamp(STEP_MIN, STEP_MAX),
            available: AtomicI64::new(0),
            asked: Mutex::default(),
            uncounted: AtomicI64::new(0),
            late,
            margin,
            reserve: margin + seal_bytes,
        }
    }

    /// Tells how many bytes a cache above may accept before it sends them.
    pub(crate) fn set_above(&self, bytes: u64) {
        self.above.store(bytes, Ordering::SeqCst);
    }

    /// Whether room is short: a cache above must ask before it accepts more.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::SeqCst)
    }

    /// Room for less than this is not given away.
    pub(crate) fn slack(&self) -> u64 {
        self.step / 4
    }

    /// Bytes of the device that are held for what has been accepted.
    pub(crate) fn held(&self) -> u64 {
        self.held.held()
    }

    /// Whether so much of what may be in the cache above is covered, beside `accepted` bytes, that
    /// a few more do no harm.
    pub(crate) fn covers_half_above(&self, accepted: u64) -> bool {
        self.held.is_able() && self.held() >= accepted + self.above.load(Ordering::SeqCst) / 2
    }

    /// Makes sure that `accepted` bytes, and all that the cache above may hold, can be stored
    /// even if nothing of them compresses.
    pub(crate) fn cover(&self, backing: &dyn Backing, accepted: u64) -> Result<(), Error> {
        let above = self.above.load(Ordering::SeqCst);
        let need = accepted + above;
        let ease = self.ease(accepted);
        let (eased, covered) = if self.hold(backing, need, ease) {
            (self.held() >= ease, self.held() >= need)
        } else {
            let eased = self.fits(backing, ease, self.reserve);
            (eased, eased || self.fits(backing, need, self.reserve))
        };
        // A call that has begun is not asked about again, however much it writes.
        let roomy = eased && self.look(backing, FRESH) >= (self.reserve + CALLS) as i64;
        self.set_short(!roomy);
        if covered {
            Ok(())
        } else {
            Err(if self.over_quota.load(Ordering::SeqCst) {
                Error::QuotaExceeded
            } else {
                Error::NoSpace
            })
        }
    }

    /// What is held while no writer has to ask. Until all are told to ask, the cache above may send
    /// what it holds and fill up again; and pages of mappings may take as much.
    fn ease(&self, accepted: u64) -> u64 {
        accepted + 4 * self.above.load(Ordering::SeqCst) + self.step
    }

    fn set_short(&self, short: bool) {
        if self.short.swap(short, Ordering::SeqCst) == short {
            return;
        }
        if short {
            self.unasked.store(0, Ordering::SeqCst);
            self.shortages.fetch_add(1, Ordering::SeqCst);
        }
        self.tell();
    }

    /// Makes the listener look again.
    pub(crate) fn tell(&self) {
        if let Some(Listener(changed)) = self.listener.get() {
            changed();
        }
    }

    /// Number of the present shortage.
    pub(crate) fn shortage(&self) -> u64 {
        self.shortages.load(Ordering::SeqCst)
    }

    /// From now on every writer asks before the cache above accepts more, and what it had accepted
    /// before has come.
    pub(crate) fn set_told(&self, shortage: u64) {
        self.told.store(shortage, Ordering::SeqCst);
    }

    /// Whether `bytes` of a file for which no writer has asked may be among those that the cache
    /// above had accepted before its writers were told to ask. Others come from mappings, and must
    /// not take what is held for those who asked.
    pub(crate) fn is_promised(&self, bytes: u64) -> bool {
        let most = 3 * self.above.load(Ordering::SeqCst);
        self.told.load(Ordering::SeqCst) != self.shortage()
            && self.unasked.fetch_add(bytes, Ordering::SeqCst) + bytes <= most
    }

    /// Has `changed` called whenever room becomes short or is there again. Must not wait.
    pub(crate) fn listen(&self, changed: Box<dyn Fn() + Send + Sync>) {
        let _ = self.listener.set(Listener(changed));
    }

    /// Holds `ease` bytes, or `need` bytes where there are not as many. Returns false where the
    /// device cannot hold any.
    fn hold(&self, backing: &dyn Backing, need: u64, ease: u64) -> bool {
        if !self.held.is_able() {
            return false;
        }
        for wanted in [ease.next_multiple_of(self.step), need] {
            let held = self.held();
            if held >= ease || (held >= need && wanted == need) {
                break;
            }
            let more = wanted.saturating_sub(held);
            if !self.fits(backing, more, self.reserve) {
                self.over_quota.store(false, Ordering::SeqCst);
                continue;
            }
            match self.held.grow(wanted) {
                Ok(true) => self.spend(more),
                Ok(false) => return false,
                Err(e) => match e.raw_os_error() {
                    Some(errno @ (libc::ENOSPC | libc::EDQUOT)) => {
                        self.over_quota
                            .store(errno == libc::EDQUOT, Ordering::SeqCst);
                    }
                    // Storing the data meets and reports the error.
                    _ => return false,
                },
            }
        }
        true
    }

    /// Whether the index has the room that is left to it.
    pub(crate) fn has_margin(&self, backing: &dyn Backing) -> bool {
        self.fits(backing, 0, self.margin)
    }

    /// Gives the index the room that is left to it, out of what is held: committing what was
    /// accepted takes some.
    pub(crate) fn keep_margin(&self, backing: &dyn Backing) {
        let margin = self.margin as i64;
        if self.look(backing, FRESH) < margin {
            let missing = margin - self.look(backing, Duration::ZERO);
            self.release(u64::try_from(missing).unwrap_or(0));
        }
    }

    /// Makes way for `bytes` that were accepted and are about to be stored.
    ///
    /// # Errors
    /// `ENOSPC` where they would take what is left to the index: more was accepted than is
    /// covered, which only a mapping can do.
    pub(crate) fn make_way(&self, backing: &dyn Backing, bytes: u64) -> Result<(), Error> {
        if self.fits(backing, bytes, self.reserve) || self.release(bytes) {
            return Ok(());
        }
        self.admit_above(backing, bytes, self.margin)
    }

    /// What the store can use of the device, as it says now.
    pub(crate) fn usable(&self, backing: &dyn Backing) -> u64 {
        self.count(backing, Duration::ZERO);
        let available = self.look(backing, Duration::ZERO);
        u64::try_from(available).unwrap_or(0) + self.held()
    }

    /// Gives up so much of what is held; returns whether there was any.
    pub(crate) fn release(&self, bytes: u64) -> bool {
        if bytes == 0 {
            return false;
        }
        let held = self.held();
        let blocks = bytes.next_multiple_of(BLOCK) + BLOCK;
        let freed = self.held.shrink(held.saturating_sub(blocks));
        self.available.fetch_add(freed as i64, Ordering::Relaxed);
        freed > 0
    }

    /// Gives up what is held beyond what `accepted` bytes need at least; returns whether there was
    /// anything.
    pub(crate) fn release_surplus(&self, accepted: u64) -> bool {
        let need = accepted + self.above.load(Ordering::SeqCst);
        let freed = self.held.shrink(need);
        self.available.fetch_add(freed as i64, Ordering::Relaxed);
        freed > 0
    }

    /// Gives up what is held beyond what `accepted` bytes need with ease.
    pub(crate) fn relax(&self, accepted: u64) {
        let ease = self.ease(accepted);
        let freed = self.held.shrink(ease.next_multiple_of(self.step));
        self.available.fetch_add(freed as i64, Ordering::Relaxed);
    }

    /// Ends with the session.
    pub(crate) fn close(&self) {
        self.held.close();
    }

    /// What is accepted and not covered by space that is held.
    fn uncovered(&self, accepted: u64) -> u64 {
        if self.held.is_able() {
            return 0;
        }
        accepted + self.above.load(Ordering::SeqCst)
    }

    /// Whether a copy of `bytes` of what is stored fits beside what was accepted from programs.
    pub(crate) fn admit(
        &self,
        backing: &dyn Backing,
        bytes: u64,
        accepted: u64,
    ) -> Result<(), Error> {
        self.admit_above(backing, bytes + self.uncovered(accepted), self.reserve)
    }

    /// The same for garbage collection, which may use what programs leave.
    pub(crate) fn admit_copy(
        &self,
        backing: &dyn Backing,
        bytes: u64,
        accepted: u64,
    ) -> Result<(), Error> {
        self.admit_above(backing, bytes + self.uncovered(accepted), self.margin)
    }

    fn admit_above(&self, backing: &dyn Backing, bytes: u64, left: u64) -> Result<(), Error> {
        if self.fits(backing, bytes, left) {
            Ok(())
        } else {
            Err(Error::NoSpace)
        }
    }

    fn fits(&self, backing: &dyn Backing, bytes: u64, left: u64) -> bool {
        let wanted = i64::try_from(bytes.saturating_add(left)).unwrap_or(i64::MAX);
        let fits = |fresh| self.look(backing, fresh) >= wanted;
        fits(FRESH) || fits(Duration::ZERO) || (self.count(backing, COUNT) && fits(FRESH))
    }

    /// Bytes available; an answer of the device that is not older than `fresh` will do.
    fn look(&self, backing: &dyn Backing, fresh: Duration) -> i64 {
        if self.late && self.asked.lock().counted.is_none() {
            self.count(backing, Duration::ZERO);
        }
        let mut asked = self.asked.lock();
        if asked.at.is_none_or(|at| at.elapsed() >= fresh)
            && let Ok(space) = backing.space()
        {
            asked.at = Some(Instant::now());
            let mut available = space.available as i64;
            if let Some((_, counted)) = asked.counted {
                available = available.min(counted - self.uncounted.load(Ordering::Relaxed));
            }
            self.available.store(available, Ordering::Relaxed);
        }
        self.available.load(Ordering::Relaxed)
    }

    /// Makes a device count that does so late, unless it has done so a moment ago. Returns whether
    /// it has.
    fn count(&self, backing: &dyn Backing, moment: Duration) -> bool {
        if !self.late {
            return false;
        }
        let mut asked = self.asked.lock();
        if asked.counted.is_some_and(|(at, _)| at.elapsed() < moment) {
            return false;
        }
        // What is written meanwhile may or may not be counted.
        let before = self.uncounted.load(Ordering::Relaxed);
        let Ok(space) = backing.sync_space().and_then(|()| backing.space()) else {
            return false;
        };
        let since = self.uncounted.fetch_sub(before, Ordering::Relaxed) - before;
        let (now, available) = (Instant::now(), space.available as i64);
        *asked = Asked {
            at: Some(now),
            counted: Some((now, available)),
        };
        self.available.store(available - since, Ordering::Relaxed);
        true
    }

    /// Bytes available, of which a device that counts late is asked again when they are few.
    fn look_twice(&self, backing: &dyn Backing, fresh: Duration) -> i64 {
        let available = self.look(backing, fresh);
        if available < 4 * self.reserve as i64 && self.count(backing, COUNT_LOW) {
            return self.available.load(Ordering::Relaxed);
        }
        available
    }

    /// Whether the device is nearly full.
    pub(crate) fn is_low(&self, backing: &dyn Backing) -> bool {
        self.look_twice(backing, FRESH) < 3 * self.reserve as i64
    }

    /// Bytes that garbage collection may write, beside the `accepted` ones of programs.
    pub(crate) fn room(&self, backing: &dyn Backing, accepted: u64) -> u64 {
        let left = (self.uncovered(accepted) + self.margin) as i64;
        u64::try_from(self.look_twice(backing, Duration::ZERO) - left).unwrap_or(0)
    }

    /// Notes bytes written since the device was asked.
    pub(crate) fn spend(&self, bytes: u64) {
        self.available.fetch_sub(bytes as i64, Ordering::Relaxed);
        self.uncounted.fetch_add(bytes as i64, Ordering::Relaxed);
    }
}
