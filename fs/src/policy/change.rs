//! Setting and removing policies.

use shale_store::index::XattrMode;

use super::{Authority, Key, Value};
use crate::error::refused;
use crate::{Error, Fs};

impl Fs {
    /// Sets a policy, if the attribute is one. Nothing changes on an error.
    pub(crate) fn set_policy(
        &self,
        ino: u64,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Error> {
        let Some((_, key)) = parse_name(name) else {
            return self.deny(ino, name, "there is no such policy, or it can only be read");
        };
        let inode = self.namespace().inode(ino)?;
        if !inode.is_dir() && !inode.is_file() {
            return self.deny(
                ino,
                name,
                "only directories and regular files have policies",
            );
        }
        if let Err(reason) = Value::parse(key, value) {
            return self.deny(ino, name, &reason.to_string());
        }
        self.namespace().set_xattr(ino, name, value, mode)?;
        self.policies.changed();
        if key == Key::Chunk && inode.is_file() {
            self.adopt_chunk(ino)?;
        }
        self.attributes_changed()
    }

    /// Removes a policy.
    pub(crate) fn remove_policy(&self, ino: u64, name: &[u8]) -> Result<(), Error> {
        if parse_name(name).is_none() {
            return self.deny(ino, name, "there is no such policy, or it can only be read");
        }
        self.namespace().remove_xattr(ino, name)?;
        self.policies.changed();
        self.attributes_changed()
    }

    /// Refuses, and tells the administrator why.
    pub(crate) fn deny<T>(&self, ino: u64, name: &[u8], reason: &str) -> Result<T, Error> {
        let refusals = &self.policies.refusals;
        refusals.tell(self.namespace(), ino, name, reason);
        refused(libc::EINVAL)
    }

    /// A file without contents gets the chunk size that was just set; others when they are
    /// rewritten.
    fn adopt_chunk(&self, ino: u64) -> Result<(), Error> {
        let policy = self.policy_of(&self.namespace().inode(ino)?)?;
        let file = self.store.file(ino)?;
        let adopted = if file.size() == 0 {
            self.store.set_chunk(&file, policy.chunk_shift).map(|_| ())
        } else {
            Ok(())
        };
        self.store.close(file);
        Ok(adopted?)
    }
}

/// Whether an attribute belongs to ShaleFS.
pub(crate) fn is_own(name: &[u8]) -> bool {
    Authority::ALL
        .iter()
        .any(|authority| name.starts_with(authority.prefix().as_bytes()))
}

pub(crate) fn parse_name(name: &[u8]) -> Option<(Authority, Key)> {
    Authority::ALL.into_iter().find_map(|authority| {
        let name = name.strip_prefix(authority.prefix().as_bytes())?;
        Some((authority, Key::from_name(std::str::from_utf8(name).ok()?)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_both_authorities_are_known() {
        for authority in Authority::ALL {
            for key in Key::ALL {
                let name = authority.attribute(key);
                assert_eq!(parse_name(name.as_bytes()), Some((authority, key)));
            }
        }
        for name in [
            "user.shale.",
            "user.shale.effective",
            "trusted.shale.stat.raw",
            "user.shale.settle.now",
            "user.shale.codec.",
            "user.codec",
            "security.shale.codec",
        ] {
            assert_eq!(parse_name(name.as_bytes()), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_names_never_panic(tail: Vec<u8>) {
            for authority in Authority::ALL {
                let name = [authority.prefix().as_bytes(), &tail].concat();
                prop_assert!(is_own(&name));
                let _ = parse_name(&name);
            }
        }
    }
}
