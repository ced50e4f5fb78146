//! A disk for tests: it fails on command, and knows what would survive a loss of power.
//!
//! Everything goes to an ordinary directory at once, as it does to the page cache of a machine.
//! Beside it the disk remembers what has been synced, and the changes of names that have not.
//! [`FaultDisk::after_power_loss`] makes the directory that a machine would find afterwards.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;

use crate::{Access, Backing, BackingFile, Entry, PosixBacking, Space};

/// Does its own I/O, and is copied as it is.
const SLED: &str = "index/sled";
/// What a device writes in one piece.
const SECTOR: usize = 512;

/// The operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Creating a file.
    Create,
    /// Creating a directory.
    CreateDir,
    /// Opening a file that exists.
    Open,
    /// Reading from a file or listing a directory.
    Read,
    /// Asking for the length of a file.
    Len,
    /// Asking for the space of the device.
    Space,
    /// Writing to a file.
    Write,
    /// Cutting or extending a file.
    SetLen,
    /// Syncing a file.
    Sync,
    /// Reserving space.
    Reserve,
    /// Renaming a file.
    Rename,
    /// Removing a file or a directory.
    Remove,
    /// Syncing a directory.
    SyncDir,
}

impl Step {
    /// Whether it changes what is on the disk or what of it is durable.
    #[must_use]
    pub fn is_change(self) -> bool {
        !matches!(self, Self::Open | Self::Read | Self::Len | Self::Space)
    }
}

/// What a failing write leaves on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tear {
    /// Nothing of it.
    Nothing,
    /// Its first half.
    Half,
    /// Of the first one everything, of the next ones nothing.
    AllOnce,
}

/// What a loss of power leaves of what was not synced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// Everything.
    Everything,
    /// Any sector and any change of a name may be there or not; the number decides.
    Some(u64),
}

/// Says whether an operation fails: its kind, its file, and its number among the changes or
/// among those that change nothing.
type Rule = Arc<dyn Fn(Step, &Path, u64) -> Option<io::Error> + Send + Sync>;

/// A disk that fails on command and knows what would survive the loss of power.
pub struct FaultDisk {
    inner: PosixBacking,
    root: PathBuf,
    changes: AtomicU64,
    reads: AtomicU64,
    rule: Mutex<Option<Rule>>,
    tear: Mutex<Tear>,
    shadow: Mutex<Shadow>,
    space: AtomicU64,
    /// The change from which on there is no power.
    dark: AtomicU64,
}

impl std::fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultDisk")
    }
}

/// What a name stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Dir,
    File(u64),
}

type Names = BTreeMap<PathBuf, Node>;

/// A change of names that is not durable yet. Each happens wholly or not at all.
#[derive(Clone, Debug)]
enum Change {
    Add(PathBuf, Node),
    Rename(PathBuf, PathBuf),
    Remove(PathBuf),
}

impl Change {
    fn touches(&self, dir: &Path) -> bool {
        let inside = |path: &Path| path.parent() == Some(dir);
        match self {
            Self::Add(path, _) | Self::Remove(path) => inside(path),
            Self::Rename(from, to) => inside(from) || inside(to),
        }
    }

    fn apply(&self, names: &mut Names) {
        match self {
            Self::Add(path, node) => {
                names.insert(path.clone(), *node);
            }
            Self::Rename(from, to) => {
                // What is in a directory goes with it.
                let inside = |(name, _): &(&PathBuf, &Node)| name.starts_with(from);
                let moved: Vec<PathBuf> = names
                    .iter()
                    .filter(inside)
                    .map(|(n, _)| n.clone())
                    .collect();
                for name in moved {
                    let target = to.iter().chain(name.iter().skip(from.iter().count()));
                    if let Some(node) = names.remove(&name) {
                        names.insert(target.collect(), node);
                    }
                }
            }
            Self::Remove(path) => names.retain(|name, _| !name.starts_with(path)),
        }
    }
}

#[derive(Default)]
struct Shadow {
    next: u64,
    names: Names,
    durable_names: Names,
    pending: Vec<Change>,
    /// Synced contents of each file.
    durable: HashMap<u64, Vec<u8>>,
    /// Sectors of each file that a failed sync has dropped: the page cache shows them and takes
    /// them for written, so no later sync brings them to the disk.
    dropped: HashMap<u64, BTreeSet<usize>>,
}

impl Shadow {
    fn change(&mut self, change: Change) {
        change.apply(&mut self.names);
        self.pending.push(change);
    }

