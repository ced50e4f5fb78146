//! Creating files, directories and links.

use shale_index::schema::{Inode, S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use shale_index::{Ino, NewNode};
use shale_store::CurrentInode;

use crate::acl::{self, Acl};
use crate::policy::Policy;
use crate::privileges::S_ISGID;
use crate::{Access, Attr, Caller, Error, Fs, Handle};

/// Longest target of a symbolic link, without the final NUL.
const TARGET_MAX: usize = 4095;

/// What to create.
struct Node<'a> {
    /// Type and permissions, before the umask or a default access control list.
    mode: u32,
    rdev: u32,
    /// Of a symbolic link.
    target: &'a [u8],
}

/// Mode and extended attributes of a new inode.
#[derive(Clone)]
struct Inherited {
    mode: u32,
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Node<'_> {
    /// The inode to create in a directory. A set-group-ID directory passes its group on, and to a
    /// directory the bit itself.
    fn made_in(
        &self,
        dir: &Inode,
        caller: &Caller,
        policy: &Policy,
        inherited: &Inherited,
    ) -> NewNode {
        let Inherited { mut mode, xattrs } = inherited.clone();
        let mut gid = caller.gid;
        if dir.mode & S_ISGID != 0 {
            gid = dir.gid;
            if mode & S_IFMT == S_IFDIR {
                mode |= S_ISGID;
            }
        }
        NewNode {
            mode,
            uid: caller.uid,
            gid,
            rdev: self.rdev,
            target: self.target.to_vec(),
            chunk_shift: policy.chunk_shift,
            xattrs,
        }
    }
}

impl Fs {
    /// Creates and opens a regular file.
    ///
    /// # Errors
    /// As [`Fs::mknod`].
    pub fn create(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        access: Access,
    ) -> Result<(Attr, Handle), Error> {
        let generation = self.policies.generation();
        let policy = self.policy_in(parent)?;
        let node = Node {
            mode: mode & !S_IFMT | S_IFREG,
            rdev: 0,
            target: b"",
        };
        self.store.admit_names()?;
        let inherited = self.inherit(caller, parent, &node)?;
        let (inode, file) = self.store.create_file(parent, name, |dir| {
            node.made_in(dir, caller, &policy, &inherited)
        })?;
        let handle = Handle::new(file, access);
        self.begin_policy(&handle, generation, &policy);
        if let Err(e) = self.finish_names() {
            self.release(handle);
            return Err(e);
        }
        Ok((CurrentInode::from(inode).into(), handle))
    }

    /// Creates a file, fifo, socket or device.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `ENAMETOOLONG`, or when the store fails.
    pub fn mknod(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
        rdev: u32,
    ) -> Result<Attr, Error> {
        let mode = if mode & S_IFMT == 0 {
            mode | S_IFREG
        } else {
            mode
        };
        let node = Node {
            mode,
            rdev,
            target: b"",
        };
        self.make(caller, parent, name, &node)
    }

    /// Creates a directory.
    ///
    /// # Errors
    /// As [`Fs::mknod`].
    pub fn mkdir(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        mode: u32,
    ) -> Result<Attr, Error> {
        let node = Node {
            mode: mode & !S_IFMT | S_IFDIR,
            rdev: 0,
            target: b"",
        };
        self.make(caller, parent, name, &node)
    }

    /// Creates a symbolic link.
    ///
    /// # Errors
    /// As [`Fs::mknod`], and `ENAMETOOLONG` for a target that is too long.
    pub fn symlink(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        target: &[u8],
    ) -> Result<Attr, Error> {
        if target.len() > TARGET_MAX {
            return Err(Error::NameTooLong);
        }
        let node = Node {
            mode: S_IFLNK | 0o777,
            rdev: 0,
            target,
        };
        self.make(caller, parent, name, &node)
    }

    /// Creates an inode under the policy of its directory.
    fn make(
        &self,
        caller: &Caller,
        parent: Ino,
        name: &[u8],
        node: &Node<'_>,
    ) -> Result<Attr, Error> {
        self.store.admit_names()?;
        let policy = self.policy_in(parent)?;
        let inherited = self.inherit(caller, parent, node)?;
        let inode = self.store.create(parent, name, |dir| {
            node.made_in(dir, caller, &policy, &inherited)
        })?;
        self.finish_names()?;
        Ok(CurrentInode::from(inode).into())
    }

    /// Mode and access control lists of a new inode: from the default list of its directory, or
    /// from the umask when there is none.
    fn inherit(&self, caller: &Caller, parent: Ino, node: &Node<'_>) -> Result<Inherited, Error> {
        if node.mode & S_IFMT == S_IFLNK {
            return Ok(Inherited {
                mode: node.mode,
                xattrs: Vec::new(),
            });
        }
        let stored = self.store.xattr(parent, acl::DEFAULT)?;
        let default = match &stored {
            Some(bytes) => Acl::parse(bytes)?,
            None => None,
        };
        let (Some(bytes), Some(default)) = (stored, default) else {
            return Ok(Inherited {
                mode: node.mode & !(caller.umask & 0o777),
                xattrs: Vec::new(),
            });
        };
        let (access, mode) = default.inherit(node.mode);
        let mut xattrs = Vec::new();
        if !access.is_minimal() {
            xattrs.push((acl::ACCESS.to_vec(), access.encode()));
        }
        if mode & S_IFMT == S_IFDIR {
            xattrs.push((acl::DEFAULT.to_vec(), bytes));
        }
        Ok(Inherited { mode, xattrs })
    }
}
