//! New inodes of every type.

use shale_store::index::NewNode;
use shale_store::index::schema::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};

use crate::acl::{self, Acl};
use crate::error::refused;
use crate::{Attr, Caller, Error, Fs, Handle};

const S_ISGID: u32 = 0o2000;
/// Longest target of a symbolic link, without the final NUL.
const TARGET_MAX: usize = 4095;

impl Fs {
    /// Creates and opens a regular file, for writing if `writes`.
    ///
    /// # Errors
    /// As [`Fs::mknod`].
    pub fn create(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        writes: bool,
    ) -> Result<(Attr, Handle), Error> {
        let generation = self.policies.generation();
        let policy = self.policy_in(parent)?;
        let mode = mode & !S_IFMT | S_IFREG;
        let attr = self.mknod(caller, parent, name, mode, umask, 0)?;
        let handle = Handle::new(self.store.file(attr.ino)?, writes);
        self.begin_policy(&handle, generation, &policy);
        Ok((attr, handle))
    }

    /// Creates a file, fifo, socket or device.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, or when the store fails.
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u32,
    ) -> Result<Attr, Error> {
        let mode = if mode & S_IFMT == 0 {
            mode | S_IFREG
        } else {
            mode
        };
        self.make(caller, parent, name, mode, umask, rdev, Vec::new())
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As [`Fs::mknod`].
    pub fn mkdir(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
    ) -> Result<Attr, Error> {
        let mode = mode & !S_IFMT | S_IFDIR;
        self.make(caller, parent, name, mode, umask, 0, Vec::new())
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// As [`Fs::mknod`], and `ENAMETOOLONG` for a target that is too long.
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr, Error> {
        if target.len() > TARGET_MAX {
            return refused(libc::ENAMETOOLONG);
        }
        self.make(caller, parent, name, S_IFLNK | 0o777, 0, 0, target.to_vec())
    }

    #[allow(clippy::too_many_arguments)]
    fn make(
        &self,
        caller: &Caller,
        parent: u64,
        name: &[u8],
        mode: u32,
        umask: u32,
        rdev: u32,
        target: Vec<u8>,
    ) -> Result<Attr, Error> {
        self.store.admit_names()?;
        let dir = self.namespace().inode(parent)?;
        let is_dir = mode & S_IFMT == S_IFDIR;
        let (mut mode, xattrs) = if mode & S_IFMT == S_IFLNK {
            (mode, Vec::new())
        } else {
            self.inherit(parent, mode, umask)?
        };
        let mut gid = caller.gid;
        if dir.mode & S_ISGID != 0 {
            gid = dir.gid;
            if is_dir {
                mode |= S_ISGID;
            }
        }
        let node = NewNode {
            mode,
            uid: caller.uid,
            gid,
            rdev,
            target,
            chunk_shift: self.policy_in(parent)?.chunk_shift,
            xattrs,
        };
        let (inode, _) = self.namespace().create(parent, name, &node)?;
        self.names_changed()?;
        Ok(self.attr(inode))
    }

    /// Mode and access control lists of a new inode: from the default list of its directory, or
    /// from the umask when there is none.
    #[allow(clippy::type_complexity)]
    fn inherit(
        &self,
        parent: u64,
        mode: u32,
        umask: u32,
    ) -> Result<(u32, Vec<(Vec<u8>, Vec<u8>)>), Error> {
        let Some(bytes) = self.namespace().xattr(parent, acl::DEFAULT)? else {
            return Ok((mode & !(umask & 0o777), Vec::new()));
        };
        let Some(default) = Acl::parse(&bytes)? else {
            return Ok((mode & !(umask & 0o777), Vec::new()));
        };
        let (access, mode) = default.inherit(mode);
        let mut xattrs = Vec::new();
        if !access.is_minimal() {
            xattrs.push((acl::ACCESS.to_vec(), access.encode()));
        }
        if mode & S_IFMT == S_IFDIR {
            xattrs.push((acl::DEFAULT.to_vec(), bytes));
        }
        Ok((mode, xattrs))
    }
}
