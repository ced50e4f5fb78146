//! Locks with the manners of `parking_lot`, under the scheduler of shuttle.

use std::ops::{Deref, DerefMut};
use std::time::Instant;

use shuttle::sync;

#[derive(Debug, Default)]
pub(crate) struct Mutex<T>(sync::Mutex<T>);

/// Empty only while its owner waits.
pub(crate) struct Guard<'a, T>(Option<sync::MutexGuard<'a, T>>);

#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

/// How a wait ended.
pub(crate) struct Waited;

impl<T> Mutex<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn lock(&self) -> Guard<'_, T> {
        Guard(Some(self.0.lock().expect("nobody panics")))
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
        guard.0 = Some(self.0.wait(held).expect("nobody panics"));
    }

    /// Time never passes here, so that nobody is saved from a lost wake-up by a clock.
    pub(crate) fn wait_until<T>(&self, guard: &mut Guard<'_, T>, _deadline: Instant) -> Waited {
        self.wait(guard);
        Waited
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
        false
    }
}
