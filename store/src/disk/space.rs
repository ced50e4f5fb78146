//! Free space on the device: accepted data must fit.

use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use shale_backing::Backing;

use super::reserve::Reserve;
use crate::Error;
use crate::primitives::Mutex;

/// How long the device's report of its free space is valid.
const FRESH: Duration = Duration::from_millis(200);
/// The margin: space that only the index may use when the device is full; gc may not.
const MARGIN_MIN: u64 = 4 << 20;
const MARGIN_MAX: u64 = 64 << 20;

/// The margin on a device of `total` bytes.
pub(crate) fn margin(total: u64) -> u64 {
    (total / 64).clamp(MARGIN_MIN, MARGIN_MAX)
}

/// How often a device that reports late is synced: for a write that seems not to fit, and to know
/// whether the device is nearly full.
const COUNT: Duration = Duration::from_secs(1);
const COUNT_LOW: Duration = Duration::from_secs(5);

/// Room for the data of calls that began before room became short: Linux limits each to 2 GiB.
const CALLS: u64 = 4 << 30;

/// Unit in which most file systems allocate space.
const BLOCK: u64 = 4096;

/// Space is held in steps of a share of the device, within bounds.
const STEP_SHARE: u64 = 64;
const STEP_MIN: u64 = 1 << 20;
const STEP_MAX: u64 = 64 << 20;

/// Refuses writes that would not fit, so that `write` reports it and not only `fsync`.
///
/// All accepted data, in this process and in a cache above it, is covered by space that is held for
/// it ([`Reserve`]), or, if the device cannot hold any, had free space when it was accepted.
#[derive(Debug)]
pub(crate) struct SpaceGuard {
    held: Reserve,
    /// Bytes that a cache above may have accepted and not sent yet.
    above: AtomicU64,
    /// Room is short: a writer must ask before its data is accepted.
    short: AtomicBool,
    /// How often room has become short.
    shortages: AtomicU64,
    /// Bytes that have arrived since then from files without a promise of room.
    unasked: AtomicU64,
    /// The last shortage in which all writers know that they must ask.
    told: AtomicU64,
    listener: OnceLock<Listener>,
    /// The device last refused to hold more because of a quota.
    over_quota: AtomicBool,
    step: u64,
    available: AtomicI64,
    asked: Mutex<Asked>,
    /// Bytes written since the device reported, if it reports late.
    uncounted: AtomicI64,
    late: bool,
    margin: u64,
    /// Space that programs leave free: the margin, and room for the copy of a pack. A pack can be
    /// deleted only when everything live in it has been copied.
    reserve: u64,
}

