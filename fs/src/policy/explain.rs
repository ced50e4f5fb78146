//! Shows the policies in effect, and where they come from.
//!
//! ```text
//! chunk=4M  from user.shale.chunk on the directory 2 levels up, /run1
//! ```
//! One line for each key, in the order of [`Key::ALL`]: name, `=`, value, two blanks, the source.

use shale_index::schema::Inode;
use shale_index::{Ino, ROOT};
use shale_store::Store;

use super::effective::Setting;
use super::{Authority, Codec, Durability, Effective, Key, Policies, Settle, Value};
use crate::Error;

/// Most entries of a directory that are searched for a name.
const MAX_ENTRIES: usize = 65_536;

impl Policies {
    /// The text of `user.shale.effective`.
    pub(crate) fn explain(&self, store: &Store, ino: Ino) -> Result<String, Error> {
        let inode = store.stat(ino)?.inode;
        let effective = self.effective_at(store, &inode)?;
        let mut text = String::new();
        for key in Key::ALL {
            let (value, mut source) = match effective.get(key) {
                Some(setting) => (setting.value.to_string(), source(store, &inode, setting)?),
                None => self.unset(key, &effective),
            };
            self.remark(key, &inode, &effective, &mut source);
            text.push_str(&format!("{}={value}  {source}\n", key.name()));
        }
        Ok(text)
    }

    /// Value and source of a key that is set nowhere.
    fn unset(&self, key: Key, effective: &Effective) -> (String, String) {
        let defaults = &self.defaults;
        let (value, source) = match key {
            Key::Codec => (Value::Codec(Codec::Auto), "by default"),
            Key::Effort => (Value::Effort(shale_store::Effort::Fast), "by default"),
            Key::Chunk => (Value::Chunk(defaults.chunk), "from the mount"),
            Key::Settle => {
                let settle = defaults.quiet.map_or(Settle::Off, Settle::After);
                (Value::Settle(settle), "from the mount")
            }
            Key::SettleCodec => match effective.get(Key::Codec).map(|setting| &setting.value) {
                Some(&Value::Codec(codec)) => (Value::SettleCodec(codec), "as codec"),
                _ => (Value::SettleCodec(Codec::Auto), "as codec"),
            },
            Key::Region => return (String::new(), "not set".to_owned()),
            Key::Durability => (Value::Durability(Durability::Normal), "by default"),
        };
        (value.to_string(), source.to_owned())
    }

    /// Adds facts that the value alone does not show.
    fn remark(&self, key: Key, inode: &Inode, effective: &Effective, source: &mut String) {
        let policy = effective.policy(&self.defaults);
        match key {
            Key::Chunk if inode.is_file() && inode.chunk_shift != policy.chunk_shift => {
                let has = Value::Chunk(1 << inode.chunk_shift);
                source.push_str(&format!("; the file has {has} until it is rewritten"));
            }
            Key::Settle => {
                if let (Some(Value::Settle(Settle::On)), Some(quiet)) = (
                    effective.get(key).map(|setting| &setting.value),
                    policy.quiet,
                ) {
                    source.push_str(&format!("; after {} seconds", quiet.as_secs()));
                }
            }
            _ => {}
        }
    }
}

/// Where a value comes from.
fn source(store: &Store, inode: &Inode, setting: &Setting) -> Result<String, Error> {
    let attribute = Authority::attribute(setting.authority, setting.value.key());
    if setting.ino == inode.ino {
        return Ok(format!("set here as {attribute}"));
    }
    let mut levels = 0;
    let mut at = inode.clone();
    while at.ino != setting.ino && at.ino != ROOT {
        at = store.stat(at.parent)?.inode;
        levels += 1;
    }
    let plural = if levels == 1 { "" } else { "s" };
    let path = match dir_path(store, at)? {
        Some(path) => format!(", {path}"),
        None => String::new(),
    };
    Ok(format!(
        "from {attribute} on the directory {levels} level{plural} up{path}"
    ))
}

/// The path of a directory in the mount; `None` where finding it would take long.
fn dir_path(store: &Store, dir: Inode) -> Result<Option<String>, Error> {
    let mut names = Vec::new();
    let mut at = dir;
    while at.ino != ROOT {
        let entries = store.readdir(at.parent, 0, MAX_ENTRIES)?;
        let Some(entry) = entries.into_iter().find(|entry| entry.ino == at.ino) else {
            return Ok(None);
        };
        names.push(printable(&entry.name));
        at = store.stat(at.parent)?.inode;
    }
    names.reverse();
    Ok(Some(format!("/{}", names.join("/"))))
}

/// A name that cannot break a line.
fn printable(name: &[u8]) -> String {
    let escape = |c: char| {
        if c.is_control() {
            c.escape_default().collect()
        } else {
            String::from(c)
        }
    };
    String::from_utf8_lossy(name).chars().map(escape).collect()
}
