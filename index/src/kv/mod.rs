//! The key-value contract that every index engine fulfils.
//!
//! Mini-transactions instead of closures: a reader takes one consistent snapshot of some keys and
//! ranges, and a writer sends compares and operations that happen together or not at all. Every
//! value carries the version of the commit that wrote it and of the one that created its key, so
//! the same code runs on an embedded engine and on a replicated one.
//!
//! What every engine promises, and every caller may rely on:
//!
//! 1. A snapshot shows the state after one commit, and says which. A snapshot that begins after a
//!    commit was answered shows that commit.
//! 2. A transaction happens exactly once, as answered. An engine that loses an answer finds out
//!    what became of the transaction before it returns.
//! 3. A session that has ended changes nothing any more: each commit is refused that reaches the
//!    state after the session's end, however late it was sent and whatever any clock says.
//! 4. Additions to a counter commute. None is lost, none is counted twice.
//! 5. A watch only says where to look. It may say it late, twice, or in another order; when it
//!    may have missed something, it says [`Hint::Gap`].

use std::sync::Arc;

use crate::Error;
pub use counter::{Counter, SUMS};

mod counter;

/// Number of a commit; strictly growing, never reused.
pub type Version = u64;

/// A lease: keys put under it vanish when its holder is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lease(pub u64);

/// A value as a snapshot shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The bytes.
    pub value: Arc<[u8]>,
    /// The commit that wrote this value.
    pub version: Version,
    /// The commit that created the key (puts on an existing key keep it).
    pub created: Version,
}

/// What a reader asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Want {
    /// One key.
    Key(Vec<u8>),
    /// At most `limit` keys from `start` (included) to `end` (excluded), in order. Counters are
    /// shown with their sums.
    Range {
        /// First key that may be returned.
        start: Vec<u8>,
        /// First key that may not be returned any more.
        end: Vec<u8>,
        /// Most keys to return.
        limit: usize,
    },
    /// One counter, with its sum as the value ([`Counter::decode`]).
    Counter(Vec<u8>),
}

/// The answer to one [`Want`]: for a key zero or one pair, for a range the pairs in order.
pub type Found = Vec<(Vec<u8>, Versioned)>;

/// The answers to some wants, all from the same state.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The newest commit that the answers show.
    pub version: Version,
    /// One answer for each want, in their order.
    pub found: Vec<Found>,
}

/// A half-open range of keys.
pub type KeyRange = (Vec<u8>, Vec<u8>);

/// A condition of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Compare {
    /// The key does not exist.
    Absent(Vec<u8>),
    /// The key exists.
    Exists(Vec<u8>),
    /// The key exists and its value was written by this commit.
    VersionIs(Vec<u8>, Version),
    /// The key exists and was created by this commit.
    CreatedAt(Vec<u8>, Version),
    /// No key from `start` (included) to `end` (excluded) exists.
    RangeEmpty {
        /// First key of the range.
        start: Vec<u8>,
        /// First key after the range.
        end: Vec<u8>,
    },
    /// No key from `start` (included) to `end` (excluded) was written after this commit. Deleted
    /// keys do not count. The engine may look at every key of the range, so it must be short.
    RangeNotNewer {
        /// First key of the range.
        start: Vec<u8>,
        /// First key after the range.
        end: Vec<u8>,
        /// The newest commit that may have written a key of the range.
        version: Version,
    },
}

/// A change of a transaction. Each key may be named by one operation only, and a key that is put
/// or added to must not lie in a range that the same transaction deletes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Sets a value.
    Put {
        /// The key.
        key: Vec<u8>,
        /// The value.
        value: Vec<u8>,
        /// Bind the key to a lease.
        lease: Option<Lease>,
    },
    /// Removes a key; a missing one is fine.
    Delete(Vec<u8>),
    /// Removes every key from `start` (included) to `end` (excluded).
    DeleteRange {
        /// First key of the range.
        start: Vec<u8>,
        /// First key after the range.
        end: Vec<u8>,
    },
    /// Adds to a counter, which begins with zero. Additions of several sessions do not conflict.
    ///
    /// An engine may keep a counter in several keys that begin with the counter's own. So no other
    /// key, and no end of a range of a compare or a deletion, may begin with the key of a counter;
    /// and a compare of a counter is one of the range from its key to the first key that does not
    /// begin with it.
    Add {
        /// The key. It must never be put or deleted as an ordinary key.
        key: Vec<u8>,
        /// What is added.
        delta: Counter,
    },
    /// Removes a counter; a missing one is fine.
    DropCounter(Vec<u8>),
}

