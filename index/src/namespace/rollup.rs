//! Totals of directories.

use std::collections::BTreeSet;

use super::transaction::Transaction;
use super::{Namespace, ROOT, damaged};
use crate::Error;
use crate::kv::{Compare, Counter, Version, Want};
use crate::schema::{Delta, Ino, Rollup, keys, totals};

/// Directories whose totals are passed on in one transaction at most.
const PASSED_AT_ONCE: usize = 12;

impl Namespace {
    /// Totals below a directory.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn rollup(&self, dir: Ino) -> Result<Rollup, Error> {
        if self.old_format {
            return self.old_rollup(dir);
        }
        Ok(Rollup::of(&self.totals(dir)?))
    }

    /// The counter of a directory.
    pub(super) fn totals(&self, dir: Ino) -> Result<Counter, Error> {
        let key = keys::totals(dir);
        let mut snapshot = self.kv.get_many(&[Want::Counter(key.clone())])?;
        match snapshot.found.pop().and_then(|mut pairs| pairs.pop()) {
            Some((_, found)) => Counter::decode(&found.value).ok_or_else(|| damaged(&key)),
            None => Ok(Counter::default()),
        }
    }

    /// Passes totals on to the directories above, level by level, and returns how many directories
    /// had some. Only a shared index needs it: there a change is counted where it happens, and
    /// goes up later.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn pass_totals_on(&self) -> Result<usize, Error> {
        let mut passed = 0;
        loop {
            let (start, end) = keys::all_unpassed();
            let marks = self.kv.range(&start, &end, PASSED_AT_ONCE)?;
            if marks.is_empty() {
                return Ok(passed);
            }
            passed += marks.len();
            self.transact(|transaction| {
                transaction.exclude_moves()?;
                let mut dirs = Vec::new();
                let mut parents = BTreeSet::new();
                for (key, mark) in &marks {
                    let dir = keys::unpassed_of(key).ok_or_else(|| damaged(key))?;
                    let parent = match transaction.inode(dir) {
                        Ok(inode) => Some(inode.parent),
                        // It was purged, and passed on what it had when it lost its name.
                        Err(Error::NotFound) => None,
                        Err(error) => return Err(error),
                    };
                    parents.extend(parent.filter(|&parent| parent != dir));
                    dirs.push((dir, parent, key, mark.version));
                }
                // One that gets something now passes it on the next time.
                dirs.retain(|(dir, ..)| !parents.contains(dir));
                for (dir, parent, key, version) in dirs {
                    let pending = self.take_mark(transaction, dir, key, version)?;
                    if let Some(parent) = parent.filter(|_| dir != ROOT) {
                        transaction.pass_on(dir, &pending);
                        transaction.account(parent, &pending)?;
                    }
                }
                Ok(())
            })
            .or_else(|error| match error {
                // Other sessions pass on the same ones, or count more.
                Error::Stale => Ok(()),
                error => Err(error),
            })?;
        }
    }

    /// Takes the mark from a directory, and returns what it has to pass on.
    fn take_mark(
        &self,
        transaction: &mut Transaction<'_>,
        dir: Ino,
        key: &[u8],
        version: Version,
    ) -> Result<Delta, Error> {
        let wants = [Want::Key(key.to_vec()), Want::Counter(keys::totals(dir))];
        let snapshot = self.kv.get_many(&wants)?;
        let mut found = snapshot.found.into_iter();
        let mark = found.next().and_then(|mut pairs| pairs.pop());
        if mark.is_none_or(|(_, mark)| mark.version != version) {
            return Err(Error::Stale);
        }
        let counter = match found.next().and_then(|mut pairs| pairs.pop()) {
            Some((key, found)) => Counter::decode(&found.value).ok_or_else(|| damaged(&key))?,
            None => Counter::default(),
        };
        let txn = transaction.txn();
        // What is counted from now on puts a newer mark.
        txn.compare(Compare::VersionIs(key.to_vec(), version));
        txn.delete(key.to_vec());
        Ok(totals::pending(&counter))
    }
}