    /// What the disk would have of a file if everything was synced now.
    fn reaching(&self, id: u64, mut now: Vec<u8>) -> Vec<u8> {
        let synced = self.durable.get(&id).map_or(&[][..], |bytes| bytes);
        for &sector in self.dropped.get(&id).into_iter().flatten() {
            let (at, end) = (sector * SECTOR, now.len().min((sector + 1) * SECTOR));
            for (i, byte) in now.iter_mut().enumerate().take(end).skip(at) {
                *byte = synced.get(i).copied().unwrap_or(0);
            }
        }
        now
    }

    /// A sync of a file has failed: what is new in it is lost unless it is written again.
    fn drop_new(&mut self, id: u64, now: &[u8]) {
        let synced = self.durable.get(&id).map_or(&[][..], |bytes| bytes);
        let dropped = self.dropped.entry(id).or_default();
        for (number, sector) in now.chunks(SECTOR).enumerate() {
            let at = number * SECTOR;
            if synced.get(at..at + sector.len()) != Some(sector) {
                dropped.insert(number);
            }
        }
    }

    /// Bytes have been written, so that their sectors are on their way again.
    fn written(&mut self, id: u64, offset: u64, len: usize) {
        if let Some(dropped) = self.dropped.get_mut(&id) {
            let first = offset as usize / SECTOR;
            let end = (offset as usize + len).div_ceil(SECTOR);
            dropped.retain(|sector| !(first..end).contains(sector));
        }
    }

    fn path_of(&self, id: u64) -> Option<&PathBuf> {
        let is_it = |(_, node): &(&PathBuf, &Node)| **node == Node::File(id);
        self.names.iter().find(is_it).map(|(path, _)| path)
    }
}

/// Numbers that look random.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn coin(&mut self) -> bool {
        self.roll() >> 40 & 1 == 1
    }
}

impl FaultDisk {
    /// A disk in an existing directory; what is there already is durable.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn new(root: &Path) -> io::Result<Arc<Self>> {
        let mut shadow = Shadow::default();
        adopt(root, Path::new(""), &mut shadow)?;
        shadow.names.clone_from(&shadow.durable_names);
        Ok(Arc::new(Self {
            inner: PosixBacking::new(root),
            root: root.to_path_buf(),
            changes: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            rule: Mutex::new(None),
            tear: Mutex::new(Tear::Nothing),
            shadow: Mutex::new(shadow),
            space: AtomicU64::new(1 << 50),
            dark: AtomicU64::new(u64::MAX),
        }))
    }

    /// The disk as a backing.
    #[must_use]
    pub fn backing(self: &Arc<Self>) -> Arc<dyn Backing> {
        Arc::new(Faulty(Arc::clone(self)))
    }

    /// Sets which operations fail from now on.
    pub fn rule(
        &self,
        rule: impl Fn(Step, &Path, u64) -> Option<io::Error> + Send + Sync + 'static,
    ) {
        *self.rule.lock() = Some(Arc::new(rule));
    }

    /// Every change from this one on fails, as on a machine without power.
    pub fn cut_power_at(&self, number: u64) {
        self.dark.store(number, Ordering::SeqCst);
        self.rule(move |step, _, at| {
            (at >= number && step.is_change()).then(|| io::Error::from_raw_os_error(libc::EIO))
        });
    }

    /// Nothing fails any more.
    pub fn heal(&self) {
        *self.rule.lock() = None;
        self.dark.store(u64::MAX, Ordering::SeqCst);
    }

    /// Sets what a failing write leaves.
    pub fn tear(&self, tear: Tear) {
        *self.tear.lock() = tear;
    }

    /// Sets how much space there is said to be.
    pub fn set_space(&self, bytes: u64) {
        self.space.store(bytes, Ordering::SeqCst);
    }

    /// Changes so far.
    pub fn changes(&self) -> u64 {
        self.changes.load(Ordering::SeqCst)
    }

    /// Operations so far that change nothing.
    pub fn reads(&self) -> u64 {
        self.reads.load(Ordering::SeqCst)
    }

    fn step(&self, step: Step, path: &Path) -> io::Result<()> {
        let counter = if step.is_change() {
            &self.changes
        } else {
            &self.reads
        };
        let number = counter.fetch_add(1, Ordering::SeqCst);
        // The rule may block; the next operation must not wait for it.
        let rule = self.rule.lock().clone();
        match rule.and_then(|rule| rule(step, path, number)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// Makes the directory that is found after a loss of power. What does its own I/O
    /// is copied as it is.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn after_power_loss(&self, to: &Path, left: Left) -> io::Result<()> {
        let mut dice = Dice(match left {
            Left::Some(seed) => seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            _ => 1,
        });
        let mut stays = || match left {
            Left::Nothing => false,
            Left::Everything => true,
            Left::Some(_) => dice.coin(),
        };
        let shadow = self.shadow.lock();
        let mut names = shadow.durable_names.clone();
        for change in &shadow.pending {
            if stays() {
                change.apply(&mut names);
            }
        }
        fs::create_dir_all(to)?;
        let mut dirs = BTreeSet::from([PathBuf::new()]);
        // Parents come before their children.
        for (name, node) in &names {
            if !name.parent().is_some_and(|parent| dirs.contains(parent)) {
                continue;
            }
            match node {
                Node::Dir => {
                    fs::create_dir_all(to.join(name))?;
                    dirs.insert(name.clone());
                }
                Node::File(id) => {
                    let synced = shadow.durable.get(id).cloned().unwrap_or_default();
                    let now = match shadow.path_of(*id) {
                        Some(path) => shadow.reaching(*id, fs::read(self.root.join(path))?),
                        None => synced.clone(),
                    };
                    fs::write(to.join(name), torn(synced, &now, &mut stays))?;
                }
            }
        }
        let sled = Path::new(SLED);
        if self.root.join(sled).is_dir() && to.join("index").is_dir() {
            copy_dir(&self.root.join(sled), &to.join(sled))?;
        }
        Ok(())
    }
}

