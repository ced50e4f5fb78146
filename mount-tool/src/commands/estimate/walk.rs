//! Lists the files below a directory.

use std::collections::HashSet;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use nix::unistd::{AccessFlags, eaccess};
use rustix::fs::{SeekFrom, seek};
use rustix::io::Errno;
use serde::Serialize;

use crate::control::unreadable;
use crate::output::failure::{Failure, exit};
use crate::output::progress::Spinner;
use crate::output::report::{self, counted};
use crate::system::file_id::FileId;

/// Smaller holes count as zeros.
const HOLE: u64 = 1 << 20;

/// A regular file that is not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    pub(super) path: PathBuf,
    pub(super) size: u64,
    /// The ranges with data of a file with holes.
    pub(super) parts: Option<Vec<Range<u64>>>,
}

impl File {
    /// Bytes that are not holes.
    pub(super) fn data(&self) -> u64 {
        match &self.parts {
            Some(parts) => parts.iter().map(|part| part.end - part.start).sum(),
            None => self.size,
        }
    }
}

/// All files, and the skipped entries.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) files: Vec<File>,
    pub(super) raw: u64,
    pub(super) skipped: Skipped,
}

/// Skipped entries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Skipped {
    pub(super) links: u64,
    pub(super) special: u64,
    pub(super) unreadable: u64,
    pub(super) other_file_systems: u64,
}

impl Found {
    /// Bytes of all files that are not holes.
    pub(super) fn data(&self) -> u64 {
        self.files.iter().map(File::data).sum()
    }

    /// Removes files that turned out to be unreadable.
    pub(super) fn leave_out(&mut self, paths: &HashSet<PathBuf>) {
        let before = self.files.len();
        self.files.retain(|file| !paths.contains(&file.path));
        self.raw = self.files.iter().map(|file| file.size).sum();
        self.skipped.unreadable += (before - self.files.len()) as u64;
    }
}

impl Skipped {
    pub(super) fn describe(&self) -> String {
        let parts = [
            (self.links, "symbolic link", "symbolic links"),
            (
                self.special,
                "device, socket or pipe",
                "devices, sockets and pipes",
            ),
            (
                self.unreadable,
                "that cannot be read",
                "that cannot be read",
            ),
            (
                self.other_file_systems,
                "on another file system",
                "on other file systems",
            ),
        ];
        let said = parts
            .iter()
            .filter(|(count, ..)| *count > 0)
            .map(|(count, one, many)| counted(*count, one, many));
        said.collect::<Vec<_>>().join(", ")
    }
}

