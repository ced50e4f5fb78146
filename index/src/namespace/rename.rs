//! Moving names.

use std::cell::Cell;

use super::create::{check_name, presence};
use super::transaction::Transaction;
use super::{Namespace, ROOT, Removed};
use crate::Error;
use crate::schema::{Ino, Inode, Time};

/// The behaviour of a rename when the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// Replaces it.
    Replace,
    /// Refuses (`RENAME_NOREPLACE`).
    NoReplace,
    /// Swaps the two (`RENAME_EXCHANGE`); the new name must exist.
    Exchange,
}

/// The result of a rename.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Renamed {
    /// The inode that has the new name now.
    pub moved: Inode,
    /// The inode that has the old name now, after an exchange.
    pub exchanged: Option<Inode>,
    /// The inode that had the new name before and lost it.
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
        // Whether it moves a directory is known for sure only inside.
        let moves = Cell::new(false);
        let body = |transaction: &mut Transaction<'_>| {
            moves.set(false);
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
                    let dirs = source.is_dir() || target.is_dir();
                    moves.set(dirs && parent != new_parent);
                    transaction.begin_move(moves.get())?;
                    transaction.put_dentry(parent, name, &target);
                    transaction.put_dentry(new_parent, new_name, &source);
                    let moved = transaction.relocate(source, parent, new_parent, now)?;
                    let target = transaction.inode(to.ino)?;
                    let exchanged = transaction.relocate(target, new_parent, parent, now)?;
                    transaction.touch(parent, 0, now);
                    transaction.touch(new_parent, 0, now);
                    Ok(Renamed {
                        moved,
                        exchanged: Some(exchanged),
                        replaced: None,
                    })
                }
                (to, _) => {
                    moves.set(source.is_dir() && parent != new_parent);
                    transaction.begin_move(moves.get())?;
                    let replaced = match to {
                        Some(to) => Some(transaction.replace(to.ino, &source, new_parent, now)?),
                        None => None,
                    };
                    transaction.delete_dentry(parent, name);
                    transaction.put_dentry(new_parent, new_name, &source);
                    let moved = transaction.relocate(source, parent, new_parent, now)?;
                    transaction.touch(parent, 0, now);
                    transaction.touch(new_parent, 0, now);
                    Ok(Renamed {
                        moved,
                        exchanged: None,
                        replaced,
                    })
                }
            }
        };
        match self.transact(body) {
            Err(Error::Conflict) if moves.get() => {
                let renamed = self.transact_as(true, body);
                self.parents.lock().clear();
                renamed
            }
            renamed => renamed,
        }
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

    /// A move of a directory to another one excludes every other, in any session, so that what
    /// was found out about the directories above stays true. It fails where it is not alone.
    fn begin_move(&mut self, moves: bool) -> Result<(), Error> {
        if moves {
            self.require_exclusive()?;
            if self.is_shared() {
                self.exclude_moves()?;
            }
        }
        Ok(())
    }

    /// Removes the name that `source` will get from its present inode.
    fn replace(&mut self, ino: Ino, source: &Inode, dir: Ino, now: Time) -> Result<Removed, Error> {
        let target = self.inode(ino)?;
        match (source.is_dir(), target.is_dir()) {
            (true, false) => Err(Error::NotDirectory),
            (false, true) => Err(Error::IsDirectory),
            (false, false) => self.drop_link(target, dir, now),
            (true, true) => {
                let removed = self.drop_dir(target, now)?;
                self.touch(dir, -1, now);
                Ok(removed)
            }
        }
    }

    /// Moves an inode, its subtree's totals and a directory's link from one parent to another.
    fn relocate(&mut self, inode: Inode, from: Ino, to: Ino, now: Time) -> Result<Inode, Error> {
        // A rename over another name of `inode` may have changed it meanwhile.
        let mut inode = self.inode(inode.ino)?;
        inode.ctime = now;
        if from != to && (inode.is_dir() || inode.parent == from) {
            let mut moved = presence(&inode);
            if inode.is_dir() {
                moved = moved.and(&self.passed(inode.ino)?);
                self.touch(from, -1, now);
                self.touch(to, 1, now);
            }
            self.account(from, &moved.negated())?;
            self.account(to, &moved)?;
            inode.parent = to;
        }
        self.put_inode(inode.clone());
        Ok(inode)
    }
}