/// Takes what a directory holds for durable, but for what does its own I/O.
fn adopt(root: &Path, dir: &Path, shadow: &mut Shadow) -> io::Result<()> {
    for entry in fs::read_dir(root.join(dir))? {
        let entry = entry?;
        let path = dir.join(entry.file_name());
        if path == Path::new(SLED) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            shadow.durable_names.insert(path.clone(), Node::Dir);
            adopt(root, &path, shadow)?;
        } else {
            shadow.next += 1;
            let id = shadow.next;
            shadow.durable.insert(id, fs::read(entry.path())?);
            shadow.durable_names.insert(path, Node::File(id));
        }
    }
    Ok(())
}

/// What is found of a file: every sector as it was synced or as it was last.
fn torn(mut synced: Vec<u8>, now: &[u8], stays: &mut impl FnMut() -> bool) -> Vec<u8> {
    if stays() {
        synced.resize(now.len(), 0);
    }
    for (number, sector) in now.chunks(SECTOR).enumerate() {
        let at = number * SECTOR;
        let end = (at + sector.len()).min(synced.len());
        if at < end && synced[at..end] != sector[..end - at] && stays() {
            synced[at..end].copy_from_slice(&sector[..end - at]);
        }
    }
    synced
}

/// Copies a directory that somebody may be working in.
///
/// # Errors
/// What the operating system says.
pub fn copy_dir(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => copy_dir(&entry.path(), &target)?,
            // A file may go meanwhile.
            _ => drop(fs::copy(entry.path(), target)),
        }
    }
    Ok(())
}

#[derive(Debug)]
struct FaultFile {
    disk: Arc<FaultDisk>,
    inner: Arc<dyn BackingFile>,
    id: u64,
}

impl FaultFile {
    fn step(&self, step: Step) -> io::Result<()> {
        let path = self.disk.shadow.lock().path_of(self.id).cloned();
        self.disk.step(step, &path.unwrap_or_default())
    }

    fn write(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.inner.write_all_at(buf, offset)?;
        let mut shadow = self.disk.shadow.lock();
        shadow.written(self.id, offset, buf.len());
        Ok(())
    }

