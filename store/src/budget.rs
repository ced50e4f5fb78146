//! How much unwritten data may be in memory, and the back-pressure when it is used up.

use crate::Error;
use crate::sync::atomic::{AtomicI32, Ordering};
use crate::sync::{Condvar, Mutex};

/// Bytes of dirty data that may exist at a time.
#[derive(Debug)]
pub(crate) struct Budget {
    limit: u64,
    used: Mutex<u64>,
    freed: Condvar,
    /// While nothing can be written behind: the errno that tells why, else 0.
    stalled: AtomicI32,
}

impl Budget {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            used: Mutex::new(0),
            freed: Condvar::new(),
            stalled: AtomicI32::new(0),
        }
    }

    /// Takes `bytes`, waiting for others to be written. `pressed` is called before each wait.
    /// While writing behind fails, refuses instead of waiting for ever.
    pub(crate) fn take(&self, bytes: u64, mut pressed: impl FnMut()) -> Result<(), Error> {
        let mut used = self.used.lock();
        while *used > 0 && *used + bytes > self.limit {
            let errno = self.stalled.load(Ordering::SeqCst);
            if errno != 0 {
                return Err(Error::Refused(errno));
            }
            pressed();
            self.freed.wait(&mut used);
        }
        *used += bytes;
        Ok(())
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&self, bytes: u64) {
        let mut used = self.used.lock();
        *used = used.saturating_sub(bytes);
        self.freed.notify_all();
    }

    pub(crate) fn used(&self) -> u64 {
        *self.used.lock()
    }

    /// Waits until fewer than `used` bytes are in use. Returns false where nothing can be written
    /// now. `pressed` is called before each wait.
    pub(crate) fn wait_below(&self, used: u64, mut pressed: impl FnMut()) -> bool {
        let mut now = self.used.lock();
        while *now >= used {
            if self.stalled.load(Ordering::SeqCst) != 0 {
                return false;
            }
            pressed();
            self.freed.wait(&mut now);
        }
        true
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether it is time to write behind without waiting for more data.
    pub(crate) fn is_tight(&self) -> bool {
        self.used() > self.limit / 2
    }

    /// Tells waiting writers that nothing can be written now, and why (0: it can again).
    pub(crate) fn stall(&self, errno: i32) {
        let _used = self.used.lock();
        self.stalled.store(errno, Ordering::SeqCst);
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_until_others_have_given_back() {
        let budget = Budget::new(100);
        budget.take(80, || {}).unwrap();
        std::thread::scope(|scope| {
            let (send, pressed) = std::sync::mpsc::channel();
            let waiter = scope.spawn(|| budget.take(50, move || send.send(()).unwrap()));
            pressed.recv().unwrap();
            budget.give(80);
            waiter.join().unwrap().unwrap();
        });
        assert_eq!(budget.used(), 50);
    }

    #[test]
    fn more_than_the_limit_passes_alone() {
        let budget = Budget::new(100);
        budget.take(500, || panic!("must not wait")).unwrap();
    }

    #[test]
    fn a_stalled_store_refuses_instead_of_blocking() {
        let budget = Budget::new(100);
        budget.take(90, || {}).unwrap();
        budget.stall(libc::ENOSPC);
        let error = budget.take(50, || panic!("must not wait")).unwrap_err();
        assert_eq!(error.errno(), libc::ENOSPC);
        budget.stall(0);
        budget.give(90);
        budget.take(50, || {}).unwrap();
    }
}
