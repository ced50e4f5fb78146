//! A channel with the manners of crossbeam's, as far as a store knows them.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use std::sync::mpsc::{RecvError, RecvTimeoutError, SendError};

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

pub(crate) struct Sender<T>(Arc<Shared<T>>);

pub(crate) struct Receiver<T>(Arc<Shared<T>>);

pub(crate) fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
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
    pub(crate) fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut state = self.0.state.lock();
        if state.receivers == 0 {
            return Err(SendError(message));
        }
        state.queue.push_back(message);
        drop(state);
        self.0.arrived.notify_one();
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.0.state.lock().queue.len()
    }
}

impl<T> Receiver<T> {
    pub(crate) fn recv(&self) -> Result<T, RecvError> {
        let mut state = self.0.state.lock();
        loop {
            match state.queue.pop_front() {
                Some(message) => return Ok(message),
                None if state.senders == 0 => return Err(RecvError),
                None => self.0.arrived.wait(&mut state),
            }
        }
    }

    pub(crate) fn recv_timeout(&self, time: Duration) -> Result<T, RecvTimeoutError> {
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

/// Until there is nothing more to come.
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
