//! Group sync: one caller syncs for all that wait.

use std::io;
use std::path::PathBuf;

use crate::Error;
use crate::kv::Version;
use crate::primitives::{Condvar, Mutex};

/// Elects the caller that syncs, and tells the others how far it got.
#[derive(Debug, Default)]
pub(crate) struct GroupSync {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    running: bool,
    /// Counts the rounds begun.
    round: u64,
    durable: Version,
    failure: Option<(u64, Failure)>,
}

impl GroupSync {
    /// Syncs begun so far.
    pub(crate) fn rounds(&self) -> u64 {
        self.state.lock().round
    }

    /// Returns once everything up to `version` is durable. `sync` makes everything durable that was
    /// committed before it was called, and returns up to which version.
    pub(crate) fn sync(
        &self,
        version: Version,
        sync: impl FnOnce() -> Result<Version, Error>,
    ) -> Result<(), Error> {
        let mut state = self.state.lock();
        // A round that runs already may have begun before this commit; a later one has not.
        let arrived = state.round;
        loop {
            if state.durable >= version {
                return Ok(());
            }
            match &state.failure {
                Some((round, failure)) if *round > arrived => return Err(failure.error()),
                _ => {}
            }
            if !state.running {
                break;
            }
            self.changed.wait(&mut state);
        }
        state.running = true;
        state.round += 1;
        drop(state);
        let mut round = Round {
            syncer: self,
            outcome: None,
        };
        let result = sync();
        round.outcome = Some(match &result {
            Ok(durable) => Ok(*durable),
            Err(error) => Err(Failure::of(error)),
        });
        drop(round);
        result.map(|_| ())
    }

    /// The version that was durable before the first round.
    pub(crate) fn known_durable(&self, version: Version) {
        self.state.lock().durable = version;
    }
}

/// An error that is returned to several callers.
#[derive(Clone, Debug)]
enum Failure {
    Io {
        action: &'static str,
        path: PathBuf,
        kind: io::ErrorKind,
        code: Option<i32>,
    },
    Other(String),
}

impl Failure {
    fn of(error: &Error) -> Self {
        match error {
            Error::Io {
                action,
                path,
                source,
            } => Self::Io {
                action,
                path: path.clone(),
                kind: source.kind(),
                code: source.raw_os_error(),
            },
            other => Self::Other(other.to_string()),
        }
    }

    fn error(&self) -> Error {
        match self {
            Self::Io {
                action,
                path,
                kind,
                code,
            } => {
                let source = match code {
                    Some(code) => io::Error::from_raw_os_error(*code),
                    None => io::Error::from(*kind),
                };
                Error::Io {
                    action,
                    path: path.clone(),
                    source,
                }
            }
            Self::Other(text) => Error::Closed(text.clone()),
        }
    }
}

/// Ends a round even when it panics, so that no caller waits for ever.
struct Round<'a> {
    syncer: &'a GroupSync,
    outcome: Option<Result<Version, Failure>>,
}

impl Drop for Round<'_> {
    fn drop(&mut self) {
        let mut state = self.syncer.state.lock();
        state.running = false;
        let died = || Err(Failure::Other("a sync of the index panicked".into()));
        match self.outcome.take().unwrap_or_else(died) {
            Ok(durable) => state.durable = state.durable.max(durable),
            Err(failure) => state.failure = Some((state.round, failure)),
        }
        self.syncer.changed.notify_all();
    }
}
