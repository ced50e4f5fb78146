//! A disk in memory that knows which of its bytes are durable. The scheduler may switch before
//! every step.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use shale_backing::{Access, Backing, BackingEntry, BackingFile, Space};
use shuttle::thread;

/// Directory of packs.
pub(crate) const PACKS: &str = "packs";
const TOTAL: u64 = 1 << 40;

/// The operations of a disk, which it may refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Create,
    Write,
    Sync,
    SyncDir,
}

/// The disk. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    files: BTreeMap<PathBuf, Arc<Mutex<Contents>>>,
    dirs: BTreeSet<PathBuf>,
    /// Names of files and directories that are durable.
    names: BTreeSet<PathBuf>,
    /// The step that fails, once, and how many of its kind are left before it.
    failing: Option<(Step, u64)>,
}

#[derive(Clone, Debug, Default)]
struct Contents {
    now: Vec<u8>,
    durable: Vec<u8>,
    /// Ranges written since the last sync. A failed sync drops them, as a page cache does that
    /// marks them clean.
    unsynced: Vec<(usize, usize)>,
    sealed: bool,
}

#[derive(Debug)]
struct Handle {
    disk: Disk,
    contents: Arc<Mutex<Contents>>,
}

impl Disk {
    /// An empty disk with a directory for packs.
    pub(crate) fn new() -> Self {
        let disk = Self::default();
        disk.state().dirs.insert(PACKS.into());
        disk
    }

    fn state(&self) -> MutexGuard<'_, State> {
        held(&self.0)
    }

    /// Lets a step fail once, after `after` others of its kind.
    pub(crate) fn fail(&self, step: Step, after: u64) {
        self.state().failing = Some((step, after));
    }

    /// Nothing fails from now on.
    pub(crate) fn heal(&self) {
        self.state().failing = None;
    }

    /// The remains of a loss of power: only durable data.
    pub(crate) fn survivors(&self) -> Self {
        let state = self.state();
        let survives = |path: &&PathBuf| {
            let mut above = path
                .ancestors()
                .take_while(|part| *part != Path::new(PACKS));
            above.all(|part| state.names.contains(part))
        };
        let keep = |contents: &Mutex<Contents>| {
            let durable = held(contents).durable.clone();
            Arc::new(Mutex::new(Contents {
                now: durable.clone(),
                durable,
                ..Contents::default()
            }))
        };
        let files = state.files.iter().filter(|(path, _)| survives(path));
        let left = State {
            files: files
                .map(|(path, contents)| (path.clone(), keep(contents)))
                .collect(),
            dirs: state.dirs.iter().filter(survives).cloned().collect(),
            names: state.names.clone(),
            failing: None,
        };
        Self(Arc::new(Mutex::new(left)))
    }

    /// Contents of a file, and those of them that are durable under a durable name.
    pub(crate) fn contents(&self, path: &Path) -> (Vec<u8>, Option<Vec<u8>>) {
        let state = self.state();
        let contents = held(&state.files[path]);
        let durable = state.names.contains(path).then(|| contents.durable.clone());
        (contents.now.clone(), durable)
    }
}

impl State {
    fn step(&mut self, step: Step) -> io::Result<()> {
        match &mut self.failing {
            Some((failing, 0)) if *failing == step => {
                self.failing = None;
                Err(io::Error::from_raw_os_error(libc::EIO))
            }
            Some((failing, left)) if *failing == step => {
                *left -= 1;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

fn missing() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOENT)
}

/// Never held across [`turn`].
fn held<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().expect("no holder panics")
}

/// Lets the scheduler switch.
fn turn() {
    thread::sleep(Duration::ZERO);
}

impl Backing for Disk {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        turn();
        let mut state = self.state();
        if access == Access::CreatePack {
            state.step(Step::Create)?;
            let older = state.files.insert(path.to_owned(), Arc::default());
            assert!(older.is_none(), "{} exists", path.display());
        }
        let contents = state.files.get(path).ok_or_else(missing)?;
        Ok(Arc::new(Handle {
            disk: self.clone(),
            contents: Arc::clone(contents),
        }))
    }

