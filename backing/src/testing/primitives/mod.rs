//! Locks, threads and channels under the scheduler of [shuttle](https://docs.rs/shuttle), with the
//! interfaces of `parking_lot`, the standard library and crossbeam.
//!
//! Crates that offer a feature `shuttle` use these in place of the real ones. Time stands still,
//! so that no timeout hides a lost wake-up, until a test calls [`pass_time`].

pub mod channel;
pub mod thread;

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

pub use crate::process::priority::Priority;
use shuttle::sync;
pub use shuttle::sync::atomic;

/// A lock that is never poisoned.
#[derive(Debug, Default)]
pub struct Mutex<T>(sync::Mutex<T>);

/// A lock that is held. Empty only while its owner waits for a [`Condvar`].
#[derive(Debug)]
pub struct MutexGuard<'a, T>(Option<sync::MutexGuard<'a, T>>);

/// Where threads wait for a change of the data that a [`Mutex`] protects.
#[derive(Debug, Default)]
pub struct Condvar(Arc<sync::Condvar>);

/// How a wait with a deadline ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult {
    timed_out: bool,
}

impl<T> Mutex<T> {
    /// A lock that is free.
    pub fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        MutexGuard(Some(held))
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is held")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is held")
    }
}

impl Condvar {
    /// One that no thread waits for.
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits for a notification.
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        let held = guard.0.take().expect("it is held");
        let held = self.0.wait(held).unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(held);
    }

    /// Waits for a notification, or until a test calls [`pass_time`]. The deadline itself is
    /// ignored.
    pub fn wait_until<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        _deadline: Instant,
    ) -> WaitTimeoutResult {
        let begun = CLOCK.with_borrow_mut(|clock| {
            clock.waiting.push(Arc::clone(&self.0));
            clock.passed
        });
        self.wait(guard);
        let timed_out = CLOCK.with_borrow_mut(|clock| {
            let mine = |condvar: &Arc<sync::Condvar>| Arc::ptr_eq(condvar, &self.0);
            if let Some(at) = clock.waiting.iter().position(mine) {
                clock.waiting.swap_remove(at);
            }
            clock.passed != begun
        });
        WaitTimeoutResult { timed_out }
    }

    /// As [`Condvar::wait_until`].
    pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> WaitTimeoutResult {
        self.wait_until(guard, Instant::now() + time)
    }

    /// Wakes one waiting thread.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl WaitTimeoutResult {
    /// Whether time passed rather than a notification arriving.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.timed_out
    }
}

#[derive(Default)]
struct Clock {
    /// How often time has passed.
    passed: u64,
    /// Where threads wait with a deadline.
    waiting: Vec<Arc<sync::Condvar>>,
}

thread_local! {
    // All threads of a schedule are one thread of the system.
    static CLOCK: RefCell<Clock> = RefCell::default();
}

/// Ends every wait with a deadline that has begun.
pub fn pass_time() {
    let waiting = CLOCK.with_borrow_mut(|clock| {
        clock.passed += 1;
        clock.waiting.clone()
    });
    for condvar in waiting {
        condvar.notify_all();
    }
}

/// Does nothing: the scheduler has no priorities, and the system thread that runs all threads of
/// a schedule keeps its own.
pub fn set_priority(_priority: Priority) {}
