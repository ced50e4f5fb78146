//! Retries calls that a signal interrupted.
//!
//! Network file systems, FUSE and tmpfs return `EINTR` from calls that never do so on a local
//! disk. The standard library retries transfers, syncs, opens and truncations by itself; all other
//! calls go through here.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// Repeats a call until it is not interrupted.
pub(crate) fn retry_eintr<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// The same for a call that removes a name. A server may have done its work before the call was
/// interrupted, so that the retry finds nothing.
// single-node: no other process removes the name in between.
pub(crate) fn retry_removal(mut call: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut interrupted = false;
    loop {
        match call() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => interrupted = true,
            Err(e) if e.kind() == io::ErrorKind::NotFound && interrupted => return Ok(()),
            other => return other,
        }
    }
}

/// Reads until the buffer is full or the file ends.
pub(crate) fn read_full_at(file: &File, buf: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(n) => done += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
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
        assert_eq!(retry_eintr(call).unwrap(), 7);
        let call = answers::<()>(vec![Err(PermissionDenied.into()), Err(Interrupted.into())]);
        assert_eq!(retry_eintr(call).unwrap_err().kind(), PermissionDenied);
    }

    #[test]
    fn a_name_that_went_while_interrupted_is_no_error() {
        let call = answers(vec![Err(NotFound.into()), Err(Interrupted.into())]);
        retry_removal(call).unwrap();
        let call = answers(vec![Err(NotFound.into())]);
        assert_eq!(retry_removal(call).unwrap_err().kind(), NotFound);
    }
}
