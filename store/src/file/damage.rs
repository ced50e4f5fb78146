//! Files with stored bytes that could not be read.

use std::collections::BTreeMap;

use shale_index::Ino;

use crate::Error;
use crate::primitives::Mutex;

/// Files that are remembered; `shale fsck` lists all.
const REMEMBERED: usize = 256;

/// A place in a file that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub ino: Ino,
    /// Where in the file.
    pub offset: u64,
    /// Why.
    pub error: String,
}

/// Files that could not be read since the store was opened, with one place for each.
#[derive(Debug, Default)]
pub(crate) struct DamageList(Mutex<BTreeMap<Ino, Damage>>);

impl DamageList {
    /// Remembers the damage that an error reports, if any.
    pub(crate) fn note_error(&self, error: &Error) {
        if let Error::Damaged { ino, offset, .. } = *error {
            self.note(Damage {
                ino,
                offset,
                error: error.to_string(),
            });
        }
    }

    /// Remembers that a file could not be read, whether its pack is damaged, lost or out of reach.
    pub(crate) fn note_unreadable(&self, ino: Ino, offset: u64, error: &Error) {
        if matches!(
            error,
            Error::Damaged { .. } | Error::PackGone { .. } | Error::Io { .. }
        ) {
            self.note(Damage {
                ino,
                offset,
                error: error.to_string(),
            });
        }
    }

    /// Number of files.
    pub(crate) fn len(&self) -> u64 {
        self.0.lock().len() as u64
    }

    /// The places, each checked again: forgets those that `is_unreadable` does not confirm.
    pub(crate) fn recheck(&self, is_unreadable: impl Fn(&Damage) -> bool) -> Vec<Damage> {
        let known: Vec<Damage> = self.0.lock().values().cloned().collect();
        let mut left = Vec::new();
        for damage in known {
            if is_unreadable(&damage) {
                left.push(damage);
            } else {
                self.0.lock().remove(&damage.ino);
            }
        }
        left
    }

    fn note(&self, damage: Damage) {
        let mut files = self.0.lock();
        if files.len() < REMEMBERED || files.contains_key(&damage.ino) {
            files.insert(damage.ino, damage);
        }
    }
}

impl Error {
    /// Whether a line of a log reports [`Error::Damaged`].
    #[must_use]
    pub fn tells_of_damage(line: &str) -> bool {
        line.contains(" is damaged: ")
    }
}

#[cfg(test)]
mod tests {
    use shale_index::extent::PackId;

    use super::*;

    #[test]
    fn a_line_about_damage_is_recognised() {
        let error = Error::Damaged {
            ino: 5,
            offset: 7,
            pack: PackId(1),
            at: 2,
            detail: "checksum differs".to_owned(),
        };
        assert!(Error::tells_of_damage(&format!(
            "ERROR read: {error} inode=5"
        )));
        assert!(!Error::tells_of_damage("WARN settling is postponed"));
    }

    #[test]
    fn the_list_of_damaged_files_is_bounded() {
        let list = DamageList::default();
        let damage = |ino, offset| Damage {
            ino,
            offset,
            error: String::new(),
        };
        for ino in 0..1000 {
            list.note(damage(ino, 0));
        }
        list.note(damage(3, 9));
        let files = list.0.lock();
        assert_eq!(files.len(), REMEMBERED);
        assert_eq!(files[&3].offset, 9);
    }
}
