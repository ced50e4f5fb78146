//! Changing attributes and size.

use shale_index::schema::Time;
use shale_index::{AttrChange, Ino};

use crate::acl::{self, Acl};
use crate::durability::Change;
use crate::privileges::{CAPABILITY, without_privileges};
use crate::{Access, Attr, Error, Fs, Handle};

/// The attributes to change; `None` keeps the old value.
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
    /// A caller who changes the size may not keep set-id bits alive.
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

impl Fs {
    /// Changes attributes and size.
    ///
    /// # Errors
    /// `ENOENT`, `EISDIR`, `EINVAL`, `EFBIG`, or when the store fails.
    pub fn setattr(&self, ino: Ino, handle: Option<&Handle>, set: &SetAttr) -> Result<Attr, Error> {
        if let Some(size) = set.size {
            self.resize(ino, handle, size)?;
        }
        let mut set = *set;
        let chowned = set.uid.is_some() || set.gid.is_some();
        // A request for no change at all has a hidden meaning: a program is about to change the
        // contents in another way than by writing.
        let kill = chowned || (set.size.is_some() && set.kill_privileges) || set.is_empty();
        let mut privileges_gone = false;
        if kill && set.mode.is_none() {
            let inode = self.inode(ino)?;
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
            && let Some(bytes) = self.store.xattr(ino, acl::ACCESS)?
            && let Some(mut acl) = Acl::parse(&bytes)?
        {
            acl.set_mode(mode);
            change
                .xattrs
                .push((acl::ACCESS.to_vec(), Some(acl.encode())));
        }
        let seen = self.store.set_attr(ino, &change)?;
        self.finish_attributes()?;
        Ok(seen.into())
    }

    fn resize(&self, ino: Ino, handle: Option<&Handle>, size: u64) -> Result<(), Error> {
        let resize = |handle: &Handle| {
            self.follow_policy(handle)?;
            self.store.truncate(&handle.file, size)?;
            self.finish_and_wait(handle, Change::Contents { sync: false })
        };
        if let Some(handle) = handle {
            return resize(handle);
        }
        if self.inode(ino)?.is_dir() {
            return Err(Error::IsDirectory);
        }
        let handle = Handle::new(self.store.file(ino)?, Access::WRITE);
        let result = resize(&handle);
        self.release(handle);
        result
    }
}
