//! Removing names, and inodes with their last name.

use std::collections::BTreeMap;

use super::create::presence;
use super::transaction::Transaction;
use super::{Namespace, ROOT};
use crate::Error;
use crate::extent::PackId;
use crate::schema::{Ino, Inode, Time, keys};

/// What lost its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The inode.
    pub ino: Ino,
    /// Whether that was its last name: it is an orphan now, to be purged when no process uses it.
    pub orphaned: bool,
}

impl Namespace {
    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::IsDirectory`], or when the engine fails.
    pub fn unlink(&self, parent: Ino, name: &[u8]) -> Result<Removed, Error> {
        self.transact(|transaction| {
            let mut dir = transaction.dir(parent)?;
            let Some(dentry) = transaction.dentry(parent, name)? else {
                return Err(Error::NotFound);
            };
            let inode = transaction.inode(dentry.ino)?;
            if inode.is_dir() {
                return Err(Error::IsDirectory);
            }
            let now = Time::now();
            transaction.delete_dentry(parent, name);
            dir.mtime = now;
            dir.ctime = now;
            transaction.put_inode(dir);
            transaction.drop_link(inode, parent, now)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NotEmpty`], or when the engine fails.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<Removed, Error> {
        self.transact(|transaction| {
            let mut dir = transaction.dir(parent)?;
            let Some(dentry) = transaction.dentry(parent, name)? else {
                return Err(Error::NotFound);
            };
            let victim = transaction.dir(dentry.ino)?;
            let now = Time::now();
            transaction.delete_dentry(parent, name);
            dir.nlink -= 1;
            dir.mtime = now;
            dir.ctime = now;
            transaction.put_inode(dir);
            transaction.drop_dir(victim, now)
        })
    }

    /// Frees an orphan: its inode, attributes, commit records, and its bytes in packs.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn purge(&self, ino: Ino, freed: &BTreeMap<PackId, i64>) -> Result<(), Error> {
        self.transact(|transaction| {
            let inode = transaction.inode(ino)?;
            if inode.nlink > 0 {
                return Err(Error::StillNamed);
            }
            transaction.delete_inode(ino);
            let txn = transaction.txn();
            txn.delete(keys::orphan(ino));
            txn.delete(keys::stored(ino));
            txn.delete(keys::incompressible(ino));
            let (start, end) = keys::xattrs(ino);
            txn.delete_range(start, end);
            let (start, end) = keys::commits(ino);
            txn.delete_range(start, end);
            for (&pack, &bytes) in freed {
                transaction.use_pack(pack, -bytes);
            }
            Ok(())
        })
    }
}

impl Transaction<'_> {
    /// Takes one name in `dir` from something that is not a directory.
    pub(super) fn drop_link(
        &mut self,
        mut inode: Inode,
        dir: Ino,
        now: Time,
    ) -> Result<Removed, Error> {
        let counted = presence(&inode);
        inode.nlink = inode.nlink.saturating_sub(1);
        inode.ctime = now;
        let orphaned = inode.nlink == 0;
        if orphaned {
            self.account(inode.parent, &counted.negated())?;
            self.txn().put(keys::orphan(inode.ino), Vec::new());
        } else if inode.parent == dir && dir != ROOT {
            // Where its other names are is not recorded, so it counts at the top from now on.
            self.account(dir, &counted.negated())?;
            self.account(ROOT, &counted)?;
            inode.parent = ROOT;
        }
        let ino = inode.ino;
        self.put_inode(inode);
        Ok(Removed { ino, orphaned })
    }

    /// Takes the name from an empty directory. The caller corrects its parent's link count.
    pub(super) fn drop_dir(&mut self, mut victim: Inode, now: Time) -> Result<Removed, Error> {
        self.require_empty(victim.ino)?;
        self.account(victim.parent, &presence(&victim).negated())?;
        self.forget_parent(victim.ino);
        victim.nlink = 0;
        victim.ctime = now;
        self.txn().put(keys::orphan(victim.ino), Vec::new());
        let ino = victim.ino;
        self.put_inode(victim);
        Ok(Removed {
            ino,
            orphaned: true,
        })
    }
}
