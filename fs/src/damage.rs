//! Files whose data could not be read, by name.

use serde::{Deserialize, Serialize};

use crate::{Error, Fs};

/// The report must fit into an attribute.
const MOST_BYTES: usize = 48 << 10;

/// What could not be read since the mount began, and still cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Damaged {
    /// How many files.
    pub count: u64,
    /// As many of them as there is room for.
    pub files: Vec<DamagedFile>,
}

/// A file that cannot be read everywhere.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DamagedFile {
    /// From the root of the mount.
    pub path: String,
    /// Where in the file reading failed.
    pub offset: u64,
    /// Why.
    pub error: String,
}

impl Fs {
    /// The damaged files as JSON.
    pub(crate) fn damaged(&self) -> Result<Vec<u8>, Error> {
        let mut damaged = Damaged::default();
        let mut room = MOST_BYTES;
        for damage in self.store.damage() {
            damaged.count += 1;
            if room == 0 {
                continue;
            }
            let file = DamagedFile {
                path: self.path_below(damage.ino),
                offset: damage.offset,
                error: damage.error,
            };
            // Whatever has to be escaped takes more, but never six times as much.
            room = room.saturating_sub(6 * file.path.len() + file.error.len() + 64);
            if room > 0 {
                damaged.files.push(file);
            }
        }
        Ok(serde_json::to_vec(&damaged).unwrap_or_default())
    }
}