/// Compares and operations that happen together or not at all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Txn {
    /// Conditions; all must hold.
    pub compares: Vec<Compare>,
    /// Changes, in order.
    pub ops: Vec<Op>,
}

impl Txn {
    /// An empty transaction.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a condition.
    pub fn compare(&mut self, compare: Compare) -> &mut Self {
        self.compares.push(compare);
        self
    }

    /// Sets a value.
    pub fn put(&mut self, key: Vec<u8>, value: Vec<u8>) -> &mut Self {
        self.ops.push(Op::Put {
            key,
            value,
            lease: None,
        });
        self
    }

    /// Removes a key.
    pub fn delete(&mut self, key: Vec<u8>) -> &mut Self {
        self.ops.push(Op::Delete(key));
        self
    }

    /// Removes a range of keys.
    pub fn delete_range(&mut self, start: Vec<u8>, end: Vec<u8>) -> &mut Self {
        self.ops.push(Op::DeleteRange { start, end });
        self
    }

    /// Adds to a counter.
    pub fn add(&mut self, key: Vec<u8>, delta: Counter) -> &mut Self {
        self.ops.push(Op::Add { key, delta });
        self
    }

    /// Removes a counter.
    pub fn drop_counter(&mut self, key: Vec<u8>) -> &mut Self {
        self.ops.push(Op::DropCounter(key));
        self
    }

    /// Bytes of its keys and values, about.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let compares = self.compares.iter().map(Compare::bytes).sum::<usize>();
        compares + self.ops.iter().map(Op::bytes).sum::<usize>()
    }

    /// Checks that the transaction is one that every engine takes: each key once, and no more
    /// than `limits` allow.
    ///
    /// # Errors
    /// [`Error::KeyTwice`], [`Error::TooManyOps`] or [`Error::CommitTooLarge`].
    pub fn check(&self, limits: &Limits) -> Result<(), Error> {
        for (count, limit) in [
            (self.compares.len(), limits.compares),
            (self.ops.len(), limits.ops),
        ] {
            if count > limit {
                return Err(Error::TooManyOps { count, limit });
            }
        }
        let len = self.bytes();
        if len > limits.bytes {
            let limit = limits.bytes;
            return Err(Error::CommitTooLarge { len, limit });
        }
        self.check_keys()
    }

    fn check_keys(&self) -> Result<(), Error> {
        let twice = |key: &[u8]| Error::KeyTwice(key.escape_ascii().to_string());
        let mut keys: Vec<&[u8]> = self.ops.iter().filter_map(Op::key).collect();
        keys.sort_unstable();
        if let Some(pair) = keys.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(twice(pair[0]));
        }
        for op in &self.ops {
            let Op::DeleteRange { start, end } = op else {
                continue;
            };
            let first = keys.partition_point(|key| *key < start.as_slice());
            if let Some(key) = keys.get(first).filter(|key| **key < end.as_slice()) {
                return Err(twice(key));
            }
        }
        Ok(())
    }
}

impl Compare {
    fn bytes(&self) -> usize {
        match self {
            Self::Absent(key)
            | Self::Exists(key)
            | Self::VersionIs(key, _)
            | Self::CreatedAt(key, _) => key.len(),
            Self::RangeEmpty { start, end } | Self::RangeNotNewer { start, end, .. } => {
                start.len() + end.len()
            }
        }
    }
}

