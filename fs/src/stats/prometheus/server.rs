//! The threads that answer scrapers. They hold no lock of the threads that serve files for longer
//! than a read.

use std::io;
use std::os::unix::net::UnixStream;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};

use super::socket::{Listener, Stream};
use super::{http, text};
use crate::Fs;
use crate::options::Address;

/// Most connections served at a time. Others are closed without an answer.
const CONNECTIONS: usize = 8;
/// How long to wait after accept failed, for example because no descriptor was free.
const PAUSE: Duration = Duration::from_millis(200);

/// A socket that listens but is not served yet.
#[derive(Debug)]
pub(crate) struct Bound(Listener);

/// A running server; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Server {
    stop: Arc<AtomicBool>,
    /// Closing it wakes the thread.
    wake: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Binds the address early, so that the mount fails if it is taken.
    ///
    /// # Errors
    /// What the operating system says.
    pub(crate) fn bind(address: &Address) -> io::Result<Bound> {
        Listener::bind(address).map(Bound)
    }

    /// Serves what `fs` counts to root, the user of this process and `users`.
    ///
    /// # Errors
    /// When no thread can be started.
    pub(crate) fn start(Bound(listener): Bound, users: &[u32], fs: Arc<Fs>) -> io::Result<Self> {
        let (wake, woken) = UnixStream::pair()?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let always = [0, nix::unistd::geteuid().as_raw()];
        let users: Arc<[u32]> = always.iter().chain(users).copied().collect();
        let thread = std::thread::Builder::new()
            .name("shale-metrics".to_owned())
            .spawn(move || accept(&listener, &woken, &stopped, &users, &fs))?;
        Ok(Self {
            stop,
            wake: Some(wake),
            thread: Some(thread),
        })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        drop(self.wake.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept(
    listener: &Listener,
    woken: &UnixStream,
    stop: &AtomicBool,
    users: &Arc<[u32]>,
    fs: &Arc<Fs>,
) {
    let serving = Arc::new(AtomicUsize::new(0));
    while !stop.load(Ordering::SeqCst) {
        let mut ready = [
            PollFd::new(listener, PollFlags::IN),
            PollFd::new(woken, PollFlags::IN),
        ];
        if let Err(e) = poll(&mut ready, None)
            && e != rustix::io::Errno::INTR
        {
            tracing::warn!("metrics are no longer served: {e}; mount again to serve them");
            return;
        }
        if stop.load(Ordering::SeqCst) {
            return;
        }
        match listener.accept() {
            Ok(Some(stream)) => answer(stream, &serving, users, fs),
            Ok(None) => {}
            Err(e) => {
                tracing::debug!("a scraper could not be accepted: {e}");
                std::thread::sleep(PAUSE);
            }
        }
    }
}

/// Counts a connection while it is served.
struct Serving(Arc<AtomicUsize>);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

fn answer(
    mut stream: Box<dyn Stream>,
    serving: &Arc<AtomicUsize>,
    users: &Arc<[u32]>,
    fs: &Arc<Fs>,
) {
    if serving.fetch_add(1, Ordering::SeqCst) >= CONNECTIONS {
        serving.fetch_sub(1, Ordering::SeqCst);
        return;
    }
    let serving = Serving(Arc::clone(serving));
    // The mount may end while a slow client is served.
    let fs = Arc::downgrade(fs);
    let users = Arc::clone(users);
    let started = std::thread::Builder::new()
        .name("shale-scrape".to_owned())
        .spawn(move || {
            let _serving = serving;
            let body = || {
                fs.upgrade()?
                    .snapshot()
                    .ok()
                    .map(|stats| text::render(&stats))
            };
            let served = catch_unwind(AssertUnwindSafe(|| http::serve(&mut *stream, &users, body)));
            match served {
                Ok(Ok(())) => {}
                Ok(Err(e)) => tracing::debug!("a scraper went away: {e}"),
                Err(_) => {
                    tracing::error!("serving metrics panicked; please report this with the log")
                }
            }
        });
    if let Err(e) = started {
        tracing::debug!("no thread for a scraper: {e}");
    }
}