/// Lists files. A file with several names counts once. Symbolic links are not followed.
pub(super) fn walk(top: &Path, one_file_system: bool) -> Result<Found, Failure> {
    let _spinner = Spinner::new(format!("listing {}", report::name(top)));
    let metadata = std::fs::metadata(top).map_err(|e| unreadable(top, &e))?;
    let device = metadata.dev();
    let mut found = Found::default();
    let mut seen = HashSet::new();
    if metadata.is_file() {
        std::fs::File::open(top).map_err(|e| unreadable(top, &e))?;
        found.add(top.to_owned(), &metadata, &mut seen);
        return Ok(found);
    }
    if !metadata.is_dir() {
        return Err(Failure::new(
            exit::NO_INPUT,
            format_args!(
                "{} is neither a directory nor a file; give one of these",
                top.display()
            ),
        ));
    }
    // The top must be readable. Unreadable entries below it are counted.
    let entries = std::fs::read_dir(top).map_err(|e| unreadable(top, &e))?;
    let mut waiting = vec![entries];
    while let Some(entries) = waiting.last_mut() {
        let Some(entry) = entries.next() else {
            waiting.pop();
            continue;
        };
        let looked = entry.and_then(|entry| Ok((entry.path(), entry.metadata()?)));
        let Ok((path, metadata)) = looked else {
            found.skipped.unreadable += 1;
            continue;
        };
        if metadata.is_symlink() {
            found.skipped.links += 1;
        } else if one_file_system && metadata.dev() != device {
            found.skipped.other_file_systems += 1;
        } else if metadata.is_dir() {
            match std::fs::read_dir(&path) {
                Ok(entries) => waiting.push(entries),
                Err(_) => found.skipped.unreadable += 1,
            }
        } else if metadata.is_file() {
            found.add(path, &metadata, &mut seen);
        } else {
            found.skipped.special += 1;
        }
    }
    // The order of directory entries is arbitrary, and a seed must give the same sample.
    found.files.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

impl Found {
    fn add(&mut self, path: PathBuf, metadata: &std::fs::Metadata, seen: &mut HashSet<FileId>) {
        let twice = metadata.nlink() > 1 && !seen.insert(FileId::from(metadata));
        if twice || metadata.len() == 0 {
            return;
        }
        // Checked here because only the drawn files are opened.
        if eaccess(&path, AccessFlags::R_OK).is_err() {
            self.skipped.unreadable += 1;
        } else {
            self.raw += metadata.len();
            self.files.push(File {
                parts: parts(&path, metadata),
                path,
                size: metadata.len(),
            });
        }
    }
}

/// Where a file has data, if it has large holes.
fn parts(path: &Path, metadata: &std::fs::Metadata) -> Option<Vec<Range<u64>>> {
    let size = metadata.len();
    if size < HOLE || metadata.blocks() * 512 >= size {
        return None;
    }
    let file = std::fs::File::open(path).ok()?;
    let mut parts: Vec<Range<u64>> = Vec::new();
    let mut at = 0;
    while at < size {
        let start = match seek(&file, SeekFrom::Data(at)) {
            Ok(start) => start,
            // Nothing more.
            Err(Errno::NXIO) => break,
            Err(_) => return None,
        };
        let end = seek(&file, SeekFrom::Hole(start)).ok()?.min(size);
        match parts.last_mut() {
            Some(last) if start - last.end < HOLE => last.end = end,
            _ if start < end => parts.push(start..end),
            _ => break,
        }
        at = end;
    }
    let whole = 0..size;
    (parts != [whole]).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_and_pipes_are_left_out_and_second_names_not_counted() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d/b"), "12345").unwrap();
        std::fs::write(at("a"), "123").unwrap();
        std::fs::write(at("empty"), "").unwrap();
        std::fs::hard_link(at("a"), at("d/a")).unwrap();
        std::os::unix::fs::symlink(dir.path(), at("d/loop")).unwrap();
        nix::unistd::mkfifo(&at("pipe"), nix::sys::stat::Mode::S_IRUSR).unwrap();
        let found = walk(dir.path(), true).unwrap();
        assert_eq!((found.files.len(), found.raw), (2, 8));
        assert_eq!((found.skipped.links, found.skipped.special), (1, 1));
        assert!(found.skipped.describe().contains("1 symbolic link"));
        assert_eq!(walk(&at("a"), false).unwrap().raw, 3);
        assert!(walk(&at("none"), false).is_err());
    }

    #[test]
    fn holes_are_found() {
        use std::os::unix::fs::FileExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = std::fs::File::create(&path).unwrap();
        let found = || walk(&path, true).unwrap();
        file.set_len(1 << 30).unwrap();
        assert_eq!((found().raw, found().data()), (1 << 30, 0));
        for at in [8 << 20, (8 << 20) + (128 << 10), 800 << 20] {
            file.write_all_at(&[7; 64 << 10], at).unwrap();
        }
        let parts = found().files[0].parts.clone().unwrap();
        let near = 8 << 20..(8 << 20) + (192 << 10);
        assert_eq!(parts, [near, 800 << 20..(800 << 20) + (64 << 10)]);
        assert_eq!(found().data(), 256 << 10);
    }
}