impl Op {
    /// The one key that it changes; `None` for a range.
    #[must_use]
    pub fn key(&self) -> Option<&[u8]> {
        match self {
            Self::Put { key, .. }
            | Self::Delete(key)
            | Self::Add { key, .. }
            | Self::DropCounter(key) => Some(key),
            Self::DeleteRange { .. } => None,
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Put { key, value, .. } => key.len() + value.len(),
            Self::Delete(key) | Self::DropCounter(key) => key.len(),
            Self::DeleteRange { start, end } => start.len() + end.len(),
            Self::Add { key, .. } => key.len() + Counter::MAX_LEN,
        }
    }
}

/// The largest transaction that an engine takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Compares.
    pub compares: usize,
    /// Operations.
    pub ops: usize,
    /// Bytes of keys and values ([`Txn::bytes`]).
    pub bytes: usize,
}

impl Limits {
    /// No limits worth respecting.
    pub const NONE: Self = Self {
        compares: usize::MAX,
        ops: usize::MAX,
        bytes: usize::MAX,
    };
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened, as this commit. Visible to every later snapshot; durable after
    /// [`Kv::sync`] of this version. Transactions that do not touch each other's keys may share
    /// a commit.
    Committed(Version),
    /// A compare did not hold; nothing happened.
    Conflict,
}

/// Whether a session can still commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionState {
    /// As far as is known. Only a commit proves it.
    Alive,
    /// It has ended, for this reason, and its leased keys are gone or about to go.
    Ended(String),
}

/// What a watch says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Hint {
    /// This key was written or removed, by this commit or a later one.
    Changed {
        /// The key, of a counter too.
        key: Vec<u8>,
        /// The commit.
        version: Version,
    },
    /// Something may have been missed: look at everything.
    Gap,
}

/// Receives what a watch says. It must be quick and must not use the engine.
pub type Watcher = Box<dyn Fn(&Hint) + Send + Sync>;

/// Ends a watch when it is dropped.
pub type WatchGuard = Box<dyn std::any::Any + Send + Sync>;

/// Receives the news that a session has ended. It must be quick and must not use the engine.
pub type EndListener = Box<dyn FnOnce(&str) + Send>;

/// A pair to import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Import {
    /// The key.
    pub key: Vec<u8>,
    /// The value, or the sum of a counter.
    pub value: Versioned,
    /// Whether the key is a counter.
    pub counter: bool,
}

/// What became of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// Its value from this commit on; `None` when it was removed.
    pub value: Option<Versioned>,
    /// Whether it goes away with the lease of the engine.
    pub leased: bool,
}

/// A committed transaction: each key once, in order, ranges expanded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Its number.
    pub version: Version,
    /// What it changed.
    pub changes: Vec<Change>,
}

/// Receives every commit of an engine.
pub type Follower = Box<dyn Fn(&Commit) + Send + Sync>;

/// Receives the keys of a dump.
pub type Visitor<'a> = dyn FnMut(&[u8], &Versioned) -> Result<(), Error> + 'a;

/// An index engine, as one session uses it.
pub trait Kv: Send + Sync + std::fmt::Debug {
    /// Answers every want from one consistent snapshot.
    ///
    /// # Errors
    /// When the engine cannot read.
    fn get_many(&self, wants: &[Want]) -> Result<Snapshot, Error>;

    /// Executes a transaction.
    ///
    /// # Errors
    /// [`Error::SessionEnded`], or when the engine cannot write (for example on a full device).
    /// Then nothing happened, and the same transaction may be tried again. Only after
    /// [`Error::OutcomeUnknown`] it may have happened.
    fn commit(&self, txn: &Txn) -> Result<Outcome, Error>;

    /// Returns once every commit up to `version` is durable. Concurrent calls share the work.
    ///
    /// # Errors
    /// When the engine cannot make it durable now; the commits stay visible and a later call
    /// tries again.
    fn sync(&self, version: Version) -> Result<(), Error>;

    /// The newest commit that this process has seen. Costs no request.
    fn version(&self) -> Version;

    /// How often this process has made commits durable; many may share one sync.
    fn syncs(&self) -> u64;