/// Called when room becomes short or ceases to be.
struct Listener(Box<dyn Fn() + Send + Sync>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

/// When the device was asked, and its last complete report.
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

    /// Sets how many bytes a cache above may accept before it sends them.
    pub(crate) fn set_above(&self, bytes: u64) {
        self.above.store(bytes, Ordering::SeqCst);
    }

    /// Whether room is short: a cache above must ask before it accepts more.
    pub(crate) fn is_short(&self) -> bool {
        self.short.load(Ordering::SeqCst)
    }

    /// Smaller amounts of room are not given away.
    pub(crate) fn slack(&self) -> u64 {
        self.step / 4
    }

    /// Bytes of the device that are held for accepted data.
    pub(crate) fn held(&self) -> u64 {
        self.held.held()
    }

    /// Whether the space held covers enough of what the cache above may hold, in addition to
    /// `accepted` bytes, that a few more do no harm.
    pub(crate) fn covers_half_above(&self, accepted: u64) -> bool {
        self.held.is_able() && self.held() >= accepted + self.above.load(Ordering::SeqCst) / 2
    }

    /// Ensures that `accepted` bytes, and all that the cache above may hold, can be stored even if
    /// nothing compresses.
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
        // The kernel does not ask again about a call that has begun, however much it writes.
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

    /// The space to hold while no writer has to ask. Until all writers ask, the cache above may
    /// send its contents and fill up again; and pages of mappings may take as much.
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

    /// Makes the listener check again.
    pub(crate) fn tell(&self) {
        if let Some(Listener(changed)) = self.listener.get() {
            changed();
        }
    }

    /// Number of the current shortage.
    pub(crate) fn shortage(&self) -> u64 {
        self.shortages.load(Ordering::SeqCst)
    }

    /// From now on every writer asks before the cache above accepts more, and everything it had
    /// accepted before has arrived.
    pub(crate) fn set_told(&self, shortage: u64) {
        self.told.store(shortage, Ordering::SeqCst);
    }

    /// Whether `bytes` of a file for which no writer has asked may be among those that the cache
    /// above accepted before its writers had to ask. Others come from mappings, and must not take
    /// the space held for writers that asked.
    pub(crate) fn is_promised(&self, bytes: u64) -> bool {
        let most = 3 * self.above.load(Ordering::SeqCst);
        self.told.load(Ordering::SeqCst) != self.shortage()
            && self.unasked.fetch_add(bytes, Ordering::SeqCst) + bytes <= most
    }

    /// Calls `changed` whenever room becomes short or ceases to be. It must not wait.
    pub(crate) fn listen(&self, changed: Box<dyn Fn() + Send + Sync>) {
        let _ = self.listener.set(Listener(changed));
    }

    /// Holds `ease` bytes, or `need` bytes if there is not enough space. Returns false if the
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
                    // Storing the data reports the error.
                    _ => return false,
                },
            }
        }
        true
    }

    /// Whether the margin of the index is free.
    pub(crate) fn has_margin(&self, backing: &dyn Backing) -> bool {
        self.fits(backing, 0, self.margin)
    }

    /// Restores the margin of the index out of the space that is held: committing accepted data
    /// takes some.
    pub(crate) fn keep_margin(&self, backing: &dyn Backing) {
        let margin = self.margin as i64;
        if self.look(backing, FRESH) < margin {
            let missing = margin - self.look(backing, Duration::ZERO);
            self.release(u64::try_from(missing).unwrap_or(0));
        }
    }

    /// Releases space for `bytes` that were accepted and are about to be stored.
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

    /// Space that the store can use, as the device reports it now.
    pub(crate) fn usable(&self, backing: &dyn Backing) -> u64 {
        self.count(backing, Duration::ZERO);
        let available = self.look(backing, Duration::ZERO);
        u64::try_from(available).unwrap_or(0) + self.held()
    }

    /// Releases this much of the space that is held; returns whether there was any.
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

    /// Releases the space that is held beyond the minimum for `accepted` bytes; returns whether
    /// there was any.
    pub(crate) fn release_surplus(&self, accepted: u64) -> bool {
        let need = accepted + self.above.load(Ordering::SeqCst);
        let freed = self.held.shrink(need);
        self.available.fetch_add(freed as i64, Ordering::Relaxed);
        freed > 0
    }

    /// Releases the space that is held beyond a comfortable amount for `accepted` bytes.
    pub(crate) fn relax(&self, accepted: u64) {
        let ease = self.ease(accepted);
        let freed = self.held.shrink(ease.next_multiple_of(self.step));
        self.available.fetch_add(freed as i64, Ordering::Relaxed);
    }

    /// Ends with the session.
    pub(crate) fn close(&self) {
        self.held.close();
    }

    /// Accepted bytes that no held space covers.
    fn uncovered(&self, accepted: u64) -> u64 {
        if self.held.is_able() {
            return 0;
        }
        accepted + self.above.load(Ordering::SeqCst)
    }

    /// Whether a copy of `bytes` of stored data fits in addition to the data accepted from
    /// programs.
    pub(crate) fn admit(
        &self,
        backing: &dyn Backing,
        bytes: u64,
        accepted: u64,
    ) -> Result<(), Error> {
        self.admit_above(backing, bytes + self.uncovered(accepted), self.reserve)
    }

    /// The same for gc, which may use the space that programs leave free.
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

    /// Bytes available, by a report of the device that is not older than `fresh`.
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

    /// Makes a device that reports late bring its report up to date, unless it has just done so.
    /// Returns whether it has.
    fn count(&self, backing: &dyn Backing, moment: Duration) -> bool {
        if !self.late {
            return false;
        }
        let mut asked = self.asked.lock();
        if asked.counted.is_some_and(|(at, _)| at.elapsed() < moment) {
            return false;
        }
        // Data written meanwhile may or may not be included.
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

    /// Bytes available; if they are few, asks a device that reports late again.
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

    /// Bytes that gc may write, in addition to the `accepted` ones of programs.
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
