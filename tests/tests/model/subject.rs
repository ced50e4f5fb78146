//! The subjects of the comparison: ShaleFS in this process, and a mounted file system.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use shale_fs::policy::MountDefaults;
use shale_fs::{Access, Attr, Caller, Error, Fs, SetAttr, WriteSource};
use shale_store::{DeviceOptions, Effort, Store, StoreOptions};
use shale_tests::{Fs as TestFs, Outcome};

use crate::tree::{Answer, Entry, hash};
use crate::{Step, contents, names};

const XATTR: &str = "user.model";

/// A file system under test.
pub(crate) trait Subject {
    /// Does one step and returns its result.
    fn apply(&mut self, step: &Step) -> Outcome<Answer>;
    /// Everything below the root.
    fn listing(&mut self) -> Outcome<BTreeMap<String, Entry>>;
}

/// ShaleFS without FUSE.
pub(crate) struct InProcess {
    _dir: tempfile::TempDir,
    path: PathBuf,
    fs: Option<Fs>,
}

const ROOT: u64 = 1;
const DEFAULTS: MountDefaults = MountDefaults {
    chunk: 64 << 10,
    quiet: None,
};

impl InProcess {
    pub(crate) fn new(work: &Path) -> Outcome<Self> {
        let dir = tempfile::tempdir_in(work)?;
        let path = dir.path().to_owned();
        let mut subject = Self {
            _dir: dir,
            path,
            fs: None,
        };
        subject.open()?;
        Ok(subject)
    }

    fn open(&mut self) -> Outcome {
        let options = StoreOptions {
            memory: 1 << 20,
            workers: 2,
            owner: (0, 0),
            effort: Effort::Fast,
            purpose: "test".to_owned(),
            device: DeviceOptions::default(),
            kernel_cache: true,
        };
        self.fs = Some(Fs::new(Store::open(&self.path, &options)?, DEFAULTS));
        Ok(())
    }

    fn fs(&self) -> &Fs {
        self.fs.as_ref().expect("open between steps")
    }

    /// Walks as the kernel does.
    fn resolve(&self, path: &[&str]) -> Result<Attr, i32> {
        let mut attr = self.fs().getattr(ROOT).map_err(errno)?;
        for name in path {
            require_dir(&attr)?;
            attr = self.fs().lookup(attr.ino, name.as_bytes()).map_err(errno)?;
        }
        Ok(attr)
    }

