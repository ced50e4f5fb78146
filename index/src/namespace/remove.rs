//! Removing names, and inodes with their last name.

use super::create::presence;
use super::transaction::Transaction;
use super::{Namespace, ROOT};
use crate::Error;
use crate::schema::{Ino, Inode, Time};

/// An inode that lost a name.
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
            transaction.dir(parent)?;
            let Some(dentry) = transaction.dentry(parent, name)? else {
                return Err(Error::NotFound);
            };
            let inode = transaction.inode(dentry.ino)?;
            if inode.is_dir() {
                return Err(Error::IsDirectory);
            }
            let now = Time::now();
            transaction.delete_dentry(parent, name);
            transaction.touch(parent, 0, now);
            transaction.drop_link(inode, parent, now)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// [`Error::NotFound`], [`Error::NotDirectory`], [`Error::NotEmpty`], or when the engine fails.
    pub fn rmdir(&self, parent: Ino, name: &[u8]) -> Result<Removed, Error> {
        self.transact(|transaction| {
            transaction.dir(parent)?;
            let Some(dentry) = transaction.dentry(parent, name)? else {
                return Err(Error::NotFound);
            };
            let victim = transaction.dir(dentry.ino)?;
            let now = Time::now();
            transaction.delete_dentry(parent, name);
            transaction.touch(parent, -1, now);
            transaction.drop_dir(victim, now)
        })
    }
}

impl Transaction<'_> {
    /// Removes one name in `dir` of an inode that is not a directory.
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
            self.put_orphan(inode.ino);
        } else if inode.parent == dir && dir != ROOT {
            // The places of its other names are not recorded, so it counts at the top from now on.
            self.account(dir, &counted.negated())?;
            self.account(ROOT, &counted)?;
            inode.parent = ROOT;
        }
        let ino = inode.ino;
        self.put_inode(inode);
        Ok(Removed { ino, orphaned })
    }

    /// Takes the name from an empty directory. The caller corrects what its parent counts.
    pub(super) fn drop_dir(&mut self, mut victim: Inode, now: Time) -> Result<Removed, Error> {
        self.require_empty(victim.ino)?;
        self.account(victim.parent, &presence(&victim).negated())?;
        self.pass_rest_on(&victim)?;
        victim.nlink = 0;
        victim.ctime = now;
        self.put_orphan(victim.ino);
        let ino = victim.ino;
        self.put_inode(victim);
        Ok(Removed {
            ino,
            orphaned: true,
        })
    }
}
