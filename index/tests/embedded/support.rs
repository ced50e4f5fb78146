//! A reference with its whole history, and a disk that fails on command.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use shale_backing::{Access, Backing, BackingFile, Entry, PosixBacking, Space};
use shale_index::Kv;
use shale_index::engine::{Embedded, MemKv, Options, Recovery, Tuning};
use shale_index::kv::{Lease, Op, Outcome, Txn, Version, Versioned};

pub(crate) type State = BTreeMap<Vec<u8>, Versioned>;

pub(crate) const TINY: Options = Options {
    memory: 1 << 20,
    read_only: false,
    tuning: Tuning::Tiny,
};
pub(crate) const QUIET: Options = Options {
    tuning: Tuning::TinyQuiet,
    ..TINY
};

pub(crate) fn posix(path: &Path) -> Arc<dyn Backing> {
    Arc::new(PosixBacking::new(path))
}

pub(crate) fn open(path: &Path, options: Options) -> (Embedded, Recovery) {
    Embedded::open(posix(path), options).unwrap()
}

/// All live keys of an engine.
pub(crate) fn state_of(kv: &dyn Kv) -> State {
    kv.range(&[], &[0xff; 64], usize::MAX)
        .unwrap()
        .into_iter()
        .collect()
}

pub(crate) fn put(kv: &dyn Kv, key: &str, value: &[u8]) -> Version {
    let mut txn = Txn::new();
    txn.put(key.into(), value.to_vec());
    committed(kv.commit(&txn).unwrap())
}

pub(crate) fn committed(outcome: Outcome) -> Version {
    match outcome {
        Outcome::Committed(version) => version,
        other => panic!("{other:?}"),
    }
}

/// The same transaction under another lease.
pub(crate) fn under(txn: &Txn, new: Lease) -> Txn {
    let mut txn = txn.clone();
    for op in &mut txn.ops {
        if let Op::Put {
            lease: Some(lease), ..
        } = op
        {
            *lease = new;
        }
    }
    txn
}

/// The reference, with the state after every commit.
pub(crate) struct Model {
    pub(crate) kv: MemKv,
    pub(crate) history: BTreeMap<Version, State>,
}

impl Model {
    pub(crate) fn new() -> Self {
        Self {
            kv: MemKv::new(),
            history: BTreeMap::from([(0, State::new())]),
        }
    }

    pub(crate) fn commit(&mut self, txn: &Txn) -> Outcome {
        let outcome = self.kv.commit(&under(txn, self.kv.lease())).unwrap();
        self.note();
        outcome
    }

    pub(crate) fn reopen(&mut self) {
        self.kv = self.kv.reopen();
        self.note();
    }

    fn note(&mut self) {
        self.history.insert(self.kv.version(), state_of(&self.kv));
    }
}

pub(crate) fn copy_dir(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.metadata() {
            Ok(metadata) if metadata.is_dir() => copy_dir(&entry.path(), &target),
            // A file may go while the engine works on.
            _ => drop(std::fs::copy(entry.path(), target)),
        }
    }
}

/// The operations that can be made to fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Step {
    Create,
    Write,
    Sync,
    Reserve,
    Rename,
    Remove,
    SyncDir,
}

/// What a failing write leaves on the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tear {
    Nothing,
    Half,
    /// The first one everything, the next ones nothing.
    AllOnce,
}

/// Says whether an operation fails: its kind, its file, and its number.
type Rule = Arc<dyn Fn(Step, &Path, u64) -> Option<io::Error> + Send + Sync>;

/// A disk that fails on command and knows what would survive the loss of power.
pub(crate) struct FaultDisk {
    inner: PosixBacking,
    root: PathBuf,
    steps: AtomicU64,
    rule: Mutex<Option<Rule>>,
    /// What a failing write leaves.
    pub(crate) tear: Mutex<Tear>,
    shadow: Mutex<Shadow>,
    pub(crate) space: AtomicU64,
}

impl std::fmt::Debug for FaultDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FaultDisk")
    }
}

#[derive(Default)]
struct Shadow {
    next: u64,
    names: HashMap<PathBuf, u64>,
    /// What each file is called now.
    paths: HashMap<u64, PathBuf>,
    durable_names: HashMap<PathBuf, u64>,
    durable: HashMap<u64, Vec<u8>>,
}

impl FaultDisk {
    pub(crate) fn new(root: &Path) -> Arc<Self> {
        Arc::new(Self {
            inner: PosixBacking::new(root),
            root: root.to_path_buf(),
            steps: AtomicU64::new(0),
            rule: Mutex::new(None),
            tear: Mutex::new(Tear::Nothing),
            shadow: Mutex::default(),
            space: AtomicU64::new(u64::MAX),
        })
    }

