//! Files whose data could not be read, by name.

use crate::reports::{Damaged, DamagedFile};
use crate::{Error, Fs};

/// The report must fit into an attribute.
const MOST_BYTES: usize = 48 << 10;

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
            // Escaping makes a path longer, but never six times as long.
            room = room.saturating_sub(6 * file.path.len() + file.error.len() + 64);
            if room > 0 {
                damaged.files.push(file);
            }
        }
        Ok(serde_json::to_vec(&damaged).unwrap_or_default())
    }
}
