//! Changes of attributes and size.

use shale_store::index::AttrChange;
use shale_store::index::schema::Time;

use crate::acl::{self, Acl};
use crate::error::refused;
use crate::options::Synchronous;
use crate::{Attr, Error, Fs, Handle};

/// What to change; `None` leaves it as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permissions.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of contents.
    pub mtime: Option<Time>,
    /// Last change of the inode; now, when it is not given.
    pub ctime: Option<Time>,
    /// Whoever changes the size may not keep set-id bits alive.
    pub kill_privileges: bool,
}

impl SetAttr {
    /// Whether there is nothing to change.
    fn is_empty(&self) -> bool {
        let numbers = [self.mode, self.uid, self.gid];
        let times = [self.atime, self.mtime, self.ctime];
        self.size.is_none()
            && numbers.iter().all(Option::is_none)
            && times.iter().all(Option::is_none)
    }
}

/// The extended attribute that holds the capabilities of a program.
pub(super) const CAPABILITY: &[u8] = b"security.capability";
const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_IXGRP: u32 = 0o0010;

/// A mode without what a change of owner or contents takes away.
pub(super) fn without_privileges(mode: u32) -> u32 {
    let kept = mode & !S_ISUID;
    if mode & S_IXGRP == 0 {
        return kept;
    }
    kept & !S_ISGID
}

impl Fs {
    /// Changes attributes and size.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EINVAL`, `EFBIG`, or when the store fails.
    pub fn setattr(&self, ino: u64, handle: Option<&Handle>, set: &SetAttr) -> Result<Attr, Error> {
        if let Some(size) = set.size {
            let always = self.is_synchronous(Synchronous::Everything);
            match handle {
                Some(handle) => {
                    self.store.truncate(&handle.file, size)?;
                    if self.follow_policy(handle)? || always {
                        self.store.sync(&handle.file)?;
                    }
                }
                None => {
                    let inode = self.namespace().inode(ino)?;
                    if inode.is_dir() {
                        return refused(libc::EISDIR);
                    }
                    let sync = self.policy_of(&inode)?.sync || always;
                    let file = self.store.file(ino)?;
                    let result = self.store.truncate(&file, size).and_then(|()| {
                        if sync {
                            self.store.sync(&file)?;
                        }
                        Ok(())
                    });
                    self.store.close(file);
                    result?;
                }
            }
        }
        let mut set = *set;
        let chowned = set.uid.is_some() || set.gid.is_some();
        // Of a request for nothing at all only that is meant which the wire does not show:
        // somebody is about to change the contents in another way than by writing.
        let kill = chowned || (set.size.is_some() && set.kill_privileges) || set.is_empty();
        let mut privileges_gone = false;
        if kill && set.mode.is_none() {
            let inode = self.namespace().inode(ino)?;
            let kept = without_privileges(inode.mode);
            if !inode.is_dir() && kept != inode.mode {
                set.mode = Some(kept);
            }
            privileges_gone = inode.is_file();
        }
        let rest = [set.atime, set.mtime, set.ctime]
            .iter()
            .any(Option::is_some)
            || [set.mode, set.uid, set.gid].iter().any(Option::is_some);
        if !rest {
            return self.getattr(ino);
        }
        let mut change = AttrChange {
            mode: set.mode,
            uid: set.uid,
            gid: set.gid,
            atime: set.atime,
            mtime: set.mtime,
            ctime: Some(set.ctime.unwrap_or_else(Time::now)),
            xattrs: Vec::new(),
        };
        if privileges_gone {
            change.xattrs.push((CAPABILITY.to_vec(), None));
        }
        if let Some(mode) = set.mode
            && let Some(bytes) = self.namespace().xattr(ino, acl::ACCESS)?
            && let Some(mut acl) = Acl::parse(&bytes)?
        {
            acl.set_mode(mode);
            change
                .xattrs
                .push((acl::ACCESS.to_vec(), Some(acl.encode())));
        }
        let attr = self.attr(self.store.set_attr(ino, &change)?);
        self.attributes_changed()?;
        Ok(attr)
    }
}
