//! One thread that waits for the network, behind calls that block.
//!
//! The rest of the index has no futures: a caller hands its request to the thread, and waits for
//! the result no longer than its patience.

use std::io;
use std::sync::mpsc;
use std::thread::{self, JoinHandle, ThreadId};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tokio::time::Instant;

/// Requests end at their deadline by themselves. A caller waits a little longer, so that it gets
/// their reason and not its own.
const SLACK: Duration = Duration::from_millis(500);

/// The thread, ended when this is dropped. What still runs on it is dropped with it.
pub(super) struct Runtime {
    handle: Handle,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    id: ThreadId,
}

impl Runtime {
    pub(super) fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::Builder::new()
            .name("shale-etcd".into())
            .spawn(move || {
                // An error is a sender that is gone, which ends the thread as well.
                let _ = runtime.block_on(stopped);
                runtime.shutdown_background();
            })?;
        Ok(Self {
            handle,
            stop: Some(stop),
            id: thread.thread().id(),
            thread: Some(thread),
        })
    }

    /// The result of a request; `None` when it has none in time.
    pub(super) fn wait<T: Send + 'static>(
        &self,
        patience: Duration,
        request: impl Future<Output = T> + Send + 'static,
    ) -> Option<T> {
        debug_assert_ne!(thread::current().id(), self.id, "a sink must not block");
        let (sender, receiver) = mpsc::sync_channel(1);
        self.handle.spawn(async move {
            // A caller that has lost its patience is gone.
            let _ = sender.send(request.await);
        });
        receiver.recv_timeout(patience.saturating_add(SLACK)).ok()
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        drop(self.stop.take());
        let Some(thread) = self.thread.take() else {
            return;
        };
        if thread::current().id() != self.id {
            let _ = thread.join();
        }
    }
}

/// When a caller loses its patience. Also far enough away for one that never does.
pub(super) fn deadline(patience: Duration) -> Instant {
    const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
    Instant::now() + patience.min(LONGEST)
}
