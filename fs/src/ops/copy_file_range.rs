//! Copies inside the file system, bypassing the program.

use crate::durability::Finish;
use crate::ops::WriteSource;
use crate::{Error, Fs, Handle};

/// Bytes copied at a time.
const STEP: usize = 1 << 20;
/// Bytes copied by one call at most, so that a copy can be interrupted.
const CALL_MAX: u64 = 64 << 20;

impl Fs {
    /// Copies up to `len` bytes; returns how many, 0 at the end of the source, and when the call
    /// may return.
    ///
    /// # Errors
    /// As reading and writing.
    pub fn copy_file_range(
        &self,
        from: &Handle,
        from_offset: u64,
        to: &Handle,
        to_offset: u64,
        len: u64,
    ) -> Result<(u64, Finish), Error> {
        let len = len.min(CALL_MAX);
        let mut buf = Vec::new();
        let mut done = 0;
        let mut finish = Finish::Now;
        while done < len {
            let step = STEP.min((len - done) as usize);
            self.read(from, from_offset + done, step, &mut buf)?;
            if buf.is_empty() {
                break;
            }
            match self.write(to, to_offset + done, &buf, WriteSource::Program.into()) {
                Ok(written) => {
                    done += buf.len() as u64;
                    finish = written;
                }
                Err(_) if done > 0 => break,
                Err(e) => return Err(e),
            }
        }
        Ok((done, finish))
    }
}

#[cfg(test)]
mod tests {
    use shale_index::ROOT;

    use super::*;
    use crate::testing::{array, file_system};
    use crate::{Access, Caller};

    fn copied(access: Access) -> (tempfile::TempDir, std::sync::Arc<Fs>, Handle, Finish) {
        let dir = tempfile::tempdir().unwrap();
        let fs = file_system(dir.path());
        let create = |name: &[u8], access| {
            let made = fs.create(&Caller::default(), ROOT, name, 0o600, access);
            made.unwrap().1
        };
        let from = create(b"from", Access::WRITE);
        let bytes = array(256);
        fs.write(&from, 0, &bytes, WriteSource::Program.into())
            .unwrap();
        let to = create(b"to", access);
        let len = bytes.len() as u64;
        let (done, finish) = fs.copy_file_range(&from, 0, &to, 0, len).unwrap();
        assert_eq!(done, len);
        fs.release(from);
        (dir, fs, to, finish)
    }

    #[test]
    fn a_copy_is_counted_and_gives_layout_hints_as_any_write() {
        let (_dir, fs, to, finish) = copied(Access::WRITE);
        let len = to.file.size();
        assert_eq!(fs.counters.read.get(), len);
        assert_eq!(fs.counters.written.get(), 2 * len);
        assert!(fs.layouts.knows(to.ino()), "no layout of the copy is known");
        assert_eq!(finish, Finish::Now);
        fs.release(to);
        fs.store().shut_down().unwrap();
    }

    #[test]
    fn a_copy_to_a_synchronous_descriptor_has_to_be_durable() {
        let (_dir, fs, to, finish) = copied(Access {
            sync: true,
            ..Access::WRITE
        });
        assert_eq!(finish, Finish::AfterSync);
        fs.fsync(&to).unwrap();
        assert!(!fs.store().is_dirty(to.ino()));
        fs.release(to);
        fs.store().shut_down().unwrap();
    }
}
