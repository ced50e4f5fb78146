//! Tells systemd the state of a service: sd_notify(3) in a few lines.
//!
//! `NOTIFY_SOCKET` names a datagram socket, by a path or, after `@`, in the abstract namespace.
//! Without it there is no service manager. There is no watchdog: systemd must not kill the daemon
//! because a device stalls for minutes, as Lustre does when a server fails over.

use std::ffi::OsStr;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;
use std::sync::mpsc::{self, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

const VARIABLE: &str = "NOTIFY_SOCKET";

/// How much longer a stop may take. The request is repeated long before that time is over.
const EXTENSION: Duration = Duration::from_secs(60);
const REPEAT: Duration = Duration::from_secs(15);

/// The service manager that started this process, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Notifier {
    listener: Option<(UnixDatagram, SocketAddr)>,
}

impl Notifier {
    pub(crate) fn from_environment() -> Self {
        match std::env::var_os(VARIABLE) {
            Some(name) => Self::to(&name),
            None => Self::default(),
        }
    }

    fn to(name: &OsStr) -> Self {
        let address = match name.as_bytes().split_first() {
            Some((b'@', name)) => SocketAddr::from_abstract_name(name),
            Some((b'/', _)) => SocketAddr::from_pathname(name),
            _ => return Self::default(),
        };
        let listener = UnixDatagram::unbound().and_then(|socket| Ok((socket, address?)));
        match listener {
            Ok(listener) => Self {
                listener: Some(listener),
            },
            Err(e) => {
                tracing::warn!(
                    "cannot reach the service manager: {e}; check NOTIFY_SOCKET, or use Type=simple"
                );
                Self::default()
            }
        }
    }

    fn tell(&self, message: &str) {
        if let Some((socket, address)) = &self.listener
            && let Err(e) = socket.send_to_addr(message.as_bytes(), address)
        {
            tracing::warn!(
                "cannot notify the service manager: {e}; set NotifyAccess=main in the unit"
            );
        }
    }

    /// The service is ready.
    pub(crate) fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={status}"));
    }

    /// The service is stopping.
    pub(crate) fn stopping(&self, status: &str) {
        self.tell(&format!("STOPPING=1\nSTATUS={status}"));
    }

    /// Like [`Notifier::stopping`], and asks for more time until the result is dropped.
    pub(crate) fn stopping_without_timeout(self: &Arc<Self>, status: &str) -> TimeoutExtension {
        self.stopping(status);
        if self.listener.is_none() {
            return TimeoutExtension::default();
        }
        let notifier = Arc::clone(self);
        let (done, over) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            loop {
                notifier.tell(&format!("EXTEND_TIMEOUT_USEC={}", EXTENSION.as_micros()));
                if over.recv_timeout(REPEAT) != Err(mpsc::RecvTimeoutError::Timeout) {
                    return;
                }
            }
        });
        TimeoutExtension {
            done: Some(done),
            thread: Some(thread),
        }
    }
}

/// Extends the timeout of the service manager while it exists.
#[derive(Debug, Default)]
pub(crate) struct TimeoutExtension {
    done: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for TimeoutExtension {
    fn drop(&mut self) {
        drop(self.done.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        socket
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    }

    #[test]
    fn a_socket_with_a_path_hears_everything() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("socket");
        let socket = UnixDatagram::bind(&path).unwrap();
        let notifier = Arc::new(Notifier::to(path.as_os_str()));
        notifier.ready("mounted");
        assert_eq!(received(&socket), "READY=1\nSTATUS=mounted");
        let extension = notifier.stopping_without_timeout("waiting");
        assert_eq!(received(&socket), "STOPPING=1\nSTATUS=waiting");
        assert_eq!(received(&socket), "EXTEND_TIMEOUT_USEC=60000000");
        drop(extension);
    }

    #[test]
    fn an_abstract_socket_hears_it_too() {
        let name = format!("shale-notify-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let socket = UnixDatagram::bind_addr(&address).unwrap();
        Notifier::to(OsStr::new(&format!("@{name}"))).stopping("x");
        assert_eq!(received(&socket), "STOPPING=1\nSTATUS=x");
    }

    #[test]
    fn nobody_need_listen() {
        let silent = Arc::new(Notifier::default());
        silent.ready("x");
        drop(silent.stopping_without_timeout("x"));
        for name in ["", "relative", "/no/such/socket"] {
            Notifier::to(OsStr::new(name)).ready("x");
        }
    }
}
