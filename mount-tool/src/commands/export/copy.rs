//! The contents of one file: written under a temporary name, made durable, read back and compared,
//! then renamed. A program that looks at the target sees a whole file or none.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Advice;
use twox_hash::{XxHash3_64, XxHash3_128};

use super::source::{Contents, Time};
use crate::output::failure::{Failure, exit};

/// Bytes read at a time.
const PIECE: usize = 4 << 20;
/// Zeros of this length become holes.
const BLOCK: usize = 4096;
/// Granularity of salvaging: how much around a damaged byte becomes zeros.
const SALVAGE: usize = 64 << 10;

/// The written ranges, and the checksum that they must have when read back.
#[derive(Default)]
struct Written {
    /// Ranges without holes, in order. Adjacent ones are merged.
    ranges: Vec<Range<u64>>,
    checksum: XxHash3_128,
}

/// Bytes that could not be read and are zeros in the copy.
pub(crate) type Lost = Vec<Range<u64>>;

/// An unfinished file. Dropping it removes it.
pub(crate) struct TemporaryFile {
    pub(crate) file: File,
    path: PathBuf,
    finished: bool,
}

impl TemporaryFile {
    /// Creates the temporary file for `target`, replacing that of an interrupted export.
    pub(crate) fn new(target: &Path) -> Result<Self, Failure> {
        let path = temporary(target);
        let open = || {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create_new(true).mode(0o600);
            options.open(&path)
        };
        let file = match open() {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                std::fs::remove_file(&path).and_then(|()| open())
            }
            other => other,
        };
        let file = file.map_err(|e| cannot_write(target, &e))?;
        Ok(Self {
            file,
            path,
            finished: false,
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// When it was written.
    pub(crate) fn modified(&self, target: &Path) -> Result<Time, Failure> {
        let metadata = self.file.metadata().map_err(|e| cannot_write(target, &e))?;
        Ok((metadata.mtime(), metadata.mtime_nsec() as u32))
    }

    /// Renames the file to its target, replacing an existing one.
    pub(crate) fn finish(mut self, target: &Path) -> Result<(), Failure> {
        std::fs::rename(&self.path, target).map_err(|e| cannot_write(target, &e))?;
        self.finished = true;
        Ok(())
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        if !self.finished {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A short name, the same each time, so that the next export finds it.
fn temporary(target: &Path) -> PathBuf {
    let name = target.file_name().unwrap_or(OsStr::new(""));
    let name = format!(
        ".shale-export-{:016x}",
        XxHash3_64::oneshot(name.as_bytes())
    );
    target.with_file_name(OsString::from(name))
}

/// The target cannot be written.
pub(crate) fn cannot_write(target: &Path, error: &io::Error) -> Failure {
    let failure = Failure::io("write", target, error);
    let status = match failure.status {
        exit::NO_INPUT => exit::CANNOT_CREATE,
        status => status,
    };
    failure.with_status(status)
}

/// Copies and compares. With `salvage`, ranges that cannot be read become zeros and are returned.
pub(crate) fn contents(
    from: &mut dyn Contents,
    size: u64,
    draft: &TemporaryFile,
    target: &Path,
    salvage: bool,
    progress: &mut dyn FnMut(u64),
) -> Result<Lost, Failure> {
    let failed = |e: io::Error| cannot_write(target, &e);
    let mut written = Written::default();
    let mut lost = Lost::new();
    let mut buffer = vec![0; PIECE];
    let mut offset = 0;
    while let Some(at) = from.next_data(offset)? {
        progress(at - offset);
        // Pieces are aligned in the file, so that each frame is decoded once.
        let end = size.min((at / PIECE as u64 + 1) * PIECE as u64);
        if at >= end {
            break;
        }
        let piece = &mut buffer[..(end - at) as usize];
        let count = match from.read(at, piece) {
            Err(_) if salvage => {
                lost.extend(read_around(from, at, piece));
                piece.len()
            }
            read => read?,
        };
        written
            .take(&draft.file, at, &piece[..count])
            .map_err(failed)?;
        progress(count as u64);
        offset = at + count as u64;
        if count < piece.len() {
            break;
        }
    }
    draft.file.set_len(size).map_err(failed)?;
    draft.file.sync_all().map_err(failed)?;
    written.check(&draft.file, size, target)?;
    Ok(merged(lost))
}

/// Reads the readable parts. The rest becomes zeros.
fn read_around(from: &mut dyn Contents, at: u64, piece: &mut [u8]) -> Lost {
    let mut lost = Lost::new();
    for (number, part) in piece.chunks_mut(SALVAGE).enumerate() {
        let start = at + (number * SALVAGE) as u64;
        if from.read(start, part).is_err() {
            part.fill(0);
            lost.push(start..start + part.len() as u64);
        }
    }
    lost
}

fn merged(ranges: Lost) -> Lost {
    let mut merged = Lost::new();
    for range in ranges {
        match merged.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => merged.push(range),
        }
    }
    merged
}

impl Written {
    /// Writes a piece without the zeros in it.
    fn take(&mut self, file: &File, offset: u64, piece: &[u8]) -> io::Result<()> {
        let mut run: Option<usize> = None;
        let ends = (0..piece.len()).step_by(BLOCK).chain([piece.len()]);
        for at in ends {
            let block = &piece[at..piece.len().min(at + BLOCK)];
            let is_data = block.iter().any(|&byte| byte != 0);
            match (run, is_data) {
                (None, true) => run = Some(at),
                (Some(start), false) => {
                    self.put(file, offset + start as u64, &piece[start..at])?;
                    run = None;
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn put(&mut self, file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
        file.write_all_at(bytes, offset)?;
        self.checksum.write(bytes);
        let end = offset + bytes.len() as u64;
        match self.ranges.last_mut() {
            Some(last) if last.end == offset => last.end = end,
            _ => self.ranges.push(offset..end),
        }
        Ok(())
    }

    /// Reads everything back, from the device if the kernel drops its cache.
    fn check(&self, file: &File, size: u64, target: &Path) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::io("read back", target, &e).with_status(exit::IO);
        let _ = rustix::fs::fadvise(file, 0, None, Advice::DontNeed);
        let mut found = XxHash3_128::new();
        let mut buffer = vec![0; PIECE];
        for &Range { start, end } in &self.ranges {
            let mut at = start;
            while at < end {
                let wanted = ((end - at) as usize).min(PIECE);
                file.read_exact_at(&mut buffer[..wanted], at)
                    .map_err(failed)?;
                found.write(&buffer[..wanted]);
                at += wanted as u64;
            }
        }
        let length = file.metadata().map_err(failed)?.len();
        if found.finish_128() != self.checksum.finish_128() || length != size {
            return Err(Failure::new(
                exit::IO,
                format_args!(
                    "{} reads back different from what was written; check the device it is on",
                    target.display()
                ),
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    /// A file in memory with a part that cannot be read.
    struct Flawed {
        bytes: Vec<u8>,
        hole: Range<u64>,
        flaw: Range<u64>,
    }

    impl Contents for Flawed {
        fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Failure> {
            let end = offset + buffer.len() as u64;
            if offset < self.flaw.end && self.flaw.start < end {
                return Err(Failure::new(exit::IO, "damaged"));
            }
            let rest = &self.bytes[offset as usize..];
            let count = rest.len().min(buffer.len());
            buffer[..count].copy_from_slice(&rest[..count]);
            Ok(count)
        }

        fn next_data(&mut self, offset: u64) -> Result<Option<u64>, Failure> {
            let at = if self.hole.contains(&offset) {
                self.hole.end
            } else {
                offset
            };
            Ok((at < self.bytes.len() as u64).then_some(at))
        }

        fn has_changed(&self) -> Result<bool, Failure> {
            Ok(false)
        }
    }

    fn sample(len: usize) -> Flawed {
        let mut bytes: Vec<u8> = (0..len).map(|i| (i % 251) as u8 + 1).collect();
        let hole = 1 << 20..9 << 20;
        bytes[hole.start as usize..hole.end as usize].fill(0);
        Flawed {
            bytes,
            hole,
            flaw: 0..0,
        }
    }

    fn copy(from: &mut Flawed, target: &Path, salvage: bool) -> Result<Lost, Failure> {
        let draft = TemporaryFile::new(target).unwrap();
        let size = from.bytes.len() as u64;
        let mut done = 0;
        let lost = contents(from, size, &draft, target, salvage, &mut |n| done += n)?;
        assert_eq!(done, size);
        draft.finish(target)?;
        Ok(lost)
    }

    #[test]
    fn bytes_and_holes_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("copy");
        let mut from = sample((10 << 20) + 17);
        assert!(copy(&mut from, &target, false).unwrap().is_empty());
        assert_eq!(std::fs::read(&target).unwrap(), from.bytes);
        let blocks = target.metadata().unwrap().blocks();
        assert!(blocks * 512 <= 3 << 20, "{blocks} blocks");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn damage_leaves_no_file_unless_it_is_to_be_salvaged() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("copy");
        let mut from = sample(10 << 20);
        from.flaw = 100_000..100_001;
        assert!(copy(&mut from, &target, false).is_err());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        let lost = copy(&mut from, &target, true).unwrap();
        let second = 65_536..131_072;
        assert_eq!(lost, [second]);
        let mut expected = from.bytes.clone();
        expected[65_536..131_072].fill(0);
        assert_eq!(std::fs::read(&target).unwrap(), expected);
    }

    #[test]
    fn a_device_that_changes_bytes_is_noticed() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("copy");
        let draft = TemporaryFile::new(&target).unwrap();
        let mut written = Written::default();
        written.take(&draft.file, 0, b"good bytes").unwrap();
        assert!(written.check(&draft.file, 10, &target).is_ok());
        draft.file.write_all_at(b"b", 3).unwrap();
        assert!(written.check(&draft.file, 10, &target).is_err());
    }

    #[test]
    fn what_an_interrupted_export_left_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("x".repeat(255));
        let mut draft = TemporaryFile::new(&target).unwrap();
        draft.finished = true;
        drop(draft);
        TemporaryFile::new(&target)
            .unwrap()
            .finish(&target)
            .unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }
}
