//! New names: files, directories, links.

use super::{NAME_MAX, Namespace, refused};
use crate::Error;
use crate::kv::Version;
use crate::schema::{Delta, Inode, MapRoot, Phase, S_IFDIR, S_IFMT, Time, keys};

/// Most names an inode can have.
const LINK_MAX: u32 = 0x7fff_ffff;

/// What a new inode is to be.
#[derive(Clone, Debug)]
pub struct NewNode {
    /// Type and permissions.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number of a device node.
    pub rdev: u32,
    /// Target of a symbolic link.
    pub target: Vec<u8>,
    /// Chunk size of a regular file as a power of two.
    pub chunk_shift: u8,
    /// Extended attributes it begins with.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Namespace {
    /// Creates an inode of any type with its first name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT` (the directory is gone), `ENOTDIR`, `ENAMETOOLONG`, or when the engine
    /// fails.
    pub fn create(
        &self,
        parent: u64,
        name: &[u8],
        node: &NewNode,
    ) -> Result<(Inode, Version), Error> {
        check_name(name)?;
        self.transact(|change| {
            let mut dir = change.dir(parent)?;
            if change.dentry(parent, name)?.is_some() {
                return refused(libc::EEXIST);
            }
            let now = Time::now();
            let is_dir = node.mode & S_IFMT == S_IFDIR;
            let inode = Inode {
                ino: change.new_ino()?,
                mode: node.mode,
                uid: node.uid,
                gid: node.gid,
                rdev: node.rdev,
                nlink: if is_dir { 2 } else { 1 },
                size: node.target.len() as u64,
                stored: 0,
                atime: now,
                mtime: now,
                ctime: now,
                btime: now,
                parent,
                chunk_shift: node.chunk_shift,
                phase: Phase::Fresh,
                target: node.target.clone(),
                map: MapRoot::Inline(Vec::new()),
            };
            for (name, value) in &node.xattrs {
                change
                    .txn()
                    .put(keys::xattr(inode.ino, name), value.clone());
            }
            change.put_dentry(parent, name, &inode);
            if is_dir {
                dir.nlink += 1;
            }
            dir.mtime = now;
            dir.ctime = now;
            change.put_inode(dir);
            change.account(parent, &presence(&inode))?;
            change.put_inode(inode.clone());
            Ok(inode)
        })
    }

    /// Gives an inode another name.
    ///
    /// # Errors
    /// `EEXIST`, `ENOENT`, `ENOTDIR`, `EPERM` (a directory), `EMLINK`, or when the engine fails.
    pub fn link(&self, ino: u64, parent: u64, name: &[u8]) -> Result<(Inode, Version), Error> {
        check_name(name)?;
        self.transact(|change| {
            let mut dir = change.dir(parent)?;
            let mut inode = change.inode(ino)?;
            if inode.is_dir() {
                return refused(libc::EPERM);
            }
            if inode.nlink == 0 {
                return refused(libc::ENOENT);
            }
            if inode.nlink >= LINK_MAX {
                return refused(libc::EMLINK);
            }
            if change.dentry(parent, name)?.is_some() {
                return refused(libc::EEXIST);
            }
            let now = Time::now();
            inode.nlink += 1;
            inode.ctime = now;
            dir.mtime = now;
            dir.ctime = now;
            change.put_dentry(parent, name, &inode);
            change.put_inode(dir);
            change.put_inode(inode.clone());
            Ok(inode)
        })
    }
}

/// What an inode adds to the totals of the directories above it.
pub(super) fn presence(inode: &Inode) -> Delta {
    if inode.is_dir() {
        Delta {
            dirs: 1,
            ..Delta::default()
        }
    } else {
        Delta {
            raw: if inode.is_file() {
                inode.size as i64
            } else {
                0
            },
            stored: inode.stored as i64,
            files: 1,
            dirs: 0,
        }
    }
}

pub(super) fn check_name(name: &[u8]) -> Result<(), Error> {
    if name.len() > NAME_MAX {
        return refused(libc::ENAMETOOLONG);
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|&b| b == b'/' || b == 0)
    {
        return refused(libc::EINVAL);
    }
    Ok(())
}
