//! Frames that garbage collection moves while a reader is on its way to them.

use crate::Error;

/// Retries when a frame's pack is collected between look-up and read.
const MAX_MOVES: usize = 8;

/// Looks up extents and reads their frames. `look` is called again when a pack turns out to be
/// gone: the collector moved its live frames before it deleted the pack.
pub(crate) fn while_moved<T>(mut look: impl FnMut() -> Result<T, Error>) -> Result<T, Error> {
    let mut moves = 0;
    loop {
        match look() {
            Err(Error::PackGone { .. }) if moves < MAX_MOVES => moves += 1,
            other => return other,
        }
    }
}
