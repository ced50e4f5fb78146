//! Frames that gc moves between a reader's look-up and its read.

use crate::Error;

/// Retries when a frame's pack is collected between look-up and read.
const MAX_MOVES: usize = 8;

/// Looks up extents and reads their frames. Calls `look` again if a pack is missing: gc moved its
/// live frames before it deleted the pack.
pub(crate) fn while_moved<T>(mut look: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut moves = 0;
    loop {
        match look() {
            Err(Error::PackGone { .. }) if moves < MAX_MOVES => moves += 1,
            other => return other,
        }
    }
}
