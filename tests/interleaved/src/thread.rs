//! Threads with the manners of the standard library's.

use std::sync::{Arc, Mutex, PoisonError};

use shuttle::thread;
pub(crate) use shuttle::thread::{Builder, JoinHandle, Result, sleep};

/// As in the standard library, what a thread returns and nobody wants has gone when its scope ends.
pub(crate) struct Scope<'scope, 'env>(&'scope thread::Scope<'scope, 'env>);

pub(crate) struct ScopedJoinHandle<'scope, T> {
    thread: thread::ScopedJoinHandle<'scope, ()>,
    returned: Arc<Mutex<Option<T>>>,
}

pub(crate) fn scope<'env, T>(body: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    thread::scope(|scope| body(Scope(scope)))
}

impl<'scope> Scope<'scope, '_> {
    pub(crate) fn spawn<T: Send + 'scope>(
        &self,
        body: impl FnOnce() -> T + Send + 'scope,
    ) -> ScopedJoinHandle<'scope, T> {
        let returned = Arc::new(Mutex::new(None));
        let slot = Arc::clone(&returned);
        let thread = self.0.spawn(move || {
            let value = body();
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        });
        ScopedJoinHandle { thread, returned }
    }
}

impl<T> ScopedJoinHandle<'_, T> {
    pub(crate) fn join(self) -> Result<T> {
        self.thread.join()?;
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(returned.take().expect("it has returned"))
    }
}
