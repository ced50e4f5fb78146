//! Threads for requests that wait for the disk, so that those who serve others do not.

use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

type Job = Box<dyn FnOnce() + Send>;

/// A few threads that take jobs in turn.
pub(crate) struct Pool {
    sender: Sender<Job>,
}

impl Pool {
    pub(crate) fn new(name: &str, threads: usize) -> std::io::Result<Self> {
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

    pub(crate) fn run(&self, job: impl FnOnce() + Send + 'static) {
        // Threads end only with the pool.
        let _ = self.sender.send(Box::new(job));
    }
}