    fn contents(&self) -> io::Result<Vec<u8>> {
        let len = usize::try_from(self.inner.len()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let mut bytes = vec![0; len];
        let read = self.inner.read_at(&mut bytes, 0)?;
        bytes.truncate(read);
        Ok(bytes)
    }
}

/// The disk as a backing; separate because files need the disk itself.
#[derive(Debug)]
struct Faulty(Arc<FaultDisk>);

impl Backing for Faulty {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        let creates = matches!(access, Access::CreateNew | Access::CreatePack);
        self.0
            .step(if creates { Step::Create } else { Step::Open }, path)?;
        let inner = self.0.inner.open(path, access)?;
        let mut shadow = self.0.shadow.lock();
        let id = match shadow.names.get(path) {
            Some(Node::File(id)) if !creates => *id,
            _ => {
                shadow.next += 1;
                let id = shadow.next;
                shadow.change(Change::Add(path.to_path_buf(), Node::File(id)));
                id
            }
        };
        Ok(Arc::new(FaultFile {
            disk: Arc::clone(&self.0),
            inner,
            id,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.step(Step::Rename, to)?;
        self.0.inner.rename(from, to)?;
        let change = Change::Rename(from.to_path_buf(), to.to_path_buf());
        self.0.shadow.lock().change(change);
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::Remove, path)?;
        let mut shadow = self.0.shadow.lock();
        self.0.inner.remove_file(path)?;
        shadow.change(Change::Remove(path.to_path_buf()));
        Ok(())
    }

    fn remove_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::Remove, path)?;
        let mut shadow = self.0.shadow.lock();
        self.0.inner.remove_dir(path)?;
        shadow.change(Change::Remove(path.to_path_buf()));
        Ok(())
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::Remove, path)?;
        let mut shadow = self.0.shadow.lock();
        self.0.inner.remove_dir_all(path)?;
        shadow.change(Change::Remove(path.to_path_buf()));
        Ok(())
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::CreateDir, path)?;
        self.0.inner.create_dir_all(path)?;
        let mut shadow = self.0.shadow.lock();
        let mut dirs: Vec<&Path> = path.ancestors().collect();
        dirs.retain(|dir| *dir != Path::new("") && !shadow.names.contains_key(*dir));
        for dir in dirs.into_iter().rev() {
            shadow.change(Change::Add(dir.to_path_buf(), Node::Dir));
        }
        Ok(())
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.0.step(Step::Read, path)?;
        self.0.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::SyncDir, path)?;
        let path = path.strip_prefix(".").unwrap_or(path);
        let mut shadow = self.0.shadow.lock();
        let pending = std::mem::take(&mut shadow.pending);
        for change in pending {
            if change.touches(path) {
                change.apply(&mut shadow.durable_names);
            } else {
                shadow.pending.push(change);
            }
        }
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
        self.0.step(Step::Space, Path::new(""))?;
        let space = self.0.space.load(Ordering::SeqCst);
        Ok(Space {
            total: space,
            free: space,
            available: space,
            inodes: 1,
            inodes_free: 1,
        })
    }

    fn root(&self) -> &Path {
        &self.0.root
    }
}

