//! What every request needs: the server, the keys of the volume, and how long to try.

use std::time::{Duration, Instant};

use super::keys::KeySpace;
use super::options::Options;
use super::server::{RawAnswer, RawTxn, Revision, Server, ServerError};
use super::session::Session;
use crate::Error;
use crate::kv::Version;
use crate::primitives::atomic::{AtomicU64, Ordering};
use crate::primitives::thread;

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// Why a transaction has no outcome. Unless it is `Unknown`, nothing happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The session has ended.
    Ended(String),
    /// The engine was closed.
    Closed,
    /// It may have happened.
    Unknown(String),
    /// No server answers.
    Unavailable(String),
    /// The servers will never take it.
    Refused(String),
    /// The servers have no room for it.
    Full,
}

impl From<Failure> for Error {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Ended(reason) => Self::SessionEnded(reason),
            Failure::Closed => Self::Closed("it was closed".into()),
            Failure::Unknown(why) => Self::OutcomeUnknown(why),
            Failure::Unavailable(why) => Self::Unavailable(why),
            Failure::Refused(why) => Self::Refused(why),
            Failure::Full => Self::Io {
                action: "commit to",
                path: "the metadata server".into(),
                source: rustix::io::Errno::NOSPC.into(),
            },
        }
    }
}

/// Why a look has no answer.
#[derive(Debug)]
pub(super) enum LookError {
    /// The commit to look at is forgotten: begin again.
    Compacted,
    /// Another reason.
    Failed(Error),
}

impl From<Error> for LookError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The server and how it is asked.
#[derive(Debug)]
pub(super) struct Link<S> {
    pub(super) server: S,
    pub(super) space: KeySpace,
    pub(super) options: Options,
    /// None while there is no session: for an import, and while one is opened.
    pub(super) session: Option<std::sync::Arc<Session>>,
    seen: AtomicU64,
    jitter: AtomicU64,
}

impl<S: Server> Link<S> {
    pub(super) fn new(server: S, options: Options) -> Self {
        Self {
            server,
            space: KeySpace::new(&options.prefix),
            options,
            session: None,
            seen: AtomicU64::new(0),
            jitter: AtomicU64::new(0),
        }
    }

    /// Notes the revision of an answer.
    pub(super) fn saw(&self, revision: Revision) {
        self.seen.fetch_max(revision, Ordering::Relaxed);
    }

    /// The newest revision seen.
    pub(super) fn seen(&self) -> Version {
        self.seen.load(Ordering::Relaxed)
    }

    /// Begins to try.
    pub(super) fn retry(&self) -> Retry<'_, S> {
        let deadline = match self.session {
            Some(_) => self.options.deadline,
            None => Some(self.options.without_session()),
        };
        Retry {
            link: self,
            begun: Instant::now(),
            deadline,
            pause: self.options.pause,
        }
    }

    /// Looks at keys, as often as it takes.
    pub(super) fn look(&self, txn: &RawTxn) -> Result<RawAnswer, LookError> {
        let mut retry = self.retry();
        loop {
            let why = match self.server.txn(txn, self.options.patience) {
                Ok(answer) => {
                    self.saw(answer.revision);
                    return Ok(answer);
                }
                Err(ServerError::Compacted) => return Err(LookError::Compacted),
                Err(ServerError::Unknown(why) | ServerError::Unavailable(why)) => why,
                Err(other) => return Err(Error::Refused(other.to_string()).into()),
            };
            if retry.look_again().is_err() {
                return Err(Error::Unavailable(why).into());
            }
        }
    }

    /// Between a half and the whole of a time, so that sessions do not retry in step.
    fn jittered(&self, time: Duration) -> Duration {
        let count = self.jitter.fetch_add(1, Ordering::Relaxed);
        let mut mixed = (count ^ self.seen().rotate_left(32)).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^= mixed >> 27;
        let part = u32::try_from(mixed % 1000).unwrap_or(0);
        time / 2 + time / 2000 * part
    }
}

/// Why there is no further attempt.
#[derive(Debug)]
pub(super) enum GaveUp {
    /// The session has ended.
    Ended(String),
    /// The deadline has passed.
    Late,
}

/// Attempts, with growing pauses.
#[derive(Debug)]
pub(super) struct Retry<'a, S> {
    link: &'a Link<S>,
    begun: Instant,
    deadline: Option<Duration>,
    pause: Duration,
}

impl<S: Server> Retry<'_, S> {
    /// Pauses before the next attempt, unless there should be none.
    pub(super) fn again(&mut self) -> Result<(), GaveUp> {
        match self.ended() {
            Some(reason) => Err(GaveUp::Ended(reason)),
            None => self.pause_until(self.deadline),
        }
    }

    /// The same for a look: the state is shared and may be looked at after the end of the session,
    /// but then there is no reason to wait for long.
    pub(super) fn look_again(&mut self) -> Result<(), GaveUp> {
        match self.ended() {
            Some(_) => self.pause_until(Some(self.link.options.patience)),
            None => self.pause_until(self.deadline),
        }
    }

    fn ended(&self) -> Option<String> {
        self.link.session.as_ref()?.ended()
    }

    fn pause_until(&mut self, deadline: Option<Duration>) -> Result<(), GaveUp> {
        let pause = self.link.jittered(self.pause);
        if deadline.is_some_and(|deadline| self.begun.elapsed() + pause >= deadline) {
            return Err(GaveUp::Late);
        }
        thread::sleep(pause);
        self.pause = (2 * self.pause).min(LONGEST_PAUSE);
        Ok(())
    }
}
