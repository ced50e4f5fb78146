//! Locks, threads and channels under the scheduler of shuttle, with the manners of `parking_lot`,
//! the standard library and crossbeam.
//!
//! Time stands still, so that nobody is saved from a lost wake-up by a clock, until a test lets
//! it pass.
#![allow(dead_code, unused_imports)] // Who includes it needs this or that of it.

pub(crate) mod channel;
pub(crate) mod thread;

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

pub(crate) use shale_backing::Priority;
use shuttle::sync;
pub(crate) use shuttle::sync::atomic;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

/// Empty only while its owner waits.
pub(crate) struct Guard<'a, T>(Option<sync::MutexGuard<'a, T>>);

#[derive(Debug, Default)]
pub(crate) struct Condvar(Arc<sync::Condvar>);

/// How a wait ended.
pub(crate) struct Waited {
    timed_out: bool,
}

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Guard(Some(held))
    }
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0.as_ref().expect("it is held")
    }
}

impl<T> DerefMut for Guard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.0.as_mut().expect("it is held")
    }
}

impl Condvar {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    pub(crate) fn wait<T>(&self, guard: &mut Guard<'_, T>) {
        let held = guard.0.take().expect("it is held");
        let held = self.0.wait(held).unwrap_or_else(PoisonError::into_inner);
        guard.0 = Some(held);
    }

    /// Ends early when a test says that time passes, and not before.
    pub(crate) fn wait_until<T>(&self, guard: &mut Guard<'_, T>, _deadline: Instant) -> Waited {
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
        Waited { timed_out }
    }

    pub(crate) fn wait_for<T>(&self, guard: &mut Guard<'_, T>, time: Duration) -> Waited {
        self.wait_until(guard, Instant::now() + time)
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }
}

impl Waited {
    pub(crate) fn timed_out(&self) -> bool {
        self.timed_out
    }
}

#[derive(Default)]
struct Clock {
    /// How often time has passed.
    passed: u64,
    /// Where threads wait for a limited time.
    waiting: Vec<Arc<sync::Condvar>>,
}

thread_local! {
    // All threads of a schedule are one for the system.
    static CLOCK: RefCell<Clock> = RefCell::default();
}

/// Ends all waits for a limited time. Who is just about to begin one is not concerned.
pub(crate) fn pass_time() {
    let waiting = CLOCK.with_borrow_mut(|clock| {
        clock.passed += 1;
        clock.waiting.clone()
    });
    for condvar in waiting {
        condvar.notify_all();
    }
}

/// The scheduler knows no priorities, and the thread that runs them all keeps its own.
pub(crate) fn set_priority(_priority: Priority) {}
