//! Policies in operations: an open file follows them, attributes set them.

use shale_index::schema::Inode;
use shale_index::{Ino, XattrMode};

use crate::policy::{Key, Policy, Value, parse_name};
use crate::{Error, Fs, Handle};

impl Fs {
    /// The policy of files that are created in a directory.
    pub(crate) fn policy_in(&self, dir: Ino) -> Result<Policy, Error> {
        self.policies.policy_in(&self.store, dir)
    }

    /// The policy of a file.
    pub(crate) fn policy_of(&self, inode: &Inode) -> Result<Policy, Error> {
        self.policies.policy_of(&self.store, inode)
    }

    /// Gives a file that was just created the policy of its directory in a generation.
    pub(crate) fn begin_policy(&self, handle: &Handle, generation: u64, policy: &Policy) {
        handle.file.set_effort(policy.write);
        handle.policy.note(generation, policy.sync);
    }

    /// Brings an open file up to date before it is written or closed.
    pub(crate) fn follow_policy(&self, handle: &Handle) -> Result<(), Error> {
        let generation = self.policies.generation();
        if handle.policy.is_of(generation) {
            return Ok(());
        }
        let inode = self.inode(handle.ino())?;
        let sync = match handle.policy.last() {
            // A file without a name keeps its policy.
            Some(sync) if inode.nlink == 0 => sync,
            _ => {
                let policy = self.policy_of(&inode)?;
                handle.file.set_effort(policy.write);
                policy.sync
            }
        };
        handle.policy.note(generation, sync);
        Ok(())
    }

    /// Sets a policy, if the attribute is one. Nothing changes on an error.
    pub(crate) fn set_policy(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> Result<(), Error> {
        let Some((_, key)) = parse_name(name) else {
            return self.deny(ino, name, "there is no such policy, or it is read-only");
        };
        let inode = self.inode(ino)?;
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
        self.store.set_xattr(ino, name, value, mode)?;
        self.policies.changed();
        if key == Key::Chunk && inode.is_file() {
            self.adopt_chunk(ino)?;
        }
        self.finish_attributes()
    }

    /// Removes a policy.
    pub(crate) fn remove_policy(&self, ino: Ino, name: &[u8]) -> Result<(), Error> {
        if parse_name(name).is_none() {
            return self.deny(ino, name, "there is no such policy, or it is read-only");
        }
        self.store.remove_xattr(ino, name)?;
        self.policies.changed();
        self.finish_attributes()
    }

    /// Refuses an attribute, and logs why.
    pub(crate) fn deny<T>(&self, ino: Ino, name: &[u8], reason: &str) -> Result<T, Error> {
        self.policies.note_refusal(&self.store, ino, name, reason);
        Err(Error::Invalid("attribute"))
    }

    /// An empty file gets the chunk size that was just set; others when they are rewritten.
    fn adopt_chunk(&self, ino: Ino) -> Result<(), Error> {
        let policy = self.policy_of(&self.inode(ino)?)?;
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
