//! Changes of names wait for the device when it hangs. They are made in the threads that serve
//! requests, since handing them over costs time, but never in all of these at once: some are left
//! for those who only read.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::syncers::Pool;

/// Threads for changes that find no room.
const OTHERS: usize = 4;

pub(crate) struct Changes {
    /// How many more may be made where they arrive.
    room: AtomicUsize,
    others: Pool,
}

/// Room that is taken, until it is dropped.
struct Taken<'a>(&'a AtomicUsize);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Changes {
    /// At most `room` changes are made in the threads that ask for them.
    pub(crate) fn new(room: usize) -> std::io::Result<Self> {
        Ok(Self {
            room: AtomicUsize::new(room),
            others: Pool::new("change", OTHERS)?,
        })
    }

    /// Makes a change, here or elsewhere; it replies by itself.
    pub(crate) fn make(&self, change: impl FnOnce() + Send + 'static) {
        match self.take() {
            Some(_taken) => change(),
            None => self.others.run(change),
        }
    }

    fn take(&self) -> Option<Taken<'_>> {
        let less = |room: usize| room.checked_sub(1);
        self.room
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, less)
            .ok()
            .map(|_| Taken(&self.room))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn a_change_without_room_is_made_elsewhere() {
        let changes = Changes::new(1).unwrap();
        let (send, receive) = channel();
        let here = std::thread::current().id();
        let taken = changes.take().unwrap();
        let told = send.clone();
        changes.make(move || told.send(std::thread::current().id()).unwrap());
        assert_ne!(receive.recv().unwrap(), here);
        drop(taken);
        changes.make(move || send.send(std::thread::current().id()).unwrap());
        assert_eq!(receive.recv().unwrap(), here);
    }

    #[test]
    fn changes_that_wait_leave_the_thread_that_asks_alone() {
        let changes = Changes::new(0).unwrap();
        let (let_go, wait) = channel::<()>();
        let wait = Arc::new(parking_lot::Mutex::new(wait));
        let (done, made) = channel();
        for _ in 0..3 * OTHERS {
            let (wait, done) = (Arc::clone(&wait), done.clone());
            changes.make(move || {
                wait.lock().recv().unwrap();
                done.send(()).unwrap();
            });
        }
        for _ in 0..3 * OTHERS {
            let_go.send(()).unwrap();
            made.recv().unwrap();
        }
    }
}
