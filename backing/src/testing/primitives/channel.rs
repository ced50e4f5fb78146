//! An unbounded channel with the interface of crossbeam's, as far as the store uses it.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError};

use super::{Condvar, Mutex};

struct Shared<T> {
    state: Mutex<State<T>>,
    arrived: Condvar,
}

struct State<T> {
    queue: VecDeque<T>,
    senders: usize,
    receivers: usize,
}

/// The end that sends.
pub struct Sender<T>(Arc<Shared<T>>);

/// The end that receives. Each message goes to one receiver.
pub struct Receiver<T>(Arc<Shared<T>>);

/// A channel without a limit.
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let state = State {
        queue: VecDeque::new(),
        senders: 1,
        receivers: 1,
    };
    let shared = Arc::new(Shared {
        state: Mutex::new(state),
        arrived: Condvar::new(),
    });
    (Sender(Arc::clone(&shared)), Receiver(shared))
}

impl<T> Sender<T> {
    /// Sends a message.
    ///
    /// # Errors
    /// Gives the message back when no receiver is left.
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        if state.receivers == 0 {
            return Err(SendError(message));
        }
        state.queue.push_back(message);
        drop(state);
        self.0.arrived.notify_one();
        Ok(())
    }

    /// Messages that no receiver has taken yet.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.state.lock().queue.len()
    }

    /// Whether receivers have taken every message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<T> Receiver<T> {
    /// Waits for a message.
    ///
    /// # Errors
    /// No message is left and no sender.
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        loop {
            match state.queue.pop_front() {
                Some(message) => return Ok(message),
                None if state.senders == 0 => return Err(RecvError),
                None => self.0.arrived.wait(&mut state),
            }
        }
    }

    /// Waits for a message, or until a test lets time pass.
    ///
    /// # Errors
    /// No message came in time, or no sender is left.
    pub fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
        let deadline = Instant::now() + time;
        let mut late = false;
        let mut state = self.0.state.lock();
        loop {
            match state.queue.pop_front() {
                Some(message) => return Ok(message),
                None if state.senders == 0 => return Err(RecvTimeoutError::Disconnected),
                None if late => return Err(RecvTimeoutError::Timeout),
                None => late = self.0.arrived.wait_until(&mut state, deadline).timed_out(),
            }
        }
    }
}

/// Ends when no message is left and no sender.
impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = std::iter::FromFn<Box<dyn FnMut() -> Option<T> + 'a>>;

    fn into_iter(self) -> Self::IntoIter {
        std::iter::from_fn(Box::new(|| self.recv().ok()))
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().senders += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.0.state.lock().receivers += 1;
        Self(Arc::clone(&self.0))
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.0.state.lock();
        state.senders -= 1;
        if state.senders == 0 {
            self.0.arrived.notify_all();
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.0.state.lock().receivers -= 1;
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver")
    }
}