    /// The lease of this session, ended by [`Kv::close`], by the death of the process, or by an
    /// engine that has not heard of it for too long.
    fn lease(&self) -> Lease;

    /// The largest transaction that the engine takes.
    fn limits(&self) -> Limits;

    /// Whether other sessions can commit while this one is alive.
    fn is_shared(&self) -> bool;

    /// Whether the session can still commit.
    fn session(&self) -> SessionState {
        SessionState::Alive
    }

    /// Calls `listener` when the session has ended other than by [`Kv::close`]; at once if it has
    /// ended already.
    fn on_end(&self, listener: EndListener) {
        drop(listener);
    }

    /// Makes everything durable and ends the lease. The engine refuses work afterwards.
    ///
    /// # Errors
    /// As [`Kv::sync`].
    fn close(&self) -> Result<(), Error>;

    /// The process has been idle for a while: the engine may release memory that was not used
    /// recently.
    fn rest(&self) {}

    /// Visits all live keys, in order, without stopping commits: a key that changes meanwhile is
    /// shown as it was at some time during the visit.
    ///
    /// # Errors
    /// The first that `visit` returns, or as [`Kv::get_many`].
    fn dump(&self, visit: &mut Visitor<'_>) -> Result<(), Error>;

    /// Visits all live keys from `start` (included) to `end` (excluded), in order and as one
    /// commit left them, and returns that commit. The engine reads page by page; where it cannot
    /// keep the state of that commit for as long as the visit takes, it calls `restart` and begins
    /// again. `visit` must not use the engine.
    ///
    /// # Errors
    /// The first that `visit` returns, or as [`Kv::get_many`].
    fn scan(
        &self,
        range: &KeyRange,
        visit: &mut Visitor<'_>,
        restart: &mut dyn FnMut(),
    ) -> Result<Version, Error>;

    /// Calls `watcher` whenever a key of these ranges may have changed, until the guard is
    /// dropped.
    ///
    /// # Errors
    /// As [`Kv::get_many`].
    fn watch(&self, ranges: Vec<KeyRange>, watcher: Watcher) -> Result<WatchGuard, Error>;

    /// Calls `follower` with every commit from now on, in order, while no other commit can
    /// happen. It must be quick and must not use the engine.
    ///
    /// # Errors
    /// [`Error::CannotFollow`] unless the engine does all commits itself, as only the embedded
    /// one does.
    fn follow(&self, follower: Follower) -> Result<(), Error> {
        drop(follower);
        Err(Error::CannotFollow)
    }

    /// One key.
    ///
    /// # Errors
    /// As [`Kv::get_many`].
    fn get(&self, key: &[u8]) -> Result<Option<Versioned>, Error> {
        let mut snapshot = self.get_many(&[Want::Key(key.to_vec())])?;
        Ok(snapshot
            .found
            .pop()
            .and_then(|mut pairs| pairs.pop())
            .map(|(_, value)| value))
    }

    /// A range of keys.
    ///
    /// # Errors
    /// As [`Kv::get_many`].
    fn range(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Found, Error> {
        let want = Want::Range {
            start: start.to_vec(),
            end: end.to_vec(),
            limit,
        };
        Ok(self.get_many(&[want])?.found.pop().unwrap_or_default())
    }
}

/// The range of all keys.
#[must_use]
pub fn everything() -> KeyRange {
    // Longer than the longest key that an engine takes.
    (Vec::new(), vec![u8::MAX; 2048])
}

/// The first key after every key that begins with `prefix`.
pub(crate) fn prefix_end(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while let Some(last) = end.pop() {
        if last < u8::MAX {
            end.push(last + 1);
            return end;
        }
    }
    // Only prefixes of 0xff bytes have no successor; no key of ours begins like that.
    vec![u8::MAX; prefix.len() + 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefix_end_is_above_every_key_with_the_prefix() {
        assert_eq!(prefix_end(b"ab"), b"ac");
        assert_eq!(prefix_end(&[1, 0xff]), vec![2]);
        assert!(prefix_end(&[0xff]) > vec![0xff, 0xfe]);
    }
}
