//! Attributes of inodes, plain and extended.

use super::Namespace;
use crate::Error;
use crate::kv::Compare;
use crate::schema::{Ino, Inode, S_IFMT, Time, keys};

/// A change of attributes; `None` keeps the old value.
#[derive(Clone, Debug, Default)]
pub struct AttrChange {
    /// Permissions (type bits are ignored).
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of contents.
    pub mtime: Option<Time>,
    /// Last change of the inode.
    pub ctime: Option<Time>,
    /// Extended attributes to set (`Some`) or remove (`None`) together with it.
    pub xattrs: Vec<(Vec<u8>, Option<Vec<u8>>)>,
}

/// Name and value of an extended attribute.
pub type Xattr = (Vec<u8>, Vec<u8>);

/// The condition for setting an extended attribute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// Nothing.
    Set,
    /// That it does not exist yet.
    Create,
    /// That it exists.
    Replace,
}

/// Largest value and largest sum of names of extended attributes, as the kernel limits them.
const XATTR_VALUE_MAX: usize = 65_536;
const XATTR_LIST_MAX: usize = 65_536;

impl Namespace {
    /// Changes attributes.
    ///
    /// # Errors
    /// [`Error::NotFound`], or when the engine fails.
    pub fn set_attr(&self, ino: Ino, attr: &AttrChange) -> Result<Inode, Error> {
        let changed = self.transact(|transaction| {
            let mut inode = transaction.inode(ino)?;
            if attr.mtime.is_some() {
                inode.since = self.since(&inode)?;
            }
            if let Some(mode) = attr.mode {
                inode.mode = inode.mode & S_IFMT | mode & !S_IFMT;
            }
            inode.uid = attr.uid.unwrap_or(inode.uid);
            inode.gid = attr.gid.unwrap_or(inode.gid);
            inode.atime = attr.atime.unwrap_or(inode.atime);
            inode.mtime = attr.mtime.unwrap_or(inode.mtime);
            inode.ctime = attr.ctime.unwrap_or(inode.ctime);
            for (name, value) in &attr.xattrs {
                let key = keys::xattr(ino, name);
                match value {
                    Some(value) => transaction.txn().put(key, value.clone()),
                    None => transaction.txn().delete(key),
                };
            }
            transaction.put_inode(inode.clone());
            Ok(inode)
        })?;
        if self.shared {
            return self.inode(ino);
        }
        self.with_totals(changed)
    }

    /// Up to where times that are set now replace those that are noted elsewhere.
    fn since(&self, inode: &Inode) -> Result<u64, Error> {
        if inode.is_dir() {
            let latest = self.totals(inode.ino)?.latest;
            return Ok(latest.max(inode.since as i64).max(0) as u64);
        }
        if self.shared {
            let records = self.contents(inode.ino)?.records;
            let newest = records.last().map_or(0, |record| record.version);
            return Ok(newest.max(inode.since));
        }
        Ok(0)
    }

    /// An extended attribute.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn xattr(&self, ino: Ino, name: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self
            .kv()
            .get(&keys::xattr(ino, name))?
            .map(|found| found.value.to_vec()))
    }

    /// Extended attributes whose names begin with `prefix`, in the order of their names.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn xattrs_with(&self, ino: Ino, prefix: &[u8]) -> Result<Vec<Xattr>, Error> {
        let (start, end) = keys::xattrs_with(ino, prefix);
        let found = self.kv().range(&start, &end, usize::MAX)?;
        Ok(found
            .iter()
            .filter_map(|(key, found)| Some((keys::xattr_of(key)?.to_vec(), found.value.to_vec())))
            .collect())
    }

    /// Names of all extended attributes, in order.
    ///
    /// # Errors
    /// When the engine fails.
    pub fn xattr_names(&self, ino: Ino) -> Result<Vec<Vec<u8>>, Error> {
        let (start, end) = keys::xattrs(ino);
        let found = self.kv().range(&start, &end, usize::MAX)?;
        Ok(found
            .iter()
            .filter_map(|(key, _)| keys::xattr_of(key))
            .map(<[u8]>::to_vec)
            .collect())
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// [`Error::Exists`], [`Error::NoData`], [`Error::InvalidAttribute`], [`Error::TooLarge`],
    /// [`Error::AttributesFull`], or when the engine fails.
    pub fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Error> {
        if name.is_empty() || name.len() > super::NAME_MAX {
            return Err(Error::InvalidAttribute);
        }
        if value.len() > XATTR_VALUE_MAX {
            return Err(Error::TooLarge);
        }
        self.transact(|transaction| {
            let mut inode = transaction.inode(ino)?;
            let key = keys::xattr(ino, name);
            let old = self.kv().get(&key)?;
            match (&old, mode) {
                (Some(_), XattrMode::Create) => return Err(Error::Exists),
                (None, XattrMode::Replace) => return Err(Error::NoData),
                (Some(old), _) => {
                    transaction
                        .txn()
                        .compare(Compare::VersionIs(key.clone(), old.version));
                }
                (None, _) => {
                    let used: usize = self.xattr_names(ino)?.iter().map(|n| n.len() + 1).sum();
                    if used + name.len() + 1 > XATTR_LIST_MAX {
                        return Err(Error::AttributesFull);
                    }
                    transaction.txn().compare(Compare::Absent(key.clone()));
                }
            }
            transaction.txn().put(key, value.to_vec());
            inode.ctime = Time::now();
            transaction.put_inode(inode);
            Ok(())
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// [`Error::NoData`], or when the engine fails.
    pub fn remove_xattr(&self, ino: Ino, name: &[u8]) -> Result<(), Error> {
        self.transact(|transaction| {
            let mut inode = transaction.inode(ino)?;
            let key = keys::xattr(ino, name);
            if self.kv().get(&key)?.is_none() {
                return Err(Error::NoData);
            }
            transaction.txn().compare(Compare::Exists(key.clone()));
            transaction.txn().delete(key);
            inode.ctime = Time::now();
            transaction.put_inode(inode);
            Ok(())
        })
    }
}