    fn parent<'a>(&self, path: &[&'a str]) -> Result<(u64, &'a str), i32> {
        let (name, dirs) = path.split_last().expect("paths have a name");
        let dir = self.resolve(dirs)?;
        require_dir(&dir)?;
        Ok((dir.ino, name))
    }

    fn followed(&self, path: &[&str]) -> Result<Attr, i32> {
        let attr = self.resolve(path)?;
        if kind(&attr) == LINK {
            Err(Errno::ENOENT as i32)
        } else {
            Ok(attr)
        }
    }

    fn file(&self, path: &[&str]) -> Result<u64, i32> {
        let attr = self.followed(path)?;
        if kind(&attr) == DIR {
            Err(Errno::EISDIR as i32)
        } else {
            Ok(attr.ino)
        }
    }

    fn entry(&self, attr: &Attr) -> Result<Entry, i32> {
        let mode = attr.mode & 0o777;
        let nlink = u64::from(attr.nlink);
        let xattr = match self
            .fs()
            .getxattr(&Caller::default(), attr.ino, XATTR.as_bytes())
        {
            Ok(value) => Some(value),
            Err(e) if e.errno() == Errno::ENODATA as i32 => None,
            Err(e) => return Err(e.errno()),
        };
        Ok(match kind(attr) {
            DIR => Entry::Dir { mode, nlink, xattr },
            LINK => {
                let target = self.fs().readlink(attr.ino).map_err(errno)?;
                Entry::Symlink(String::from_utf8_lossy(&target).into_owned())
            }
            _ => {
                let handle = self.fs().open(attr.ino, Access::WRITE).map_err(errno)?;
                let mut bytes = Vec::new();
                self.fs()
                    .read(&handle, 0, 1 << 20, &mut bytes)
                    .map_err(errno)?;
                self.fs().release(handle);
                Entry::File {
                    mode,
                    nlink,
                    size: attr.size,
                    hash: hash(&bytes),
                    xattr,
                }
            }
        })
    }

    fn execute(&self, step: &Step) -> Answer {
        let fs = self.fs();
        let caller = Caller {
            umask: 0o022,
            ..Caller::default()
        };
        match step {
            Step::Create(path) => {
                let (dir, name) = self.parent(&names(path))?;
                let made = fs.create(&caller, dir, name.as_bytes(), 0o666, Access::WRITE);
                fs.release(made.map_err(errno)?.1);
            }
            Step::Mkdir(path) => {
                let (dir, name) = self.parent(&names(path))?;
                fs.mkdir(&caller, dir, name.as_bytes(), 0o777)
                    .map_err(errno)?;
            }
            Step::Symlink(path) => {
                let (dir, name) = self.parent(&names(path))?;
                fs.symlink(&caller, dir, name.as_bytes(), b"nowhere")
                    .map_err(errno)?;
            }
            Step::Link(from, to) => {
                let node = self.resolve(&names(from))?;
                let (dir, name) = self.parent(&names(to))?;
                if fs.lookup(dir, name.as_bytes()).is_ok() {
                    return Err(Errno::EEXIST as i32);
                }
                fs.link(node.ino, dir, name.as_bytes()).map_err(errno)?;
            }
            Step::Unlink(path) => {
                let (dir, name) = self.parent(&names(path))?;
                let ino = fs.lookup(dir, name.as_bytes()).map_err(errno)?.ino;
                fs.unlink(dir, name.as_bytes()).map_err(errno)?;
                fs.forget(ino);
            }
            Step::Rmdir(path) => {
                let (dir, name) = self.parent(&names(path))?;
                let ino = fs.lookup(dir, name.as_bytes()).map_err(errno)?.ino;
                fs.rmdir(dir, name.as_bytes()).map_err(errno)?;
                fs.forget(ino);
            }
            Step::Rename(from, to) => {
                let (from_dir, from_name) = self.parent(&names(from))?;
                let (to_dir, to_name) = self.parent(&names(to))?;
                let replaced = fs.lookup(to_dir, to_name.as_bytes()).map(|attr| attr.ino);
                // The kernel itself refuses to replace a directory above the source.
                let (from, to) = (names(from), names(to));
                if from.len() > to.len() && from.starts_with(&to) {
                    fs.lookup(from_dir, from_name.as_bytes()).map_err(errno)?;
                    return Err(Errno::ENOTEMPTY as i32);
                }
                fs.rename(
                    from_dir,
                    from_name.as_bytes(),
                    to_dir,
                    to_name.as_bytes(),
                    0,
                )
                .map_err(errno)?;
                if let Ok(ino) = replaced {
                    fs.forget(ino);
                }
            }
            Step::Write {
                path,
                offset,
                len,
                seed,
                sync,
            } => {
                let handle = fs
                    .open(self.file(&names(path))?, Access::WRITE)
                    .map_err(errno)?;
                fs.write(
                    &handle,
                    *offset,
                    &contents(*len, *seed),
                    WriteSource::Program.into(),
                )
                .map_err(errno)?;
                if *sync {
                    fs.fsync(&handle).map_err(errno)?;
                }
                fs.release(handle);
            }
            Step::Truncate(path, size) => {
                let set = SetAttr {
                    size: Some(*size),
                    ..SetAttr::default()
                };
                fs.setattr(self.file(&names(path))?, None, &set)
                    .map_err(errno)?;
            }
            Step::Chmod(path, mode) => {
                let set = SetAttr {
                    mode: Some(*mode),
                    ..SetAttr::default()
                };
                fs.setattr(self.followed(&names(path))?.ino, None, &set)
                    .map_err(errno)?;
            }
            Step::SetXattr(path, value) => {
                let ino = self.followed(&names(path))?.ino;
                let value = vec![*value; 1 + *value as usize];
                fs.setxattr(&caller, ino, XATTR.as_bytes(), &value, 0)
                    .map_err(errno)?;
            }
            Step::RemoveXattr(path) => {
                let ino = self.followed(&names(path))?.ino;
                fs.removexattr(ino, XATTR.as_bytes()).map_err(errno)?;
            }
            Step::Look(path) => {
                return Ok(Some(self.entry(&self.resolve(&names(path))?)?));
            }
            Step::Remount => {}
        }
        Ok(None)
    }
}

const FMT: u32 = 0o170_000;
const DIR: u32 = 0o040_000;
const LINK: u32 = 0o120_000;

fn kind(attr: &Attr) -> u32 {
    attr.mode & FMT
}

fn require_dir(attr: &Attr) -> Result<(), i32> {
    match kind(attr) {
        DIR => Ok(()),
        // The links of the model lead nowhere.
        LINK => Err(Errno::ENOENT as i32),
        _ => Err(Errno::ENOTDIR as i32),
    }
}

#[allow(clippy::needless_pass_by_value)]
fn errno(error: Error) -> i32 {
    error.errno()
}

impl Subject for InProcess {
    fn apply(&mut self, step: &Step) -> Outcome<Answer> {
        if matches!(step, Step::Remount) {
            if let Some(fs) = self.fs.take() {
                fs.store().shut_down()?;
            }
            self.open()?;
        }
        Ok(self.execute(step))
    }

