//! Files with stored bytes that could not be read.

use std::collections::BTreeMap;

use crate::store::Inner;
use crate::sync::Mutex;
use crate::{Error, Store};

/// Files that are remembered; of more than these, fsck has the list.
const REMEMBERED: usize = 256;

/// A place in a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub ino: u64,
    /// Where in the file.
    pub offset: u64,
    /// Why.
    pub error: String,
}

/// What was met since the store was opened, one place for each file.
#[derive(Debug, Default)]
pub(crate) struct Met(Mutex<BTreeMap<u64, Damage>>);

impl Met {
    /// Remembers what an error says of damage, if it does.
    pub(crate) fn note_error(&self, error: &Error) {
        if let Error::Damaged { ino, offset, .. } = *error {
            self.note(Damage {
                ino,
                offset,
                error: error.to_string(),
            });
        }
    }

    fn note(&self, damage: Damage) {
        let mut files = self.0.lock();
        if files.len() < REMEMBERED || files.contains_key(&damage.ino) {
            files.insert(damage.ino, damage);
        }
    }
}

impl Inner {
    /// What an error says, with the path of the file if it is about one.
    pub(crate) fn explain(&self, error: &Error) -> String {
        match error {
            Error::Damaged { ino, .. } => format!("{}: {error}", self.namespace.path(*ino)),
            _ => error.to_string(),
        }
    }
}

impl Error {
    /// Whether a line of a log tells of [`Error::Damaged`].
    #[must_use]
    pub fn tells_of_damage(line: &str) -> bool {
        line.contains(" is damaged: ")
    }
}

impl Store {
    /// Remembers what an error says of damage, if it does.
    pub fn note_damage(&self, error: &Error) {
        self.inner.damage.note_error(error);
    }

    /// Remembers that a file could not be read, whether its pack is damaged, lost or out of reach.
    pub fn note_unreadable(&self, ino: u64, offset: u64, error: &Error) {
        if matches!(error, Error::Damaged { .. } | Error::Io { .. }) {
            self.inner.damage.note(Damage {
                ino,
                offset,
                error: error.to_string(),
            });
        }
    }

    /// Files in which something could not be read since the store was opened, without a look at
    /// whether that is still so.
    #[must_use]
    pub fn damaged_files(&self) -> u64 {
        self.inner.damage.0.lock().len() as u64
    }

    /// The same with the places, each tried again: what was deleted, written over or only out of
    /// reach for a time is forgotten.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        let met: Vec<Damage> = self.inner.damage.0.lock().values().cloned().collect();
        let mut left = Vec::new();
        for damage in met {
            if self.is_unreadable(&damage) {
                left.push(damage);
            } else {
                self.inner.damage.0.lock().remove(&damage.ino);
            }
        }
        left
    }

    /// Tries the whole chunk: a part of it may have been written over.
    fn is_unreadable(&self, damage: &Damage) -> bool {
        if self
            .inode(damage.ino)
            .map_or(true, |seen| seen.inode.nlink == 0)
        {
            return false;
        }
        let Ok(file) = self.file(damage.ino) else {
            return false;
        };
        let (start, end) = file.chunk_range(file.chunk_of(damage.offset));
        let result = self.read(&file, start, (end - start) as usize, &mut Vec::new());
        self.close(file);
        result.is_err()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_about_damage_is_recognised() {
        let error = Error::Damaged {
            ino: 5,
            offset: 7,
            pack: 1,
            at: 2,
            detail: "checksum differs".to_owned(),
        };
        assert!(Error::tells_of_damage(&format!(
            "ERROR read: {error} inode=5"
        )));
        assert!(!Error::tells_of_damage("WARN settling is put off"));
    }

    #[test]
    fn the_list_of_damaged_files_is_bounded() {
        let met = Met::default();
        let damage = |ino, offset| Damage {
            ino,
            offset,
            error: String::new(),
        };
        for ino in 0..1000 {
            met.note(damage(ino, 0));
        }
        met.note(damage(3, 9));
        let files = met.0.lock();
        assert_eq!(files.len(), REMEMBERED);
        assert_eq!(files[&3].offset, 9);
    }
}
