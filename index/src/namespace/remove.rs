//! Names that go, and inodes that go with their last name.

use std::collections::BTreeMap;

use super::change::Change;
use super::create::presence;
use super::{Namespace, ROOT, refused};
use crate::Error;
use crate::kv::Version;
use crate::schema::{Inode, Time, keys};

/// What lost its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    /// The inode.
    pub ino: u64,
    /// Whether that was its last name: it is an orphan now, to be purged when nobody uses it.
    pub orphaned: bool,
}

impl Namespace {
    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, or when the engine fails.
    pub fn unlink(&self, parent: u64, name: &[u8]) -> Result<(Removed, Version), Error> {
        self.transact(|change| {
            let mut dir = change.dir(parent)?;
            let Some(dentry) = change.dentry(parent, name)? else {
                return refused(libc::ENOENT);
            };
            let inode = change.inode(dentry.ino)?;
            if inode.is_dir() {
                return refused(libc::EISDIR);
            }
            let now = Time::now();
            change.delete_dentry(parent, name);
            dir.mtime = now;
            dir.ctime = now;
            change.put_inode(dir);
            change.drop_link(inode, parent, now)
        })
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ENOTEMPTY`, or when the engine fails.
    pub fn rmdir(&self, parent: u64, name: &[u8]) -> Result<(Removed, Version), Error> {
        self.transact(|change| {
            let mut dir = change.dir(parent)?;
            let Some(dentry) = change.dentry(parent, name)? else {
                return refused(libc::ENOENT);
            };
            let victim = change.dir(dentry.ino)?;
            let now = Time::now();
            change.delete_dentry(parent, name);
            dir.nlink -= 1;
            dir.mtime = now;
            dir.ctime = now;
            change.put_inode(dir);
            change.drop_dir(victim, now)
        })
    }

    /// Frees an orphan: its inode, attributes, commit records, and its bytes in packs.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn purge(&self, ino: u64, freed: &BTreeMap<u64, i64>) -> Result<Version, Error> {
        let ((), version) = self.transact(|change| {
            let inode = change.inode(ino)?;
            if inode.nlink > 0 {
                return refused(libc::EBUSY);
            }
            change.delete_inode(ino);
            let txn = change.txn();
            txn.delete(keys::orphan(ino));
            txn.delete(keys::loose(ino));
            txn.delete(keys::hard(ino));
            let (start, end) = keys::xattrs(ino);
            txn.delete_range(start, end);
            let (start, end) = keys::commits(ino);
            txn.delete_range(start, end);
            for (&pack, &bytes) in freed {
                change.use_pack(pack, -bytes);
            }
            Ok(())
        })?;
        Ok(version)
    }
}

impl Change<'_> {
    /// Takes one name in `dir` from something that is not a directory.
    pub(super) fn drop_link(
        &mut self,
        mut inode: Inode,
        dir: u64,
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