    pub(crate) fn rule(
        &self,
        rule: impl Fn(Step, &Path, u64) -> Option<io::Error> + Send + Sync + 'static,
    ) {
        *self.rule.lock() = Some(Arc::new(rule));
    }

    pub(crate) fn heal(&self) {
        *self.rule.lock() = None;
    }

    pub(crate) fn steps(&self) -> u64 {
        self.steps.load(Ordering::SeqCst)
    }

    fn step(&self, step: Step, path: &Path) -> io::Result<()> {
        let number = self.steps.fetch_add(1, Ordering::SeqCst);
        // The rule may block; the next operation must not wait for it.
        let rule = self.rule.lock().clone();
        match rule.and_then(|rule| rule(step, path, number)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// The store as it is after a loss of power: only what was synced, and all of sled.
    pub(crate) fn after_power_loss(&self, to: &Path) {
        std::fs::create_dir_all(to.join("index")).unwrap();
        let shadow = self.shadow.lock();
        for (name, id) in &shadow.durable_names {
            let bytes = shadow.durable.get(id).cloned().unwrap_or_default();
            std::fs::write(to.join(name), bytes).unwrap();
        }
        if self.root.join("index/sled").is_dir() {
            copy_dir(&self.root.join("index/sled"), &to.join("index/sled"));
        }
    }
}

#[derive(Debug)]
struct FaultFile {
    disk: Arc<FaultDisk>,
    inner: Arc<dyn BackingFile>,
    id: u64,
}

impl FaultFile {
    fn step(&self, step: Step) -> io::Result<()> {
        let path = self.disk.shadow.lock().paths.get(&self.id).cloned();
        self.disk.step(step, &path.unwrap_or_default())
    }
}

/// The disk as a backing; separate because files need the disk itself.
#[derive(Debug)]
pub(crate) struct Faulty(pub(crate) Arc<FaultDisk>);

impl Backing for Faulty {
    fn open(&self, path: &Path, access: Access) -> io::Result<Arc<dyn BackingFile>> {
        if access == Access::CreateNew {
            self.0.step(Step::Create, path)?;
        }
        let inner = self.0.inner.open(path, access)?;
        let mut shadow = self.0.shadow.lock();
        let id = match shadow.names.get(path) {
            Some(id) if access != Access::CreateNew => *id,
            _ => {
                shadow.next += 1;
                let id = shadow.next;
                shadow.names.insert(path.to_path_buf(), id);
                shadow.paths.insert(id, path.to_path_buf());
                id
            }
        };
        Ok(Arc::new(FaultFile {
            disk: self.0.clone(),
            inner,
            id,
        }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.0.step(Step::Rename, to)?;
        self.0.inner.rename(from, to)?;
        let mut shadow = self.0.shadow.lock();
        if let Some(id) = shadow.names.remove(from) {
            shadow.names.insert(to.to_path_buf(), id);
            shadow.paths.insert(id, to.to_path_buf());
        }
        Ok(())
    }

    fn remove_file(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::Remove, path)?;
        self.0.shadow.lock().names.remove(path);
        self.0.inner.remove_file(path)
    }

    fn remove_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::Remove, path)?;
        self.0.inner.remove_dir_all(path)
    }

    fn create_dir_all(&self, path: &Path) -> io::Result<()> {
        self.0.inner.create_dir_all(path)
    }

    fn list(&self, path: &Path) -> io::Result<Vec<Entry>> {
        self.0.inner.list(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        self.0.step(Step::SyncDir, path)?;
        if path == Path::new("index") {
            let mut shadow = self.0.shadow.lock();
            shadow.durable_names = shadow.names.clone();
        }
        Ok(())
    }

    fn space(&self) -> io::Result<Space> {
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
        self.inner.read_at(buf, offset)
    }

    fn write_all_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        if let Err(e) = self.step(Step::Write) {
            let mut tear = self.disk.tear.lock();
            match *tear {
                Tear::Nothing => {}
                Tear::Half => self.inner.write_all_at(&buf[..buf.len() / 2], offset)?,
                Tear::AllOnce => {
                    *tear = Tear::Nothing;
                    self.inner.write_all_at(buf, offset)?;
                }
            }
            return Err(e);
        }
        self.inner.write_all_at(buf, offset)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.step(Step::Sync)?;
        let mut bytes = vec![0; usize::try_from(self.inner.len()?).unwrap()];
        self.inner.read_at(&mut bytes, 0)?;
        self.disk.shadow.lock().durable.insert(self.id, bytes);
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        self.inner.len()
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.inner.set_len(len)
    }

    fn reserve(&self, _len: u64) -> io::Result<()> {
        self.step(Step::Reserve)
    }
}

pub(crate) fn errno(number: i32) -> io::Error {
    io::Error::from_raw_os_error(number)
}
