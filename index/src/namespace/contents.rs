//! What a file holds as of one commit: its inode, and the records that are not folded yet.

use super::{Namespace, damaged};
use crate::Error;
use crate::kv::{Counter, Found, Version, Want};
use crate::schema::{CommitRecord, Effect, Ino, Inode, RecordId, keys, totals};

/// A file, or any other inode, as one snapshot shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contents {
    /// The snapshot.
    pub version: Version,
    /// The inode as it is stored. What the records have changed is not in it.
    pub inode: Inode,
    /// The commit that wrote the inode.
    pub inode_version: Version,
    /// Commit records that are not folded yet, in the order of their commits.
    pub records: Vec<Record>,
    /// Totals of a directory.
    totals: Counter,
}

/// A commit record of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Which one.
    pub id: RecordId,
    /// The commit that wrote it.
    pub version: Version,
    /// What it says.
    pub record: CommitRecord,
}

/// Asks for everything about an inode.
pub(super) fn want(ino: Ino) -> Want {
    let (start, end) = keys::all_of(ino);
    Want::Range {
        start,
        end,
        limit: usize::MAX,
    }
}

impl Contents {
    /// Reads what [`want`] has found.
    pub(super) fn parse(ino: Ino, version: Version, found: Found) -> Result<Self, Error> {
        let mut inode = None;
        let mut records = Vec::new();
        let mut totals = Counter::default();
        for (key, value) in found {
            let broken = || damaged(&key);
            if keys::inode_of(&key).is_some() {
                let decoded = Inode::decode(ino, &value.value).ok_or_else(broken)?;
                inode = Some((decoded, value.version));
            } else if let Some((_, id)) = keys::record_of(&key) {
                records.push(Record {
                    id,
                    version: value.version,
                    record: CommitRecord::decode(&value.value).ok_or_else(broken)?,
                });
            } else if keys::totals_of(&key).is_some() {
                totals = Counter::decode(&value.value).ok_or_else(broken)?;
            } else {
                return Err(broken());
            }
        }
        let (inode, inode_version) = inode.ok_or(Error::NotFound)?;
        // Those of one session, which may share a commit after an upgrade, are in order already.
        records.sort_by_key(|record| record.version);
        Ok(Self {
            version,
            inode,
            inode_version,
            records,
            totals,
        })
    }

    /// An inode with records that were read one by one.
    #[must_use]
    pub fn of(inode: Inode, mut records: Vec<Record>) -> Self {
        records.sort_by_key(|record| (record.version, record.id));
        Self {
            version: Version::MAX,
            inode,
            inode_version: Version::MAX,
            records,
            totals: Counter::default(),
        }
    }

    /// The inode with everything that its records or its totals say.
    #[must_use]
    pub fn current(&self) -> Inode {
        let mut inode = self.inode.clone();
        if inode.is_dir() {
            present(&mut inode, &self.totals);
        }
        for Record {
            record, version, ..
        } in &self.records
        {
            let times = match record.effect {
                Effect::Laid => continue,
                Effect::Written {
                    reached,
                    times,
                    stored,
                } => {
                    inode.size = inode.size.max(reached);
                    inode.stored = inode.stored.saturating_add(stored);
                    times
                }
                Effect::Cut { size, times } => {
                    inode.size = size;
                    times
                }
            };
            if *version > inode.since {
                inode.mtime = times.0;
                inode.ctime = inode.ctime.max(times.1);
            }
        }
        inode
    }
}

/// Gives a directory the links and times that its totals tell of.
fn present(inode: &mut Inode, totals: &Counter) {
    if inode.nlink > 0 {
        let subdirs = u32::try_from(totals::subdirs(totals)).unwrap_or(0);
        inode.nlink = subdirs.saturating_add(2);
    }
    if totals.latest > inode.since as i64 {
        let changed = totals::time_of(totals.latest);
        inode.mtime = changed;
        inode.ctime = inode.ctime.max(changed);
    }
}

impl Namespace {
    /// A file with its commit records, or any other inode, as of one commit.
    ///
    /// # Errors
    /// [`Error::NotFound`] when there is none, or when the engine fails or a record is damaged.
    pub fn contents(&self, ino: Ino) -> Result<Contents, Error> {
        if self.old_format {
            return self.old_contents(ino);
        }
        let mut snapshot = self.kv.get_many(&[want(ino)])?;
        let found = snapshot.found.pop().unwrap_or_default();
        Contents::parse(ino, snapshot.version, found)
    }

    /// A directory as programs see it; anything else is that already.
    pub(super) fn with_totals(&self, mut inode: Inode) -> Result<Inode, Error> {
        if inode.is_dir() && !self.old_format {
            let totals = self.totals(inode.ino)?;
            present(&mut inode, &totals);
        }
        Ok(inode)
    }
}
