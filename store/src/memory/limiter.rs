//! Bounds the unwritten data in memory: a writer waits when the limit is reached.

use std::sync::Arc;

use crate::Error;
use crate::primitives::{Condvar, Mutex};

/// Counts bytes that were accepted and are not committed yet.
#[derive(Debug)]
pub(crate) struct WriteLimiter {
    limit: u64,
    state: Mutex<LimiterState>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct LimiterState {
    used: u64,
    /// Why write-behind is stalled, if it is.
    stalled: Option<Arc<Error>>,
}

impl WriteLimiter {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            limit,
            state: Mutex::default(),
            freed: Condvar::new(),
        }
    }

    /// Takes `bytes`, waiting for other data to be written. `pressed` is called before each wait.
    /// Fails instead of waiting while write-behind is stalled.
    pub(crate) fn take(&self, bytes: u64, mut pressed: impl FnMut()) -> Result<(), Error> {
        let mut state = self.state.lock();
        while state.used > 0 && state.used + bytes > self.limit {
            if let Some(cause) = &state.stalled {
                return Err(Error::write_behind(cause));
            }
            pressed();
            self.freed.wait(&mut state);
        }
        state.used += bytes;
        Ok(())
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.used = state.used.saturating_sub(bytes);
        self.freed.notify_all();
    }

    pub(crate) fn used(&self) -> u64 {
        self.state.lock().used
    }

    /// Waits until fewer than `used` bytes are in use. Returns false when write-behind is stalled.
    /// `pressed` is called before each wait.
    pub(crate) fn wait_below(&self, used: u64, mut pressed: impl FnMut()) -> bool {
        let mut state = self.state.lock();
        while state.used >= used {
            if state.stalled.is_some() {
                return false;
            }
            pressed();
            self.freed.wait(&mut state);
        }
        true
    }

    pub(crate) fn limit(&self) -> u64 {
        self.limit
    }

    /// Whether to start write-behind without waiting for more data.
    pub(crate) fn is_tight(&self) -> bool {
        self.used() > self.limit / 2
    }

    /// Wakes waiting writers because write-behind is stalled, and says why.
    pub(crate) fn stall(&self, cause: Arc<Error>) {
        self.state.lock().stalled = Some(cause);
        self.freed.notify_all();
    }

    /// Write-behind works again. Wakes waiting writers, so that they press for a commit of the data
    /// that is ready.
    pub(crate) fn resume(&self) {
        self.state.lock().stalled = None;
        self.freed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_waits_until_others_have_given_back() {
        let limiter = WriteLimiter::new(100);
        limiter.take(80, || {}).unwrap();
        std::thread::scope(|scope| {
            let (send, pressed) = std::sync::mpsc::channel();
            let waiter = scope.spawn(|| limiter.take(50, move || send.send(()).unwrap()));
            pressed.recv().unwrap();
            limiter.give(80);
            waiter.join().unwrap().unwrap();
        });
        assert_eq!(limiter.used(), 50);
    }

    #[test]
    fn a_waiting_writer_presses_again_when_something_was_written_behind() {
        let limiter = WriteLimiter::new(100);
        limiter.take(80, || {}).unwrap();
        std::thread::scope(|scope| {
            let (send, pressed) = std::sync::mpsc::channel();
            let waiter = scope.spawn(|| limiter.wait_below(50, move || send.send(()).unwrap()));
            pressed.recv().unwrap();
            // The writer holds the lock until it waits.
            limiter.resume();
            let again = pressed.recv_timeout(std::time::Duration::from_secs(60));
            limiter.give(80);
            assert!(waiter.join().unwrap());
            again.unwrap();
        });
    }

    #[test]
    fn more_than_the_limit_passes_alone() {
        let limiter = WriteLimiter::new(100);
        limiter.take(500, || panic!("must not wait")).unwrap();
    }

    #[test]
    fn a_stalled_store_refuses_instead_of_blocking() {
        let limiter = WriteLimiter::new(100);
        limiter.take(90, || {}).unwrap();
        limiter.stall(Arc::new(Error::NoSpace));
        let error = limiter.take(50, || panic!("must not wait")).unwrap_err();
        assert!(matches!(error, Error::WriteBehind(cause) if matches!(*cause, Error::NoSpace)));
        limiter.resume();
        limiter.give(90);
        limiter.take(50, || {}).unwrap();
    }
}
