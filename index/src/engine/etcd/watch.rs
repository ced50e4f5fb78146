//! Watches that survive the member they began with.
//!
//! A watch is a hint to look again, so nothing is done to resume one where it ended: the next one
//! begins with the present, and once it has begun the receiver is told that something may be
//! missing.

use std::sync::Arc;
use std::time::Duration;

use etcd_client::{WatchOptions, WatchStream};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::endpoints::{Endpoints, jittered};
use super::errors::judge;
use super::runtime;
use super::txn::Keys;
use crate::engine::replicated::server::{EventSink, RawEvent, Revision, ServerError};

/// How long a new watch may take to begin.
pub(super) const PATIENCE: Duration = Duration::from_secs(5);

/// The member is asked for a sign of life when it has said nothing for this long.
const QUIET: Duration = Duration::from_secs(2);
/// A member that has said nothing in so many of these periods is given up.
const QUIET_PERIODS: u32 = 2;
/// Pause before the next member is tried.
const PAUSE: Duration = Duration::from_millis(200);
/// Revisions with many large values come in one message unless etcd may cut them.
const LARGEST_MESSAGE: usize = 1 << 30;

/// Ends the watch when it is dropped.
pub(super) struct Guard(JoinHandle<()>);

impl Drop for Guard {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A watch that has begun, and the member it is with.
struct Stream {
    at: usize,
    messages: WatchStream,
}

/// A watch that has not begun yet.
pub(super) struct Watch {
    endpoints: Arc<Endpoints>,
    ranges: Vec<(Vec<u8>, Vec<u8>)>,
    sink: EventSink,
}

impl Watch {
    pub(super) fn new(
        endpoints: Arc<Endpoints>,
        ranges: &[(Vec<u8>, Vec<u8>)],
        sink: EventSink,
    ) -> Self {
        let bounds = |(start, end): &(Vec<u8>, Vec<u8>)| match Keys::new(start, Some(end)) {
            Keys::Range(start, end) => Some((start, end)),
            Keys::One(_) | Keys::None => None,
        };
        Self {
            endpoints,
            ranges: ranges.iter().filter_map(bounds).collect(),
            sink,
        }
    }

    /// Returns once all ranges are watched. From then on it runs until the guard is dropped.
    pub(super) async fn begin(self, deadline: Instant) -> Result<Guard, ServerError> {
        if self.ranges.is_empty() {
            return Ok(Guard(tokio::spawn(std::future::ready(()))));
        }
        let stream = self.open(deadline).await?;
        Ok(Guard(tokio::spawn(self.run(stream))))
    }

    async fn run(self, first: Stream) {
        let mut stream = first;
        loop {
            let reason = self.follow(&mut stream.messages).await;
            tracing::debug!("a watch of etcd ended and is begun again: {reason}");
            self.leave(stream.at);
            drop(stream);
            stream = loop {
                sleep(jittered(PAUSE)).await;
                match self.open(runtime::deadline(PATIENCE)).await {
                    Ok(stream) => break stream,
                    // A cluster that must not be used any more has no news either.
                    Err(ServerError::Refused(_)) => return,
                    Err(error) => tracing::debug!("no watch of etcd: {error}"),
                }
            };
            // Only now: what changes after the receiver has looked must be reported.
            (self.sink)(RawEvent::Gap);
        }
    }

    /// A stream on which all ranges are watched.
    async fn open(&self, deadline: Instant) -> Result<Stream, ServerError> {
        loop {
            let at = self.endpoints.find_good(deadline).await?;
            let limit = self.endpoints.limit(deadline);
            let failed = match timeout_at(limit, self.open_on(at)).await {
                Ok(Ok(messages)) => return Ok(Stream { at, messages }),
                Ok(Err(reason)) => reason,
                Err(_) => "no answer in time".to_owned(),
            };
            self.leave(at);
            if Instant::now() >= deadline {
                let url = self.endpoints.all()[at].url();
                return Err(ServerError::Unavailable(format!("{url}: {failed}")));
            }
            sleep(jittered(PAUSE / 4)).await;
        }
    }

    /// Tries another member next.
    fn leave(&self, at: usize) {
        self.endpoints.all()[at].distrust();
        self.endpoints.avoid(at);
    }

    async fn open_on(&self, at: usize) -> Result<WatchStream, String> {
        let mut client = self.endpoints.all()[at]
            .control()
            .watch_client()
            .max_decoding_message_size(LARGEST_MESSAGE);
        let options = |end: &Vec<u8>| {
            Some(
                WatchOptions::new()
                    .with_range(end.as_slice())
                    .with_fragment(),
            )
        };
        let mut ranges = self.ranges.iter();
        let Some((start, end)) = ranges.next() else {
            return Err("nothing to watch".into());
        };
        let mut stream = client
            .watch(start.as_slice(), options(end))
            .await
            .map_err(told)?;
        for (start, end) in ranges {
            stream
                .watch(start.as_slice(), options(end))
                .await
                .map_err(told)?;
        }
        let mut missing = self.ranges.len();
        while missing > 0 {
            let message = timeout(PATIENCE, stream.message())
                .await
                .map_err(|_| "no answer in time".to_owned())?
                .map_err(told)?
                .ok_or("the member ended the stream")?;
            if message.canceled() {
                return Err(format!("refused: {}", message.cancel_reason()));
            }
            if message.created() {
                missing -= 1;
            }
            self.report(&message);
        }
        Ok(stream)
    }

    /// Reports what changes until the stream ends, and says why it did.
    async fn follow(&self, stream: &mut WatchStream) -> String {
        let mut quiet = 0;
        loop {
            let message = match timeout(QUIET, stream.message()).await {
                Ok(Ok(Some(message))) => message,
                Ok(Ok(None)) => return "the member ended the stream".into(),
                Ok(Err(error)) => return told(error),
                Err(_) if quiet == QUIET_PERIODS => return "the member is silent".into(),
                Err(_) => {
                    quiet += 1;
                    if let Err(error) = stream.request_progress().await {
                        return told(error);
                    }
                    continue;
                }
            };
            quiet = 0;
            if message.canceled() {
                return match message.compact_revision() {
                    0 => message.cancel_reason().to_owned(),
                    revision => format!("revision {revision} is compacted"),
                };
            }
            self.report(&message);
        }
    }

    fn report(&self, message: &etcd_client::WatchResponse) {
        for pair in message.events().iter().filter_map(etcd_client::Event::kv) {
            (self.sink)(RawEvent::Changed {
                key: pair.key().to_vec(),
                revision: Revision::try_from(pair.mod_revision()).unwrap_or(0),
            });
        }
    }
}

fn told(error: etcd_client::Error) -> String {
    judge(&error).without_effect().to_string()
}
