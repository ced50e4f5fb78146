//! Threads for requests that wait for the device.
//!
//! A sync always waits, so [`ThreadPool`] runs it outside the threads that serve requests. A
//! change of names waits only when the device hangs. [`ChangeThreads`] runs it where it arrives,
//! since a hand-over costs time, but never in all serving threads at once: some stay free for
//! readers.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

/// Threads for changes that find no room among the serving threads.
const OTHERS: usize = 4;

type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads that take jobs in turn.
#[derive(Clone)]
pub(super) struct ThreadPool {
    sender: Sender<Job>,
}

impl ThreadPool {
    pub(super) fn new(name: &str, threads: usize) -> std::io::Result<Self> {
        let (sender, receiver) = channel::<Job>();
        let receiver = Arc::new(Mutex::new(receiver));
        for number in 0..threads {
            let receiver = Arc::clone(&receiver);
            std::thread::Builder::new()
                .name(format!("shale-{name}-{number}"))
                .spawn(move || {
                    loop {
                        let Ok(jobs) = receiver.lock() else { return };
                        let Ok(job) = jobs.recv() else { return };
                        drop(jobs);
                        job();
                    }
                })?;
        }
        Ok(Self { sender })
    }

    pub(super) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // The threads end only with the last clone of the pool.
        let _ = self.sender.send(Box::new(job));
    }
}

/// Runs changes of names and attributes.
pub(super) struct ChangeThreads {
    /// How many more changes may run where they arrive.
    room: AtomicUsize,
    others: ThreadPool,
}

/// A place among the serving threads, given back on drop.
struct Taken<'a>(&'a AtomicUsize);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl ChangeThreads {
    /// At most `room` changes run in the threads that ask for them at a time.
    pub(super) fn new(room: usize) -> std::io::Result<Self> {
        Ok(Self {
            room: AtomicUsize::new(room),
            others: ThreadPool::new("change", OTHERS)?,
        })
    }

    /// Runs a change, here or in another thread. The change sends the reply.
    pub(super) fn run(&self, change: impl FnOnce() + Send + 'static) {
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
    use super::*;

    #[test]
    fn a_change_without_room_is_made_elsewhere() {
        let changes = ChangeThreads::new(1).unwrap();
        let (send, receive) = channel();
        let here = std::thread::current().id();
        let taken = changes.take().unwrap();
        let told = send.clone();
        changes.run(move || told.send(std::thread::current().id()).unwrap());
        assert_ne!(receive.recv().unwrap(), here);
        drop(taken);
        changes.run(move || send.send(std::thread::current().id()).unwrap());
        assert_eq!(receive.recv().unwrap(), here);
    }

    #[test]
    fn changes_that_wait_leave_the_thread_that_asks_alone() {
        let changes = ChangeThreads::new(0).unwrap();
        let (let_go, wait) = channel::<()>();
        let wait = Arc::new(parking_lot::Mutex::new(wait));
        let (done, made) = channel();
        for _ in 0..3 * OTHERS {
            let (wait, done) = (Arc::clone(&wait), done.clone());
            changes.run(move || {
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
