//! Says what holds, and where it comes from.
//!
//! ```text
//! chunk=4M  from user.shale.chunk on the directory 2 levels up, /run1
//! ```
//! One line for each key, in the order of [`Key::ALL`]: name, `=`, value, two blanks, words.

use shale_store::index::ROOT;
use shale_store::index::schema::Inode;

use super::held::Setting;
use super::{Authority, Codec, Durability, Held, Key, Settle, Value};
use crate::{Error, Fs};

/// Entries of a directory that are looked at to find the name of one of them.
const MAX_ENTRIES: usize = 65_536;

impl Fs {
    /// The text of `user.shale.effective`.
    pub(crate) fn effective(&self, ino: u64) -> Result<String, Error> {
        let inode = self.namespace().inode(ino)?;
        let held = self.held_at(&inode)?;
        let mut text = String::new();
        for key in Key::ALL {
            let (value, mut source) = match held.get(key) {
                Some(setting) => (setting.value.to_string(), self.source(&inode, setting)?),
                None => self.unset(key, &held),
            };
            self.remark(key, &inode, &held, &mut source);
            text.push_str(&format!("{}={value}  {source}\n", key.name()));
        }
        Ok(text)
    }

    /// Value and source of a key that is set nowhere.
    fn unset(&self, key: Key, held: &Held) -> (String, String) {
        let defaults = &self.policies.defaults;
        let (value, source) = match key {
            Key::Codec => (Value::Codec(Codec::Auto), "by default"),
            Key::Effort => (Value::Effort(shale_store::Effort::Fast), "by default"),
            Key::Chunk => (Value::Chunk(defaults.chunk), "from the mount"),
            Key::Settle => {
                let settle = defaults.quiet.map_or(Settle::Off, Settle::After);
                (Value::Settle(settle), "from the mount")
            }
            Key::SettleCodec => match held.get(Key::Codec).map(|setting| &setting.value) {
                Some(&Value::Codec(codec)) => (Value::SettleCodec(codec), "as codec"),
                _ => (Value::SettleCodec(Codec::Auto), "as codec"),
            },
            Key::Region => return (String::new(), "not set".to_owned()),
            Key::Durability => (Value::Durability(Durability::Normal), "by default"),
        };
        (value.to_string(), source.to_owned())
    }

    /// What the value alone does not say.
    fn remark(&self, key: Key, inode: &Inode, held: &Held, source: &mut String) {
        let policy = held.policy(&self.policies.defaults);
        match key {
            Key::Chunk if inode.is_file() && inode.chunk_shift != policy.chunk_shift => {
                let has = Value::Chunk(1 << inode.chunk_shift);
                source.push_str(&format!("; the file has {has} until it is rewritten"));
            }
            Key::Settle => {
                if let (Some(Value::Settle(Settle::On)), Some(quiet)) =
                    (held.get(key).map(|setting| &setting.value), policy.quiet)
                {
                    source.push_str(&format!("; after {} seconds", quiet.as_secs()));
                }
            }
            _ => {}
        }
    }

    fn source(&self, inode: &Inode, setting: &Setting) -> Result<String, Error> {
        let attribute = Authority::attribute(setting.authority, setting.value.key());
        if setting.ino == inode.ino {
            return Ok(format!("set here as {attribute}"));
        }
        let mut levels = 0;
        let mut at = inode.clone();
        while at.ino != setting.ino && at.ino != ROOT {
            at = self.namespace().inode(at.parent)?;
            levels += 1;
        }
        let plural = if levels == 1 { "" } else { "s" };
        let path = match self.dir_path(at)? {
            Some(path) => format!(", {path}"),
            None => String::new(),
        };
        Ok(format!(
            "from {attribute} on the directory {levels} level{plural} up{path}"
        ))
    }

    /// The path of a directory in the mount; `None` where it would take long to find out.
    fn dir_path(&self, dir: Inode) -> Result<Option<String>, Error> {
        let mut names = Vec::new();
        let mut at = dir;
        while at.ino != ROOT {
            let entries = self.namespace().readdir(at.parent, 0, MAX_ENTRIES)?;
            let Some(entry) = entries.into_iter().find(|entry| entry.ino == at.ino) else {
                return Ok(None);
            };
            names.push(printable(&entry.name));
            at = self.namespace().inode(at.parent)?;
        }
        names.reverse();
        Ok(Some(format!("/{}", names.join("/"))))
    }
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