impl BackingFile for FaultFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.step(Step::Read)?;
        self.inner.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if let Err(e) = self.step(Step::Write) {
            let mut tear = self.disk.tear.lock();
            match *tear {
                Tear::Nothing => {}
                Tear::Half => self.write(&buf[..buf.len() / 2], offset)?,
                Tear::AllOnce => {
                    *tear = Tear::Nothing;
                    self.write(buf, offset)?;
                }
            }
            return Err(e);
        }
        self.write(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        let synced = self.step(Step::Sync);
        if synced.is_err() && self.disk.changes() > self.disk.dark.load(Ordering::SeqCst) {
            return synced;
        }
        let bytes = self.contents()?;
        let mut shadow = self.disk.shadow.lock();
        if synced.is_err() {
            shadow.drop_new(self.id, &bytes);
        } else {
            let bytes = shadow.reaching(self.id, bytes);
            shadow.durable.insert(self.id, bytes);
        }
        synced
    }

    fn len(&self) -> io::Result<u64> {
        self.step(Step::Len)?;
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.step(Step::SetLen)?;
        self.inner.set_len(len)
    }

    fn reserve(&self, _len: u64) -> io::Result<bool> {
        self.step(Step::Reserve)?;
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lab {
        dir: tempfile::TempDir,
        disk: Arc<FaultDisk>,
    }

    impl Lab {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            fs::create_dir(dir.path().join("live")).unwrap();
            let disk = FaultDisk::new(&dir.path().join("live")).unwrap();
            Self { dir, disk }
        }

        fn found(&self, left: Left, name: &str) -> Option<Vec<u8>> {
            let to = self.dir.path().join("after");
            let _ = fs::remove_dir_all(&to);
            self.disk.after_power_loss(&to, left).unwrap();
            fs::read(to.join(name)).ok()
        }
    }

    #[test]
    fn what_is_not_synced_may_be_gone() {
        let lab = Lab::new();
        let backing = lab.disk.backing();
        backing.create_dir_all(Path::new("d")).unwrap();
        let file = backing.open(Path::new("d/f"), Access::CreateNew).unwrap();
        file.write_all_at(b"one", 0).unwrap();
        file.sync_data().unwrap();
        assert_eq!(lab.found(Left::Nothing, "d/f"), None);
        backing.sync_dir(Path::new("d")).unwrap();
        assert_eq!(lab.found(Left::Nothing, "d/f"), None, "nobody synced d");
        backing.sync_dir(Path::new("")).unwrap();
        file.write_all_at(b"two", 0).unwrap();
        assert_eq!(lab.found(Left::Nothing, "d/f").unwrap(), b"one");
        assert_eq!(lab.found(Left::Everything, "d/f").unwrap(), b"two");
        backing.rename(Path::new("d/f"), Path::new("d/g")).unwrap();
        assert_eq!(lab.found(Left::Nothing, "d/f").unwrap(), b"one");
        backing.sync_dir(Path::new("d")).unwrap();
        assert_eq!(lab.found(Left::Nothing, "d/f"), None);
        assert_eq!(lab.found(Left::Nothing, "d/g").unwrap(), b"one");
    }

    #[test]
    fn what_is_in_a_directory_goes_with_it() {
        let lab = Lab::new();
        let backing = lab.disk.backing();
        backing.create_dir_all(Path::new("d")).unwrap();
        let file = backing.open(Path::new("d/f"), Access::CreateNew).unwrap();
        file.write_all_at(b"one", 0).unwrap();
        file.sync_data().unwrap();
        backing.sync_dir(Path::new("d")).unwrap();
        backing.sync_dir(Path::new(".")).unwrap();
        backing.rename(Path::new("d"), Path::new("e")).unwrap();
        assert_eq!(lab.found(Left::Nothing, "d/f").unwrap(), b"one");
        assert_eq!(lab.found(Left::Everything, "d/f"), None);
        backing.sync_dir(Path::new("")).unwrap();
        assert_eq!(lab.found(Left::Nothing, "e/f").unwrap(), b"one");
        assert_eq!(lab.found(Left::Nothing, "d/f"), None);
    }

    #[test]
    fn sectors_survive_one_by_one() {
        let lab = Lab::new();
        let backing = lab.disk.backing();
        let file = backing.open(Path::new("f"), Access::CreateNew).unwrap();
        file.write_all_at(&[1; 8 * SECTOR], 0).unwrap();
        file.sync_data().unwrap();
        backing.sync_dir(Path::new("")).unwrap();
        file.write_all_at(&[2; 8 * SECTOR], 0).unwrap();
        let mut mixtures = BTreeSet::new();
        for seed in 0..40 {
            let found = lab.found(Left::Some(seed), "f").unwrap();
            for sector in found.chunks(SECTOR) {
                assert!(sector.iter().all(|b| *b == sector[0] && matches!(b, 1 | 2)));
            }
            mixtures.insert(found.iter().step_by(SECTOR).copied().collect::<Vec<_>>());
        }
        assert!(mixtures.len() > 20, "{}", mixtures.len());
    }

    #[test]
    fn what_a_failed_sync_has_dropped_is_there_only_when_it_is_written_again() {
        let lab = Lab::new();
        let backing = lab.disk.backing();
        let file = backing.open(Path::new("f"), Access::CreateNew).unwrap();
        file.write_all_at(&[1; 4 * SECTOR], 0).unwrap();
        file.sync_data().unwrap();
        backing.sync_dir(Path::new("")).unwrap();
        file.write_all_at(&[2; 4 * SECTOR], SECTOR as u64).unwrap();
        lab.disk
            .rule(|step, _, _| (step == Step::Sync).then(|| io::ErrorKind::Other.into()));
        assert!(file.sync_data().is_err());
        lab.disk.heal();
        file.write_all_at(b"again", 2 * SECTOR as u64).unwrap();
        file.sync_data().unwrap();
        let mut seen = vec![0; 5 * SECTOR];
        file.read_at(&mut seen, 0).unwrap();
        assert_eq!(seen[SECTOR], 2, "the page cache shows it all the same");
        for left in [Left::Nothing, Left::Everything, Left::Some(7)] {
            let found = lab.found(left, "f").unwrap();
            let first: Vec<u8> = found.iter().step_by(SECTOR).copied().collect();
            assert_eq!(first, [1, 1, b'a', 1, 0], "{left:?}");
        }
    }

    #[test]
    fn a_disk_without_power_changes_nothing() {
        let lab = Lab::new();
        let backing = lab.disk.backing();
        let file = backing.open(Path::new("f"), Access::CreateNew).unwrap();
        file.write_all_at(b"before", 0).unwrap();
        lab.disk.cut_power_at(lab.disk.changes());
        assert!(file.write_all_at(b"later!", 0).is_err());
        assert!(file.sync_data().is_err());
        assert!(backing.remove_file(Path::new("f")).is_err());
        assert_eq!(lab.found(Left::Everything, "f").unwrap(), b"before");
    }
}
