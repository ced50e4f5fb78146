//! Names that move.

use super::change::Change;
use super::create::{check_name, presence};
use super::{Namespace, ROOT, Removed, refused};
use crate::Error;
use crate::kv::Version;
use crate::schema::{Delta, Inode, Time};

/// What a rename does when the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Refuses (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two (`RENAME_EXCHANGE`); the new name must exist.
    Exchange,
}

impl Namespace {
    /// Moves a name. What the new name stood for before, if it lost a name by that, is returned.
    ///
    /// # Errors
    /// As rename(2), or when the engine fails.
    pub fn rename(
        &self,
        parent: u64,
        name: &[u8],
        new_parent: u64,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<(Option<Removed>, Version), Error> {
        check_name(new_name)?;
        self.transact(|change| {
            change.dir(parent)?;
            change.dir(new_parent)?;
            let Some(from) = change.dentry(parent, name)? else {
                return refused(libc::ENOENT);
            };
            let source = change.inode(from.ino)?;
            if source.is_dir() {
                change.require_outside(new_parent, source.ino)?;
            }
            let to = change.dentry(new_parent, new_name)?;
            let now = Time::now();
            match (to, mode) {
                (Some(_), RenameMode::NoReplace) => refused(libc::EEXIST),
                (None, RenameMode::Exchange) => refused(libc::ENOENT),
                (Some(to), _) if to.ino == source.ino => Ok(None),
                (Some(to), RenameMode::Exchange) => {
                    let target = change.inode(to.ino)?;
                    if target.is_dir() {
                        change.require_outside(parent, target.ino)?;
                    }
                    change.put_dentry(parent, name, &target);
                    change.put_dentry(new_parent, new_name, &source);
                    change.relocate(source, parent, new_parent, now)?;
                    let target = change.inode(to.ino)?;
                    change.relocate(target, new_parent, parent, now)?;
                    change.touch(parent, now)?;
                    change.touch(new_parent, now)?;
                    Ok(None)
                }
                (to, _) => {
                    let removed = match to {
                        Some(to) => Some(change.replace(to.ino, &source, new_parent, now)?),
                        None => None,
                    };
                    change.delete_dentry(parent, name);
                    change.put_dentry(new_parent, new_name, &source);
                    change.relocate(source, parent, new_parent, now)?;
                    change.touch(parent, now)?;
                    change.touch(new_parent, now)?;
                    Ok(removed)
                }
            }
        })
    }
}

impl Change<'_> {
    /// Refuses to move a directory below itself.
    fn require_outside(&mut self, dir: u64, moved: u64) -> Result<(), Error> {
        let mut dir = dir;
        while dir != ROOT {
            if dir == moved {
                return refused(libc::EINVAL);
            }
            dir = self.parent_of(dir)?;
        }
        if moved == ROOT {
            refused(libc::EBUSY)
        } else {
            Ok(())
        }
    }

    fn touch(&mut self, dir: u64, now: Time) -> Result<(), Error> {
        let mut dir = self.inode(dir)?;
        dir.mtime = now;
        dir.ctime = now;
        self.put_inode(dir);
        Ok(())
    }

    /// Takes the name `source` is to get from what has it.
    fn replace(&mut self, ino: u64, source: &Inode, dir: u64, now: Time) -> Result<Removed, Error> {
        let target = self.inode(ino)?;
        match (source.is_dir(), target.is_dir()) {
            (true, false) => refused(libc::ENOTDIR),
            (false, true) => refused(libc::EISDIR),
            (false, false) => self.drop_link(target, dir, now),
            (true, true) => {
                let removed = self.drop_dir(target, now)?;
                let mut above = self.inode(dir)?;
                above.nlink -= 1;
                self.put_inode(above);
                Ok(removed)
            }
        }
    }

    /// Carries an inode, its subtree's totals and a directory's link from one parent to another.
    fn relocate(&mut self, inode: Inode, from: u64, to: u64, now: Time) -> Result<(), Error> {
        // A rename over another name of `inode` may have changed it meanwhile.
        let mut inode = self.inode(inode.ino)?;
        inode.ctime = now;
        if from != to && (inode.is_dir() || inode.parent == from) {
            let mut moved = presence(&inode);
            if inode.is_dir() {
                let below: Delta = self.rollup(inode.ino)?.as_delta();
                moved = moved.and(&below);
                let mut above = self.inode(from)?;
                above.nlink -= 1;
                self.put_inode(above);
                let mut above = self.inode(to)?;
                above.nlink += 1;
                self.put_inode(above);
                self.forget_parent(inode.ino);
            }
            self.account(from, &moved.negated())?;
            self.account(to, &moved)?;
            inode.parent = to;
        }
        self.put_inode(inode);
        Ok(())
    }
}
