//! Calls that were interrupted.
//!
//! Network file systems, FUSE and tmpfs answer `EINTR` to calls that never do so on a local disk.
//! The standard library does transfers, syncs, openings and truncations again by itself; the
//! others come through here.

use std::io;

/// Makes a call again as long as it is interrupted.
pub(crate) fn again<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The same for a call that takes a name away. A server may have done what was interrupted on
/// the way back, and then finds nothing left to do; nobody else touches the store.
pub(crate) fn take_away_again(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut interrupted = false;
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => interrupted = true,
            Err(e) if e.kind() == io::ErrorKind::NotFound && interrupted => return Ok(()),
            other => return other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind::{Interrupted, NotFound, PermissionDenied};

    /// A call that gives these answers, the last one first.
    fn answers<T>(mut left: Vec<io::Result<T>>) -> impl FnMut() -> io::Result<T> {
        move || left.pop().unwrap()
    }

    #[test]
    fn what_was_interrupted_is_done_again() {
        let call = answers(vec![
            Ok(7),
            Err(Interrupted.into()),
            Err(Interrupted.into()),
        ]);
        assert_eq!(again(call).unwrap(), 7);
        let call = answers::<()>(vec![Err(PermissionDenied.into()), Err(Interrupted.into())]);
        assert_eq!(again(call).unwrap_err().kind(), PermissionDenied);
    }

    #[test]
    fn a_name_that_went_while_interrupted_is_no_error() {
        let call = answers(vec![Err(NotFound.into()), Err(Interrupted.into())]);
        take_away_again(call).unwrap();
        let call = answers(vec![Err(NotFound.into())]);
        assert_eq!(take_away_again(call).unwrap_err().kind(), NotFound);
    }
}
