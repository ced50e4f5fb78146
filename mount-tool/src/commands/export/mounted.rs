//! Files below a mount, read as any program reads them.

use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

use super::source::{Contents, Kind, Node, Source, is_own};
use crate::output::failure::Failure;

const TYPE: u32 = 0o170_000;

/// A path in a mount.
pub(crate) struct MountSource {
    top: PathBuf,
}

impl MountSource {
    pub(crate) fn new(top: PathBuf) -> Self {
        Self { top }
    }
}

fn failed(path: &Path) -> impl Fn(io::Error) -> Failure {
    move |error| Failure::io("read", path, &error)
}

impl Source for MountSource {
    type Id = PathBuf;

    fn top(&self) -> PathBuf {
        self.top.clone()
    }

    fn node(&self, path: &PathBuf) -> Result<Node, Failure> {
        let metadata = path.symlink_metadata().map_err(failed(path))?;
        let file_type = metadata.file_type();
        let kind = if file_type.is_file() {
            Kind::File
        } else if file_type.is_dir() {
            Kind::Directory
        } else if file_type.is_symlink() {
            Kind::Symlink(path.read_link().map_err(failed(path))?.into())
        } else {
            Kind::Special(metadata.mode() & TYPE, metadata.rdev())
        };
        Ok(Node {
            id: metadata.ino(),
            kind,
            mode: metadata.mode() & !TYPE,
            owner: (metadata.uid(), metadata.gid()),
            accessed: (metadata.atime(), metadata.atime_nsec() as u32),
            modified: (metadata.mtime(), metadata.mtime_nsec() as u32),
            size: metadata.len(),
            links: metadata.nlink(),
            xattrs: xattrs(path)?,
        })
    }

    fn entries(&self, path: &PathBuf) -> Result<Vec<(OsString, PathBuf)>, Failure> {
        let mut entries = Vec::new();
        for entry in std::fs::read_dir(path).map_err(failed(path))? {
            let entry = entry.map_err(failed(path))?;
            entries.push((entry.file_name(), entry.path()));
        }
        entries.sort();
        Ok(entries)
    }

    fn contents<'a>(&'a self, path: &PathBuf) -> Result<Box<dyn Contents + 'a>, Failure> {
        let file = File::open(path).map_err(failed(path))?;
        let begun = file.metadata().map_err(failed(path))?;
        Ok(Box::new(Open {
            file,
            begun,
            path: path.clone(),
        }))
    }

    fn place(&self) -> &Path {
        &self.top
    }
}

fn xattrs(path: &Path) -> Result<Vec<(OsString, Vec<u8>)>, Failure> {
    let failed = |e: Errno| failed(path)(e.into());
    let mut names = vec![0; 65_536];
    let length = match rustix::fs::llistxattr(path, &mut names) {
        Ok(length) => length,
        Err(Errno::NOTSUP) => 0,
        Err(e) => return Err(failed(e)),
    };
    names.truncate(length);
    let mut found = Vec::new();
    for name in names.split(|&byte| byte == 0) {
        if name.is_empty() || is_own(name) {
            continue;
        }
        let name = OsStr::from_bytes(name);
        let mut value = vec![0; 65_536];
        match rustix::fs::lgetxattr(path, name, &mut value) {
            Ok(length) => value.truncate(length),
            // Listed for every user, but readable only for some.
            Err(Errno::NODATA | Errno::PERM | Errno::ACCESS) => continue,
            Err(e) => return Err(failed(e)),
        }
        found.push((name.to_owned(), value));
    }
    Ok(found)
}

struct Open {
    file: File,
    path: PathBuf,
    begun: Metadata,
}

impl Contents for Open {
    fn read(&mut self, offset: u64, buffer: &mut [u8]) -> Result<usize, Failure> {
        let mut done = 0;
        while done < buffer.len() {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(&self.path)(e)),
            }
        }
        Ok(done)
    }

    fn next_data(&mut self, offset: u64) -> Result<Option<u64>, Failure> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(offset)) {
            Ok(at) => Ok(Some(at)),
            Err(Errno::NXIO) => Ok(None),
            Err(e) => Err(failed(&self.path)(e.into())),
        }
    }

    fn has_changed(&self) -> Result<bool, Failure> {
        let now = self.file.metadata().map_err(failed(&self.path))?;
        let facts = |m: &Metadata| (m.len(), m.mtime(), m.mtime_nsec());
        Ok(facts(&now) != facts(&self.begun))
    }
}
