//! Moving names.

use super::create::{check_name, presence};
use super::transaction::Transaction;
use super::{Namespace, ROOT, Removed};
use crate::Error;
use crate::schema::{Delta, Ino, Inode, Time};

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

/// What a rename did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// What has the new name now.
    pub moved: Inode,
    /// What has the old name now, after an exchange.
    pub exchanged: Option<Inode>,
    /// What had the new name before and lost it.
    pub replaced: Option<Removed>,
}

impl Namespace {
    /// Moves a name.
    ///
    /// # Errors
    /// As rename(2), or when the engine fails.
    pub fn rename(
        &self,
        parent: Ino,
        name: &[u8],
        new_parent: Ino,
        new_name: &[u8],
        mode: RenameMode,
    ) -> Result<Renamed, Error> {
        check_name(new_name)?;
        self.transact(|transaction| {
            transaction.dir(parent)?;
            transaction.dir(new_parent)?;
            let Some(from) = transaction.dentry(parent, name)? else {
                return Err(Error::NotFound);
            };
            let source = transaction.inode(from.ino)?;
            if source.is_dir() {
                transaction.require_outside(new_parent, source.ino)?;
            }
            let to = transaction.dentry(new_parent, new_name)?;
            let now = Time::now();
            match (to, mode) {
                (Some(_), RenameMode::NoReplace) => Err(Error::Exists),
                (None, RenameMode::Exchange) => Err(Error::NotFound),
                (Some(to), _) if to.ino == source.ino => Ok(Renamed {
                    moved: source,
                    exchanged: None,
                    replaced: None,
                }),
                (Some(to), RenameMode::Exchange) => {
                    let target = transaction.inode(to.ino)?;
                    if target.is_dir() {
                        transaction.require_outside(parent, target.ino)?;
                    }
                    transaction.put_dentry(parent, name, &target);
                    transaction.put_dentry(new_parent, new_name, &source);
                    let moved = transaction.relocate(source, parent, new_parent, now)?;
                    let target = transaction.inode(to.ino)?;
                    let exchanged = transaction.relocate(target, new_parent, parent, now)?;
                    transaction.touch(parent, now)?;
                    transaction.touch(new_parent, now)?;
                    Ok(Renamed {
                        moved,
                        exchanged: Some(exchanged),
                        replaced: None,
                    })
                }
                (to, _) => {
                    let replaced = match to {
                        Some(to) => Some(transaction.replace(to.ino, &source, new_parent, now)?),
                        None => None,
                    };
                    transaction.delete_dentry(parent, name);
                    transaction.put_dentry(new_parent, new_name, &source);
                    let moved = transaction.relocate(source, parent, new_parent, now)?;
                    transaction.touch(parent, now)?;
                    transaction.touch(new_parent, now)?;
                    Ok(Renamed {
                        moved,
                        exchanged: None,
                        replaced,
                    })
                }
            }
        })
    }
}

impl Transaction<'_> {
    /// Refuses to move a directory below itself.
    fn require_outside(&mut self, dir: Ino, moved: Ino) -> Result<(), Error> {
        let mut dir = dir;
        while dir != ROOT {
            if dir == moved {
                return Err(Error::Loop);
            }
            dir = self.parent_of(dir)?;
        }
        if moved == ROOT {
            Err(Error::IsRoot)
        } else {
            Ok(())
        }
    }

    fn touch(&mut self, dir: Ino, now: Time) -> Result<(), Error> {
        let mut dir = self.inode(dir)?;
        dir.mtime = now;
        dir.ctime = now;
        self.put_inode(dir);
        Ok(())
    }

    /// Takes the name `source` is to get from what has it.
    fn replace(&mut self, ino: Ino, source: &Inode, dir: Ino, now: Time) -> Result<Removed, Error> {
        let target = self.inode(ino)?;
        match (source.is_dir(), target.is_dir()) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
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
    fn relocate(&mut self, inode: Inode, from: Ino, to: Ino, now: Time) -> Result<Inode, Error> {
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
        self.put_inode(inode.clone());
        Ok(inode)
    }
}
