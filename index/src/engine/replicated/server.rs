//! What a replicated engine asks of its servers: transactions on a flat space of keys, leases and
//! watches, as etcd has them, and nothing else.
//!
//! Everything above this trait (lanes, slots, group commit, sessions) is the same for every
//! server, and is tested over one in memory that loses answers on request.

use std::time::Duration;

/// The number of a commit of the server.
pub type Revision = u64;

/// Number of a lease at the server; 0 is none.
pub type LeaseId = i64;

/// A condition on one key, or on every key of a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawCompare {
    /// The key, or the first key of the range.
    pub key: Vec<u8>,
    /// The first key after the range; `None` for one key.
    pub end: Option<Vec<u8>>,
    /// What must be true of it.
    pub test: Test,
}

/// What must be true of a key. A key that does not exist has the revisions 0, and an empty range
/// counts as one such key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// It does not exist.
    Absent,
    /// It exists.
    Exists,
    /// It was written by this commit.
    WrittenBy(Revision),
    /// It was created by this commit.
    CreatedBy(Revision),
    /// It was not written after this commit.
    NotAfter(Revision),
}

/// A change. No key may be changed twice by one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawOp {
    /// Sets a value, under a lease unless that is 0.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// The lease.
        lease: LeaseId,
    },
    /// Removes a key, or all keys of a range.
    Delete {
        /// The key, or the first key of the range.
        key: Vec<u8>,
        /// The first key after the range; `None` for one key.
        end: Option<Vec<u8>>,
    },
}

/// A look at one key or at a range.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawRange {
    /// The key, or the first key of the range.
    pub key: Vec<u8>,
    /// The first key after the range; `None` for one key.
    pub end: Option<Vec<u8>>,
    /// Most keys to return; 0 for all.
    pub limit: usize,
    /// The commit after which to look; 0 for now.
    pub revision: Revision,
}

/// Compares, changes if all of them hold, and looks, all at one time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawTxn {
    /// The conditions.
    pub compares: Vec<RawCompare>,
    /// What is changed if all conditions hold.
    pub ops: Vec<RawOp>,
    /// What is looked at when all hold, before the changes.
    pub reads: Vec<RawRange>,
    /// What is looked at when one does not hold.
    pub otherwise: Vec<RawRange>,
}

/// A key as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawPair {
    /// The key.
    pub key: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
    /// The commit that wrote it.
    pub written: Revision,
    /// The commit that created it.
    pub created: Revision,
    /// Its lease; 0 for none.
    pub lease: LeaseId,
}

/// The answer to a look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RawPage {
    /// The pairs, in order.
    pub pairs: Vec<RawPair>,
    /// Whether the limit cut it off.
    pub more: bool,
}

/// The answer to a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawAnswer {
    /// Whether all conditions held.
    pub held: bool,
    /// The newest commit of the server, this one included if it changed something.
    pub revision: Revision,
    /// The answers to `reads` or `otherwise`, in order.
    pub pages: Vec<RawPage>,
}

/// Why a request has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServerError {
    /// No answer came: the request happened, will happen still, or never will.
    #[error("no answer: {0}")]
    Unknown(String),
    /// The request did not happen and never will; the server may take the next one.
    #[error("{0}")]
    Unavailable(String),
    /// The server will never take this request.
    #[error("{0}")]
    Refused(String),
    /// The commit to look at is too old: the server has forgotten it.
    #[error("the server has compacted that revision")]
    Compacted,
    /// The server's database is full. Only deletions are taken.
    #[error("the metadata server is full")]
    Full,
    /// The lease does not exist.
    #[error("the lease has ended")]
    LeaseGone,
}

/// What a watch of a server says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RawEvent {
    /// A key was written or removed by this commit.
    Changed {
        /// The key.
        key: Vec<u8>,
        /// The commit.
        revision: Revision,
    },
    /// Something may have been missed.
    Gap,
}

/// Receives what a watch says.
pub type EventSink = Box<dyn Fn(RawEvent) + Send + Sync>;

/// The servers of a replicated engine, as one client reaches them. Every call may block, for
/// `patience` at most.
pub trait Server: Send + Sync + std::fmt::Debug + 'static {
    /// Executes a transaction, linearizably.
    ///
    /// # Errors
    /// Any [`ServerError`].
    fn txn(&self, txn: &RawTxn, patience: Duration) -> Result<RawAnswer, ServerError>;

    /// Grants a lease that ends when it is not kept alive for `ttl`.
    ///
    /// # Errors
    /// Any [`ServerError`].
    fn grant(&self, ttl: Duration, patience: Duration) -> Result<LeaseId, ServerError>;

    /// Keeps a lease alive, and returns how long it lasts from the moment the request was sent.
    ///
    /// # Errors
    /// [`ServerError::LeaseGone`], or another.
    fn keep_alive(&self, lease: LeaseId, patience: Duration) -> Result<Duration, ServerError>;

    /// Ends a lease: its keys are gone.
    ///
    /// # Errors
    /// Any [`ServerError`].
    fn revoke(&self, lease: LeaseId, patience: Duration) -> Result<(), ServerError>;

    /// Says what changes in some ranges, from now on, until the guard is dropped.
    ///
    /// # Errors
    /// Any [`ServerError`].
    fn watch(
        &self,
        ranges: &[(Vec<u8>, Vec<u8>)],
        sink: EventSink,
    ) -> Result<Box<dyn std::any::Any + Send + Sync>, ServerError>;

    /// The largest transaction that the server takes.
    fn limits(&self) -> crate::kv::Limits;

    /// Whether a request that was answered can be executed once more later, because something on
    /// the way repeats requests. Then every transaction that does not hold costs a second request.
    fn may_repeat(&self) -> bool {
        false
    }
}
