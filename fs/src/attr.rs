//! Attributes as `stat(2)` shows them.

use shale_index::Ino;
use shale_index::schema::Time;
use shale_store::CurrentInode;

/// Attributes of an inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    /// Inode number.
    pub ino: Ino,
    /// Type and permissions.
    pub mode: u32,
    /// Number of names.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device number.
    pub rdev: u32,
    /// Logical size.
    pub size: u64,
    /// Stored bytes in units of 512.
    pub blocks: u64,
    /// Preferred size of requests.
    pub blksize: u32,
    /// Last access.
    pub atime: Time,
    /// Last change of contents.
    pub mtime: Time,
    /// Last change of the inode.
    pub ctime: Time,
    /// Creation.
    pub btime: Time,
}

impl From<CurrentInode> for Attr {
    fn from(CurrentInode { inode, unwritten }: CurrentInode) -> Self {
        Self {
            ino: inode.ino,
            mode: inode.mode,
            nlink: inode.nlink,
            uid: inode.uid,
            gid: inode.gid,
            rdev: inode.rdev,
            size: inode.size,
            blocks: (inode.stored + unwritten).div_ceil(512),
            blksize: if inode.is_file() {
                1 << inode.chunk_shift
            } else {
                4096
            },
            atime: inode.atime,
            mtime: inode.mtime,
            ctime: inode.ctime,
            btime: inode.btime,
        }
    }
}
