//! The key-value contract that every index engine fulfils.
//!
//! Mini-transactions instead of closures: a reader takes one consistent snapshot of some keys and
//! ranges, and a writer sends compares and operations that happen together or not at all. Every
//! value carries the version of the commit that wrote it and of the one that created its key, so
//! the same code runs on an embedded engine and on a replicated one.

use std::sync::Arc;

use crate::Error;

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
    /// At most `limit` keys from `start` (included) to `end` (excluded), in order.
    Range {
        /// First key that may be returned.
        start: Vec<u8>,
        /// First key that may not be returned any more.
        end: Vec<u8>,
        /// Most keys to return.
        limit: usize,
    },
}

/// The answer to one [`Want`]: for a key zero or one pair, for a range the pairs in order.
pub type Found = Vec<(Vec<u8>, Versioned)>;

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
}

/// A change of a transaction. Later operations of one transaction see the earlier ones.
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
}

/// What became of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It happened, as this commit. Visible to every later snapshot; durable after
    /// [`Kv::sync`] of this version.
    Committed(Version),
    /// A compare did not hold; nothing happened.
    Conflict,
    /// Unknown (a time-out of a remote engine): it happened, or it never will.
    Unknown,
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

/// An index engine.
pub trait Kv: Send + Sync + std::fmt::Debug {
    /// Answers every want from one consistent snapshot.
    ///
    /// # Errors
    /// When the engine cannot read.
    fn get_many(&self, wants: &[Want]) -> Result<Vec<Found>, Error>;

    /// Executes a transaction.
    ///
    /// # Errors
    /// When the engine cannot write (for example on a full device). Then nothing happened, and the
    /// same transaction may be tried again.
    fn commit(&self, txn: &Txn) -> Result<Outcome, Error>;

    /// Returns once every commit up to `version` is durable. Concurrent calls share the work.
    ///
    /// # Errors
    /// When the engine cannot make it durable now; the commits stay visible and a later call
    /// tries again.
    fn sync(&self, version: Version) -> Result<(), Error>;

    /// The newest commit.
    fn version(&self) -> Version;

    /// How often this process has made commits durable; many may share one sync.
    fn syncs(&self) -> u64;

    /// The lease of this process, ended by [`Kv::close`] or by the death of the process.
    fn lease(&self) -> Lease;

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
        let mut found = self.get_many(&[Want::Key(key.to_vec())])?;
        Ok(found
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
        Ok(self.get_many(&[want])?.pop().unwrap_or_default())
    }
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
