//! What an error says about the request: it did not happen, its outcome is unknown, or it never will happen.
//!
//! etcd's codes are too coarse for that: `UNAVAILABLE` is both "no leader", decided before the
//! request is looked at, and "request timed out", decided while it may still be committed. So the
//! messages decide, which etcd keeps stable for its own clients, and whatever is not listed here
//! counts as not known.

use etcd_client::Error;

use crate::engine::replicated::server::ServerError;

/// What is known about a request that failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Judgement {
    /// It did not happen and never will: another member may be asked.
    NotDone(String),
    /// It may have happened, or may still happen.
    Doubtful(String),
    /// It did not happen, and asking again makes no difference.
    Final(ServerError),
    /// The database is full. A transaction that crosses the limit is applied and gets this answer
    /// too, so it is not a proof that nothing happened.
    Full,
}

impl Judgement {
    /// The error of a request that changes nothing, so that it does not matter what became of it.
    pub(super) fn without_effect(self) -> ServerError {
        match self {
            Self::NotDone(reason) | Self::Doubtful(reason) => ServerError::Unavailable(reason),
            Self::Final(error) => error,
            Self::Full => ServerError::Full,
        }
    }
}

/// Decided before the request is proposed.
const NOT_PROPOSED: [&str; 8] = [
    "etcdserver: no leader",
    "etcdserver: too many requests",
    "etcdserver: rpc not supported for learner",
    "etcdserver: not capable",
    "etcdserver: invalid auth token",
    "etcdserver: revision of auth store is old",
    // By the member itself: it has no leader to pass the proposal on to, or is handing over the
    // leadership.
    "raft proposal dropped",
    "etcdserver: raft proposal dropped",
];

const DENIED: &str = "etcdserver: permission denied";
const COMPACTED: &str = "etcdserver: mvcc: required revision has been compacted";
const NO_SPACE: &str = "etcdserver: mvcc: database space exceeded";
const NO_LEASE: &str = "etcdserver: requested lease not found";
const LEASE_EXISTS: &str = "etcdserver: lease already exists";
/// As the client library has it: the answer to a keepalive has no error, but a time to live of 0.
const NO_LEASE_TO_KEEP: &str = "lease not found";

/// The request is refused as it is, wherever it is sent.
const REFUSED: [&str; 11] = [
    "etcdserver: duplicate key given in txn request",
    "etcdserver: too many operations in txn request",
    "etcdserver: request is too large",
    "etcdserver: key is not provided",
    "etcdserver: value is provided",
    DENIED,
    "etcdserver: user name is empty",
    "etcdserver: user name not found",
    "etcdserver: corrupt cluster",
    "etcdserver: mvcc: required revision is a future revision",
    "etcdserver: too large lease TTL",
];

/// gRPC itself, before etcd sees the request.
const TOO_LARGE: &str = "grpc: received message larger than max";

pub(super) fn judge(error: &Error) -> Judgement {
    match error {
        Error::GRpcStatus(status) => judge_status(status),
        Error::LeaseKeepAliveError(text) if text == NO_LEASE_TO_KEEP => {
            Judgement::Final(ServerError::LeaseGone)
        }
        Error::InvalidArgs(text) => Judgement::Final(ServerError::Refused(text.clone())),
        other => Judgement::Doubtful(other.to_string()),
    }
}

fn judge_status(status: &tonic::Status) -> Judgement {
    let message = status.message();
    match message {
        COMPACTED => return Judgement::Final(ServerError::Compacted),
        NO_SPACE => return Judgement::Full,
        NO_LEASE => return Judgement::Final(ServerError::LeaseGone),
        _ => {}
    }
    if REFUSED.contains(&message) || message.starts_with(TOO_LARGE) {
        return Judgement::Final(ServerError::Refused(message.into()));
    }
    if NOT_PROPOSED.contains(&message) {
        return Judgement::NotDone(message.into());
    }
    let reason = reason(status);
    if was_not_sent(status) {
        Judgement::NotDone(reason)
    } else {
        Judgement::Doubtful(reason)
    }
}

/// Whether there was no connection to send it on.
fn was_not_sent(status: &tonic::Status) -> bool {
    chain(status).any(|error| error.is::<tonic::ConnectError>())
}

/// The message and the innermost cause, which is the one that helps ("connection refused").
fn reason(status: &tonic::Status) -> String {
    let message = status.message();
    match chain(status).last().map(ToString::to_string) {
        Some(cause) if !message.contains(&cause) => format!("{message}: {cause}"),
        _ => message.to_owned(),
    }
}

fn chain(status: &tonic::Status) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let first = std::error::Error::source(status);
    std::iter::successors(first, |error| error.source())
}

/// Whether this user may not do that.
pub(super) fn is_denied(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message() == DENIED)
}

/// Whether a lease of that number exists already.
pub(super) fn is_lease_exists(error: &Error) -> bool {
    matches!(error, Error::GRpcStatus(status) if status.message() == LEASE_EXISTS)
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    fn judged(code: Code, message: &str) -> Judgement {
        judge(&Error::GRpcStatus(Status::new(code, message)))
    }

    #[test]
    fn timeouts_and_lost_leaders_are_not_taken_for_failures() {
        for message in [
            "etcdserver: request timed out",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "etcdserver: request timed out, possibly due to connection lost",
            "etcdserver: leader changed",
            "etcdserver: server stopped",
            "transport error",
            "something new",
        ] {
            let found = judged(Code::Unavailable, message);
            assert_eq!(found, Judgement::Doubtful(message.into()));
        }
    }

    #[test]
    fn what_was_not_proposed_did_not_happen() {
        let message = "etcdserver: no leader";
        let found = judged(Code::Unavailable, message);
        assert_eq!(found, Judgement::NotDone(message.into()));
    }

    #[test]
    fn facts_have_their_own_errors() {
        let cases = [
            (Code::OutOfRange, COMPACTED, ServerError::Compacted),
            (Code::NotFound, NO_LEASE, ServerError::LeaseGone),
        ];
        for (code, message, expected) in cases {
            assert_eq!(judged(code, message), Judgement::Final(expected));
        }
        assert_eq!(judged(Code::ResourceExhausted, NO_SPACE), Judgement::Full);
        let large = "grpc: received message larger than max (3 vs. 2)";
        assert_eq!(
            judged(Code::ResourceExhausted, large),
            Judgement::Final(ServerError::Refused(large.into()))
        );
    }
}