    fn listing(&mut self) -> Outcome<BTreeMap<String, Entry>> {
        let mut listing = BTreeMap::new();
        let mut todo = vec![(String::new(), ROOT)];
        while let Some((path, dir)) = todo.pop() {
            let mut children = Vec::new();
            self.fs().readdir(dir, 0, |entry| {
                if entry.name != b"." && entry.name != b".." {
                    children.push(entry.clone());
                }
                true
            })?;
            for child in children {
                let path = format!("{path}/{}", String::from_utf8_lossy(&child.name));
                let attr = self.fs().getattr(child.ino)?;
                if kind(&attr) == DIR {
                    todo.push((path.clone(), child.ino));
                }
                let entry = self.entry(&attr).map_err(io::Error::from_raw_os_error)?;
                listing.insert(path, entry);
            }
        }
        Ok(listing)
    }
}

/// A mounted file system; every sequence has its own directory.
pub(crate) struct Mounted<'a> {
    fs: &'a RefCell<TestFs>,
    top: String,
}

impl<'a> Mounted<'a> {
    pub(crate) fn new(fs: &'a RefCell<TestFs>, round: u32) -> Outcome<Self> {
        let top = format!("round{round}");
        fs::create_dir(fs.borrow().at(&top))?;
        Ok(Self { fs, top })
    }

    fn at(&self, path: &[usize]) -> PathBuf {
        let mut at = self.fs.borrow().at(&self.top);
        at.extend(names(path));
        at
    }

    fn execute(&self, step: &Step) -> io::Result<Option<Entry>> {
        match step {
            Step::Create(path) => {
                OpenOptions::new()
                    .write(true)
                    .create_new(true)
                    .mode(0o644)
                    .open(self.at(path))?;
            }
            Step::Mkdir(path) => fs::create_dir(self.at(path))?,
            Step::Symlink(path) => std::os::unix::fs::symlink("nowhere", self.at(path))?,
            Step::Link(from, to) => fs::hard_link(self.at(from), self.at(to))?,
            Step::Unlink(path) => fs::remove_file(self.at(path))?,
            Step::Rmdir(path) => fs::remove_dir(self.at(path))?,
            Step::Rename(from, to) => fs::rename(self.at(from), self.at(to))?,
            Step::Write {
                path,
                offset,
                len,
                seed,
                sync,
            } => {
                let file = OpenOptions::new().write(true).open(self.at(path))?;
                file.write_all_at(&contents(*len, *seed), *offset)?;
                if *sync {
                    file.sync_all()?;
                }
            }
            Step::Truncate(path, size) => {
                nix::unistd::truncate(&self.at(path), *size as i64)?;
            }
            Step::Chmod(path, mode) => {
                fs::set_permissions(self.at(path), fs::Permissions::from_mode(*mode))?;
            }
            Step::SetXattr(path, value) => {
                let value = vec![*value; 1 + *value as usize];
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(self.at(path), XATTR, &value, flags)?;
            }
            Step::RemoveXattr(path) => rustix::fs::removexattr(self.at(path), XATTR)?,
            Step::Look(path) => return Ok(Some(look(&self.at(path))?)),
            Step::Remount => {}
        }
        Ok(None)
    }
}

fn look(path: &Path) -> io::Result<Entry> {
    let stat = fs::symlink_metadata(path)?;
    if stat.is_symlink() {
        return Ok(Entry::Symlink(
            fs::read_link(path)?.to_string_lossy().into_owned(),
        ));
    }
    let mut value = vec![0; 512];
    let xattr = match rustix::fs::lgetxattr(path, XATTR, &mut value) {
        Ok(len) => Some(value[..len].to_vec()),
        Err(rustix::io::Errno::NODATA) => None,
        Err(e) => return Err(e.into()),
    };
    let (mode, nlink) = (stat.mode() & 0o777, stat.nlink());
    if stat.is_dir() {
        return Ok(Entry::Dir { mode, nlink, xattr });
    }
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut File::open(path)?, &mut bytes)?;
    Ok(Entry::File {
        mode,
        nlink,
        size: stat.len(),
        hash: hash(&bytes),
        xattr,
    })
}

impl Subject for Mounted<'_> {
    fn apply(&mut self, step: &Step) -> Outcome<Answer> {
        if matches!(step, Step::Remount) {
            self.fs.borrow_mut().refresh()?;
        }
        Ok(self
            .execute(step)
            .map_err(|e| e.raw_os_error().unwrap_or(0)))
    }

    fn listing(&mut self) -> Outcome<BTreeMap<String, Entry>> {
        let top = self.fs.borrow().at(&self.top);
        let mut listing = BTreeMap::new();
        let mut todo = vec![(String::new(), top)];
        while let Some((name, dir)) = todo.pop() {
            for child in fs::read_dir(dir)? {
                let child = child?;
                let name = format!("{name}/{}", child.file_name().to_string_lossy());
                if child.file_type()?.is_dir() {
                    todo.push((name.clone(), child.path()));
                }
                listing.insert(name, look(&child.path())?);
            }
        }
        Ok(listing)
    }
}
