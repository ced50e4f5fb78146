//! Threads with the interface of the standard library's.

use std::sync::{Arc, Mutex, PoisonError};

use shuttle::thread;
pub use shuttle::thread::{Builder, JoinHandle, Result, sleep};

/// Starts threads that end before the scope does. As in the standard library, a value that a thread
/// returns and that is never joined is dropped when the scope ends.
#[derive(Debug)]
pub struct Scope<'scope, 'env>(&'scope thread::Scope<'scope, 'env>);

/// A thread of a [`Scope`].
#[derive(Debug)]
pub struct ScopedJoinHandle<'scope, T> {
    thread: thread::ScopedJoinHandle<'scope, ()>,
    returned: Arc<Mutex<Option<T>>>,
}

/// Calls `body`, then waits for the threads it started.
pub fn scope<'env, T>(body: impl for<'scope> FnOnce(Scope<'scope, 'env>) -> T) -> T {
    thread::scope(|scope| body(Scope(scope)))
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a thread.
    pub fn spawn<T: Send + 'scope>(
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
    /// Waits for the thread to end.
    ///
    /// # Errors
    /// The thread panicked.
    ///
    /// # Panics
    /// Never: a thread that did not panic has returned a value.
    pub fn join(self) -> Result<T> {
        self.thread.join()?;
        let mut returned = self.returned.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(returned.take().expect("it has returned"))
    }
}
