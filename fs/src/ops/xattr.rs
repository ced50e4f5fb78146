//! Extended attributes, and among them access control lists.

use shale_index::schema::Time;
use shale_index::{AttrChange, Ino, XattrMode};

use crate::acl::{self, Acl};
use crate::policy::is_own;
use crate::privileges::{CAPABILITY, S_ISGID};
use crate::{Caller, Error, Fs};

impl Fs {
    /// The value of an attribute.
    ///
    /// # Errors
    /// `ENODATA`, `EOPNOTSUPP`, or when the store fails.
    pub fn getxattr(&self, caller: &Caller, ino: Ino, name: &[u8]) -> Result<Vec<u8>, Error> {
        if let Some(value) = self.virtual_attribute(caller, ino, name)? {
            return Ok(value);
        }
        check_namespace(name)?;
        let value = self.store.xattr(ino, name)?;
        value.ok_or(Error::NoAttribute)
    }

    /// Names of all attributes that the caller may see, policies included. Virtual ones are not
    /// listed, so that copies do not carry them along.
    ///
    /// # Errors
    /// When the store fails.
    pub fn listxattr(&self, caller: &Caller, ino: Ino) -> Result<Vec<Vec<u8>>, Error> {
        let mut names = self.store.xattr_names(ino)?;
        if caller.uid != 0 {
            names.retain(|name| !name.starts_with(b"trusted."));
        }
        Ok(names)
    }

    /// Sets an attribute; `flags` as setxattr(2).
    ///
    /// # Errors
    /// As setxattr(2).
    pub fn setxattr(
        &self,
        caller: &Caller,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        flags: i32,
    ) -> Result<(), Error> {
        self.store.check_writable()?;
        check_namespace(name)?;
        if let Some(obeyed) = self.obey(caller, ino, name, value) {
            return obeyed;
        }
        self.store.admit_names()?;
        if name == acl::ACCESS || name == acl::DEFAULT {
            return self.set_acl(caller, ino, name, value);
        }
        let mode = match flags {
            0 => XattrMode::Set,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Error::Invalid("flags")),
        };
        if is_own(name) {
            return self.set_policy(ino, name, value, mode);
        }
        self.store.set_xattr(ino, name, value, mode)?;
        if name == CAPABILITY {
            self.store.note_privileged(ino);
        }
        self.finish_attributes()
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// As removexattr(2).
    pub fn removexattr(&self, ino: Ino, name: &[u8]) -> Result<(), Error> {
        self.store.check_writable()?;
        check_namespace(name)?;
        if is_own(name) {
            return self.remove_policy(ino, name);
        }
        if name == acl::ACCESS || name == acl::DEFAULT {
            // Removing a list that is not there is fine.
            match self.store.remove_xattr(ino, name) {
                Err(shale_store::Error::Index(shale_index::Error::NoData)) => {}
                other => {
                    other?;
                }
            }
            return self.finish_attributes();
        }
        self.store.remove_xattr(ino, name)?;
        self.finish_attributes()
    }

    fn set_acl(&self, caller: &Caller, ino: Ino, name: &[u8], value: &[u8]) -> Result<(), Error> {
        let inode = self.inode(ino)?;
        if name == acl::DEFAULT && !inode.is_dir() {
            return Err(Error::AclOfFile);
        }
        let list = Acl::parse(value)?;
        let mut change = AttrChange {
            ctime: Some(Time::now()),
            ..AttrChange::default()
        };
        let stored = match &list {
            Some(list) if name == acl::ACCESS => {
                let mut mode = inode.mode & !0o777 | list.mode();
                if caller.uid != 0 && !is_member(caller, inode.gid) {
                    mode &= !S_ISGID;
                }
                change.mode = Some(mode);
                (!list.is_minimal()).then(|| list.encode())
            }
            Some(list) => Some(list.encode()),
            None => None,
        };
        change.xattrs.push((name.to_vec(), stored));
        self.store.set_attr(ino, &change)?;
        self.finish_attributes()
    }
}

fn check_namespace(name: &[u8]) -> Result<(), Error> {
    let prefixes = [&b"user."[..], b"trusted.", b"security."];
    if prefixes.contains(&name) {
        return Err(Error::Invalid("name of an attribute"));
    }
    let known = prefixes.iter().any(|prefix| name.starts_with(prefix));
    if known || name == acl::ACCESS || name == acl::DEFAULT {
        Ok(())
    } else {
        Err(Error::NotSupported)
    }
}

/// Whether a caller is in a group, by its main group or by those that the system lists for its
/// process.
fn is_member(caller: &Caller, gid: u32) -> bool {
    if caller.gid == gid {
        return true;
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", caller.pid));
    status.is_ok_and(|status| {
        status
            .lines()
            .find_map(|line| line.strip_prefix("Groups:"))
            .is_some_and(|groups| groups.split_whitespace().any(|g| g.parse() == Ok(gid)))
    })
}
