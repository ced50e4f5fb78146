//! The log of a daemon.

use std::fmt::{self, Write};
use std::io::{self, IsTerminal};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, fmt as format};

/// Logs to standard error what `SHALE_LOG`, or else `default`, lets through. fuser warns when
/// another process unmounts a mount, which is the usual way here, so `default` lets only its errors
/// through.
pub(crate) fn start(default: &str) {
    let filter = EnvFilter::try_from_env("SHALE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let lines = format::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_target(false)
        // A failure to log, as on a full device, would go to the same standard error, by a macro
        // that panics.
        .log_internal_errors(false);
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(WithoutLateReplies)
        .with(lines)
        .try_init();
}

/// Drops messages about late replies. The kernel has forgotten a request (`ENOENT`) when its
/// program was killed, or when the mount is gone.
struct WithoutLateReplies;

impl<S: Subscriber> Layer<S> for WithoutLateReplies {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let mut message = Message(String::new());
        event.record(&mut message);
        !is_late_reply(&message.0)
    }
}

/// Matches the message of fuser 0.18.
fn is_late_reply(message: &str) -> bool {
    const ENOENT: &str = "(os error 2)";
    message.starts_with("Failed to send FUSE reply: ") && message.ends_with(ENOENT)
}

/// The text of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// A log that can be looked at.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_replies_that_came_too_late_are_left_out() {
        let lines = Lines::default();
        let writer = lines.clone();
        let layer = format::layer().with_writer(move || writer.clone());
        let log = tracing_subscriber::registry()
            .with(WithoutLateReplies)
            .with(layer);
        tracing::subscriber::with_default(log, || {
            for number in [2, 5] {
                let error = io::Error::from_raw_os_error(number);
                tracing::error!("Failed to send FUSE reply: {error}");
            }
            tracing::error!(inode = 7, "read: No such file or directory (os error 2)");
        });
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        assert_eq!(text.lines().count(), 2, "{text}");
        assert!(text.contains("reply: Input/output error"), "{text}");
        assert!(text.contains("read: No such file"), "{text}");
    }
}