    fn rename(&self, _from: &Path, _to: &Path) -> io::Result<()> {
        unreachable!("packs keep their names")
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        turn();
        let mut state = self.state();
        state.names.remove(path);
        let removed = state.files.remove(path);
        removed.map(drop).ok_or_else(missing)
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let mut state = self.state();
        let inside = |found: &Path| found.parent() == Some(path);
        if state.files.keys().any(|file| inside(file)) {
            return Err(io::ErrorKind::DirectoryNotEmpty.into());
        }
        state.dirs.remove(path);
        Ok(())
    }

    fn remove_dir_all(&self, _path: &Path) -> io::Result<()> {
        unreachable!("directories with something in them stay")
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        let above = path.ancestors().filter(|part| *part != Path::new(""));
        self.state().dirs.extend(above.map(Path::to_owned));
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<BackingEntry>> {
        let state = self.state();
        let entry = |found: &Path, len: Option<usize>| BackingEntry {
            name: found.file_name().map(PathBuf::from).unwrap_or_default(),
            is_dir: len.is_none(),
            len: len.unwrap_or(0) as u64,
        };
        let files = state.files.iter();
        let files = files.map(|(file, contents)| (file, Some(held(contents).now.len())));
        let all = files.chain(state.dirs.iter().map(|dir| (dir, None)));
        let inside = all.filter(|(found, _)| found.parent() == Some(path));
        Ok(inside.map(|(found, len)| entry(found, len)).collect())
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        turn();
        let mut state = self.state();
        state.step(Step::SyncDir)?;
        let all = state.files.keys().chain(&state.dirs);
        let inside = all.filter(|found| found.parent() == Some(path));
        let inside: Vec<PathBuf> = inside.cloned().collect();
        state.names.extend(inside);
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        Ok(Space {
            total: TOTAL,
            free: TOTAL,
            available: TOTAL,
            inodes: 1 << 20,
            inodes_free: 1 << 20,
        })
    }

    fn root(&self) -> &Path {
        Path::new("")
    }
}

impl BackingFile for Handle {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        turn();
        let contents = held(&self.contents);
        let rest = contents.now.get(offset as usize..).unwrap_or_default();
        let len = buf.len().min(rest.len());
        buf[..len].copy_from_slice(&rest[..len]);
        Ok(len)
    }

    /// In two halves; the scheduler may switch in between.
    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let middle = buf.len() / 2;
        for (at, part) in [(0, &buf[..middle]), (middle, &buf[middle..])] {
            turn();
            self.disk.state().step(Step::Write)?;
            let mut contents = held(&self.contents);
            assert!(!contents.sealed, "written behind the seal");
            let (begin, end) = (offset as usize + at, offset as usize + at + part.len());
            let len = contents.now.len().max(end);
            contents.now.resize(len, 0);
            contents.now[begin..end].copy_from_slice(part);
            contents.unsynced.push((begin, end));
        }
        Ok(())
    }

    /// Covers what was written before the call.
    fn sync_data(&self) -> io::Result<()> {
        turn();
        let (now, unsynced) = {
            let mut contents = held(&self.contents);
            let unsynced = std::mem::take(&mut contents.unsynced);
            (contents.now.clone(), unsynced)
        };
        self.disk.state().step(Step::Sync)?;
        turn();
        let durable = &mut held(&self.contents).durable;
        durable.resize(now.len(), 0);
        for (begin, end) in unsynced {
            let end = end.min(now.len());
            let begin = begin.min(end);
            durable[begin..end].copy_from_slice(&now[begin..end]);
        }
        Ok(())
    }

    fn seal(&self) -> io::Result<()> {
        held(&self.contents).sealed = true;
        self.sync_data()
    }

    fn len(&self) -> io::Result<u64> {
        Ok(held(&self.contents).now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        held(&self.contents).now.resize(len as usize, 0);
        Ok(())
    }

    fn reserve(&self, _len: u64) -> io::Result<bool> {
        Ok(false)
    }
}
