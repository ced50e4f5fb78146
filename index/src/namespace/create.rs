//! New names: files, directories, links.

use super::{NAME_MAX, Namespace};
use crate::Error;
use crate::schema::{Delta, Ino, Inode, MapRoot, Phase, S_IFDIR, S_IFMT, Time, keys};

/// Most names an inode can have.
const LINK_MAX: u32 = 0x7fff_ffff;

/// The attributes of a new inode.
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
    /// Its first extended attributes.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Namespace {
    /// Creates an inode of any type with its first name.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`] (the directory), [`Error::NotDirectory`],
    /// [`Error::NameTooLong`], [`Error::InvalidName`], or when the engine fails.
    pub fn create(&self, parent: Ino, name: &[u8], node: &NewNode) -> Result<Inode, Error> {
        self.create_with(parent, name, |_| node.clone())
    }

    /// Like [`Namespace::create`]; the caller derives the new inode from the directory's inode.
    ///
    /// # Errors
    /// As [`Namespace::create`].
    pub fn create_with(
        &self,
        parent: Ino,
        name: &[u8],
        node: impl Fn(&Inode) -> NewNode,
    ) -> Result<Inode, Error> {
        check_name(name)?;
        self.transact(|transaction| {
            let node = node(&transaction.dir(parent)?);
            if transaction.dentry(parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            let now = Time::now();
            let is_dir = node.mode & S_IFMT == S_IFDIR;
            let inode = Inode {
                ino: transaction.new_ino()?,
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
                phase: Phase::New,
                target: node.target,
                map: MapRoot::Inline(Vec::new()),
                since: 0,
            };
            for (name, value) in node.xattrs {
                transaction.txn().put(keys::xattr(inode.ino, &name), value);
            }
            transaction.put_dentry(parent, name, &inode);
            transaction.touch(parent, i64::from(is_dir), now);
            transaction.account(parent, &presence(&inode))?;
            transaction.put_inode(inode.clone());
            Ok(inode)
        })
    }

    /// Gives an inode another name.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NotFound`], [`Error::NotDirectory`],
    /// [`Error::LinkToDirectory`], [`Error::TooManyLinks`], or when the engine fails.
    pub fn link(&self, ino: Ino, parent: Ino, name: &[u8]) -> Result<Inode, Error> {
        check_name(name)?;
        self.transact(|transaction| {
            transaction.dir(parent)?;
            let mut inode = transaction.inode(ino)?;
            if inode.is_dir() {
                return Err(Error::LinkToDirectory);
            }
            if inode.nlink == 0 {
                return Err(Error::NotFound);
            }
            if inode.nlink >= LINK_MAX {
                return Err(Error::TooManyLinks);
            }
            if transaction.dentry(parent, name)?.is_some() {
                return Err(Error::Exists);
            }
            let now = Time::now();
            inode.nlink += 1;
            inode.ctime = now;
            transaction.put_dentry(parent, name, &inode);
            transaction.touch(parent, 0, now);
            transaction.put_inode(inode.clone());
            Ok(inode)
        })
    }
}

/// The contribution of an inode to the totals of the directories above it.
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
        return Err(Error::NameTooLong);
    }
    if name.is_empty() || name == b"." || name == b".." || name.iter().any(|&b| b == b'/' || b == 0)
    {
        return Err(Error::InvalidName);
    }
    Ok(())
}
