//! A store in use.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_backing::{Backing, Choice, PROBE, PosixBacking, ReadOnly, Space, open_device};
use shale_codec::Effort;
use shale_index::engine::{Embedded, Recovery};
use shale_index::{Kv, Namespace};

use crate::Error;
use crate::activity::Closed;
use crate::admission::Admission;
use crate::ahead::Ahead;
use crate::budget::Budget;
use crate::catalog::Catalog;
use crate::commit::Control;
use crate::file::File;
use crate::files::Files;
use crate::frames::Frames;
use crate::lock::{SharedLock, StoreLock};
use crate::pack::{PackId, Packs, Sessions};
use crate::pipeline::Job;
use crate::reserve::Reserve;
use crate::settle::Lanes;
use crate::space::SpaceGuard;
use crate::superblock::Superblock;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::channel::{self, Receiver, Sender};
use crate::sync::thread::{self, JoinHandle};
use crate::{
    ahead, collector, commit, damage, idle, last_session, pack, pending, pipeline, presence,
};

/// How a store is used.
#[derive(Clone, Debug)]
pub struct StoreOptions {
    /// Bytes for unwritten data and caches.
    pub memory: u64,
    /// Threads that compress.
    pub workers: usize,
    /// Owner of the root directory of a new store.
    pub owner: (u32, u32),
    /// How chunks are compressed when they are written.
    pub effort: Effort,
    /// What others are told who find the store locked.
    pub purpose: String,
    /// The device that the store is on.
    pub device: Choice,
    /// Those who read keep what they have read, so that it need not be kept decoded for them.
    pub kernel_cache: bool,
}

/// A store in use by this process.
#[derive(Debug)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Option<StoreLock>,
    /// Held instead by those who only read.
    shared: Option<SharedLock>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) namespace: Namespace,
    pub(crate) frames: Frames,
    pub(crate) budget: Budget,
    pub(crate) space: SpaceGuard,
    pub(crate) admission: Admission,
    pub(crate) committer: Control,
    pub(crate) collector: collector::Control,
    pub(crate) ahead: Ahead,
    pub(crate) lanes: Lanes,
    pub(crate) effort: Effort,
    pub(crate) kernel_cache: bool,
    pub(crate) files: Files,
    /// Files with something to write.
    pub(crate) dirty: Mutex<BTreeMap<u64, Arc<File>>>,
    /// Orphans that nobody outside uses any more.
    pub(crate) released: Mutex<BTreeSet<u64>>,
    pub(crate) catalog: Option<Catalog>,
    jobs: Mutex<Option<Sender<Job>>>,
    pub(crate) closed: Mutex<Closed>,
    pub(crate) sums: pending::Sums,
    /// What could not be read.
    pub(crate) damage: damage::Met,
    poisoned: AtomicBool,
    pub(crate) presence: presence::Noticed,
    /// Nothing may be changed.
    pub(crate) read_only: bool,
    /// Version of the index when it was opened.
    pub(crate) first_version: u64,
}

/// Where the directories of a store are.
pub(crate) const INDEX_DIR: &str = "index";

impl Store {
    /// Opens the store in a directory, or makes one in an empty directory.
    ///
    /// # Errors
    /// [`Error::Locked`], [`Error::NotAStore`], or what the device says.
    pub fn open(path: &Path, options: &StoreOptions) -> Result<Self, Error> {
        let fresh = Superblock::read(&PosixBacking::new(path))?.is_none();
        if fresh {
            require_empty(path)?;
        }
        let lock = StoreLock::take(path, &options.purpose)?;
        let backing = open_device(path, options.device).map_err(Error::io("map files in", path))?;
        let mut store = Self::open_after(backing, options, lock.found_note())?;
        store.lock = Some(lock);
        Ok(store)
    }

    /// Opens the store on a device, or makes one on an empty device. Nobody else may use it.
    ///
    /// # Errors
    /// [`Error::NotAStore`], or what the device says.
    pub fn open_on(backing: Arc<dyn Backing>, options: &StoreOptions) -> Result<Self, Error> {
        Self::open_after(backing, options, None)
    }

    /// Opens the store after a process that has perhaps left a note.
    fn open_after(
        backing: Arc<dyn Backing>,
        options: &StoreOptions,
        note: Option<&str>,
    ) -> Result<Self, Error> {
        let fresh = Superblock::read(&*backing)?.is_none();
        let superblock = prepare(&*backing, fresh)?;
        // What the index needs now may be held there.
        Reserve::clear(&*backing);
        let memory = usize::try_from(options.memory / 16).unwrap_or(usize::MAX);
        let engine = shale_index::engine::Options {
            memory: memory.clamp(8 << 20, 64 << 20),
            ..shale_index::engine::Options::default()
        };
        let (engine, recovery) = Embedded::open(Arc::clone(&backing), engine)
            .map_err(|error| unreadable_index(backing.root(), error))?;
        tracing::info!(?recovery, "index opened");
        let engine = Arc::new(engine);
        let catalog = Catalog::open(Arc::clone(&backing), superblock.id, &engine, &recovery)?;
        let store = Self::with_engine(backing, engine, superblock, options, Some(catalog))?;
        last_session::report(store.namespace(), &recovery, note);
        Ok(store)
    }

    /// Opens a store over any engine.
    pub(crate) fn with_engine(
        backing: Arc<dyn Backing>,
        kv: Arc<dyn Kv>,
        superblock: Superblock,
        options: &StoreOptions,
        catalog: Option<Catalog>,
    ) -> Result<Self, Error> {
        let Sessions {
            packs: on_disk,
            empty,
        } = pack::list_sessions(&*backing)?;
        let newest = on_disk
            .iter()
            .map(|&(id, _)| PackId(id).session())
            .max()
            .unwrap_or(0);
        let known = Namespace::last_session(&*kv)?;
        let namespace = Namespace::open(kv, newest + 1, options.owner)?;
        pack::remove_empty_sessions(&*backing, &empty);
        let (inner, queues) = Found {
            backing,
            namespace,
            superblock,
            on_disk,
            known,
        }
        .put_to_use(options, catalog, false)?;
        let mut threads = decoders(&inner, options, &queues.ahead)?;
        for number in 0..options.workers.max(1) {
            let (inner, receiver) = (Arc::clone(&inner), queues.jobs.clone());
            let body = move || pipeline::work(&inner, &receiver);
            threads.push(spawn(format!("shale-encode-{number}"), body)?);
        }
        let committer = Arc::clone(&inner);
        threads.push(spawn("shale-commit".to_owned(), move || {
            commit::work(&committer)
        })?);
        let collector = Arc::clone(&inner);
        threads.push(spawn("shale-collect".to_owned(), move || {
            collector::work(&collector)
        })?);
        Ok(Self {
            inner,
            threads: Mutex::new(threads),
            lock: None,
            shared: None,
        })
    }

    /// Opens the store in a directory to read from it, as any number of others may do meanwhile.
    /// Nothing in it is written, so it may be on a medium that cannot be. The whole index is read
    /// into memory. Every change is refused with `EROFS`.
    ///
    /// # Errors
    /// [`Error::Locked`] when somebody writes to it, [`Error::NotAStore`], or what the device
    /// says.
    pub fn open_read_only(path: &Path, options: &StoreOptions) -> Result<Self, Error> {
        let backing: Arc<dyn Backing> = Arc::new(PosixBacking::new(path));
        require_superblock(&*backing)?;
        let shared = SharedLock::take(path)?;
        let note = shared.as_ref().and_then(SharedLock::found_note);
        let mut store = Self::read_after(backing, options, note)?;
        store.shared = shared;
        Ok(store)
    }

    /// Opens the store on a device to read from it. Nobody may write to it meanwhile.
    ///
    /// # Errors
    /// As [`Store::open_read_only`].
    pub fn open_read_only_on(
        backing: Arc<dyn Backing>,
        options: &StoreOptions,
    ) -> Result<Self, Error> {
        Self::read_after(backing, options, None)
    }

    /// Opens the store to read from it after a process that has perhaps left a note.
    fn read_after(
        backing: Arc<dyn Backing>,
        options: &StoreOptions,
        note: Option<&str>,
    ) -> Result<Self, Error> {
        let backing: Arc<dyn Backing> = Arc::new(ReadOnly::new(backing));
        let (superblock, kv, recovery) = read_index(&backing)?;
        let found = Found {
            on_disk: pack::list(&*backing)?,
            known: Namespace::last_session(&kv)?,
            namespace: Namespace::read_only(Arc::new(kv)),
            superblock,
            backing,
        };
        let (inner, queues) = found.put_to_use(options, None, true)?;
        last_session::report(&inner.namespace, &recovery, note);
        let mut threads = decoders(&inner, options, &queues.ahead)?;
        let resting = Arc::clone(&inner);
        threads.push(spawn("shale-rest".to_owned(), move || {
            idle::work(&resting)
        })?);
        Ok(Self {
            inner,
            threads: Mutex::new(threads),
            lock: None,
            shared: None,
        })
    }

    /// Refuses changes where the store was opened to read from it.
    ///
    /// # Errors
    /// `EROFS`.
    pub fn check_writable(&self) -> Result<(), Error> {
        self.inner.check_writable()
    }

    /// Names, inodes and attributes.
    #[must_use]
    pub fn namespace(&self) -> &Namespace {
        &self.inner.namespace
    }

    /// The directory of the store.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.inner.backing.root().to_owned()
    }

    /// Space on the device; what the store holds for what is about to be written counts as free.
    ///
    /// # Errors
    /// What the device says.
    pub fn space(&self) -> Result<Space, Error> {
        let held = self.inner.space.held();
        let mut space = self
            .inner
            .backing
            .space()
            .map_err(Error::io("query the space of", "."))?;
        space.free += held;
        space.available += held;
        Ok(space)
    }

    /// Tells that nobody outside uses an orphan any more: it is freed soon.
    pub fn release_orphan(&self, ino: u64) {
        self.inner.released.lock().insert(ino);
    }

    /// Writes everything, makes it durable and ends the session, or stops reading.
    ///
    /// # Errors
    /// What could not be made durable.
    pub fn shut_down(&self) -> Result<(), Error> {
        // Until the opposite is known, whatever happens on the way there.
        if let Some(lock) = &self.lock {
            lock.leave_note(true);
        }
        self.end_session()?;
        if let Some(lock) = &self.lock {
            lock.leave_note(false);
        }
        Ok(())
    }

    /// Names what is not stored, in the log and to whoever waits for the end of the session.
    fn tell_unstored(&self) {
        let unstored = self.inner.unstored();
        for line in &unstored {
            tracing::error!("{line}");
        }
        if let Some(lock) = &self.lock {
            lock.append_to_note(&unstored);
        }
    }

    fn end_session(&self) -> Result<(), Error> {
        if self.inner.read_only {
            self.stop_threads();
            return Ok(self.inner.namespace.kv().close()?);
        }
        reach(Stage::ShutDownBegins);
        self.inner.collector.stop();
        let synced = self.sync_all();
        if synced.is_err() {
            self.tell_unstored();
        }
        if self.inner.is_removed() {
            self.stop_threads();
            return synced;
        }
        reach(Stage::ShutDownSynced);
        self.stop_threads();
        self.inner.frames.packs.roll();
        for (pack, error) in self.inner.frames.packs.sync() {
            tracing::warn!("pack {pack:x} could not be sealed: {error}");
        }
        self.inner.frames.packs.leave();
        reach(Stage::ShutDownSealed);
        if let Err(e) = self.inner.note_sealed() {
            tracing::warn!("the index does not know which packs are sealed: {e}");
        }
        // The last commit: when the index is closed, the catalogue has everything.
        self.inner.namespace.end_session()?;
        if let Some(catalog) = &self.inner.catalog {
            catalog.close()?;
        }
        self.inner.namespace.kv().close()?;
        self.inner.space.close();
        reach(Stage::ShutDownClosed);
        synced
    }

    fn stop_threads(&self) {
        self.inner.committer.stop();
        self.inner.jobs.lock().take();
        self.inner.ahead.stop();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }
}

/// What there is of a store.
struct Found {
    backing: Arc<dyn Backing>,
    namespace: Namespace,
    superblock: Superblock,
    /// Packs and their lengths.
    on_disk: Vec<(u64, u64)>,
    /// The last session that the index has seen, before this one.
    known: u64,
}

/// What the threads of a store wait for.
struct Queues {
    jobs: Receiver<Job>,
    ahead: Receiver<ahead::Job>,
}

impl Found {
    /// Everything of a store but its threads.
    fn put_to_use(
        self,
        options: &StoreOptions,
        catalog: Option<Catalog>,
        read_only: bool,
    ) -> Result<(Arc<Inner>, Queues), Error> {
        let Self {
            backing,
            namespace,
            superblock,
            on_disk,
            known,
        } = self;
        let live: BTreeMap<u64, u64> = namespace.packs()?.into_iter().collect();
        let packs = Packs::open(
            Arc::clone(&backing),
            superblock.id,
            namespace.session(),
            live,
        )?;
        for &(id, _) in &on_disk {
            if PackId(id).session() <= known {
                // Frames that no commit has reached before their session ended.
                packs.condemn(id);
            } else {
                tracing::warn!(
                    "{} is newer than the index and is left alone; run `shale fsck` on the store",
                    PackId(id).path().display()
                );
            }
        }
        for (id, _) in namespace.sealed_packs()? {
            if on_disk.binary_search_by_key(&id, |&(id, _)| id).is_err() {
                // Deleted just before its session died: to be forgotten like others.
                packs.condemn(id);
            }
        }
        let total = backing
            .space()
            .map_err(Error::io("query the space of", "."))?
            .total;
        let orphans = namespace.orphans()?;
        let first_version = namespace.kv().version();
        let (sender, jobs) = channel::unbounded();
        let (ahead_sender, ahead) = channel::unbounded();
        let inner = Arc::new(Inner {
            namespace,
            space: SpaceGuard::new(&backing, total, packs.seal_bytes()),
            admission: Admission::default(),
            frames: Frames::new(packs, options.memory / 4),
            budget: Budget::new(options.memory / 2),
            committer: Control::default(),
            collector: collector::Control::default(),
            ahead: Ahead::new(ahead_sender),
            lanes: Lanes::default(),
            effort: options.effort,
            kernel_cache: options.kernel_cache,
            files: Files::default(),
            dirty: Mutex::default(),
            released: Mutex::new(orphans.into_iter().collect()),
            catalog,
            jobs: Mutex::new(Some(sender)),
            closed: Mutex::default(),
            sums: pending::Sums::default(),
            damage: damage::Met::default(),
            poisoned: AtomicBool::new(false),
            presence: presence::Noticed::new(&*backing),
            read_only,
            first_version,
            backing,
        });
        // Before anybody can write or read, whom it would keep waiting.
        inner.frames.spare.fill(&inner.budget);
        Ok((inner, Queues { jobs, ahead }))
    }
}

/// Starts the threads that decode ahead of readers.
fn decoders(
    inner: &Arc<Inner>,
    options: &StoreOptions,
    jobs: &Receiver<ahead::Job>,
) -> Result<Vec<JoinHandle<()>>, Error> {
    let decoder = |number| {
        let (inner, jobs) = (Arc::clone(inner), jobs.clone());
        spawn(format!("shale-decode-{number}"), move || {
            ahead::work(&inner, &jobs);
        })
    };
    (0..options.workers.max(1)).map(decoder).collect()
}

/// The superblock of a store that has to be there.
pub(crate) fn require_superblock(backing: &dyn Backing) -> Result<Superblock, Error> {
    Superblock::read(backing)?.ok_or_else(|| Error::NotAStore {
        path: backing.root().to_owned(),
        reason: "there is no superblock, so it is not a store".to_owned(),
    })
}

/// Reads the whole index of a store into memory.
pub(crate) fn read_index(
    backing: &Arc<dyn Backing>,
) -> Result<(Superblock, Embedded, Recovery), Error> {
    let superblock = require_superblock(&**backing)?;
    let not_usable = |reason: String| Error::NotAStore {
        path: backing.root().to_owned(),
        reason,
    };
    let options = shale_index::engine::Options {
        read_only: true,
        ..shale_index::engine::Options::default()
    };
    let opened = Embedded::open(Arc::clone(backing), options);
    let (engine, recovery) = opened.map_err(|error| match error {
        shale_index::Error::Corrupt { .. } => not_usable(format!(
            "its index cannot be read without writing: {error}; a mount without --ro may still \
             work, and `shale fsck --rebuild` makes the index anew from the packs"
        )),
        other => other.into(),
    })?;
    tracing::info!(?recovery, "index read");
    if engine
        .get(&shale_index::schema::keys::inode(shale_index::ROOT))?
        .is_none()
    {
        return Err(not_usable(
            "it was made and never used, so there is nothing to read; mount it once without --ro"
                .to_owned(),
        ));
    }
    Ok((superblock, engine, recovery))
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty()
            && let Err(e) = self.shut_down()
        {
            tracing::error!("the store could not be shut down cleanly: {e}");
        }
    }
}

impl Inner {
    /// Refuses work after an internal error.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.poisoned.load(Ordering::SeqCst) {
            Err(Error::Poisoned)
        } else {
            Ok(())
        }
    }

    /// Refuses changes, also after an internal error.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::Refused(libc::EROFS));
        }
        self.check_there()?;
        self.check()
    }

    pub(crate) fn poison(&self, why: &str) {
        tracing::error!("{why}; the file system answers EIO from now on, unmount it");
        self.poisoned.store(true, Ordering::SeqCst);
        self.budget.stall(libc::EIO);
        self.wake_all();
    }

    pub(crate) fn send(&self, jobs: Vec<Job>) {
        let sender = self.jobs.lock();
        for job in jobs {
            if let Some(sender) = sender.as_ref() {
                // Workers live as long as the sender.
                let _ = sender.send(job);
            }
        }
    }

    /// Chunks that wait for a worker.
    pub(crate) fn waiting_jobs(&self) -> u64 {
        let sender = self.jobs.lock();
        sender.as_ref().map_or(0, |sender| sender.len() as u64)
    }
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new()
        .name(name)
        .spawn(body)
        .map_err(Error::io("start a thread for", "."))
}

/// Says what to do about an index that is damaged beyond what recovery can mend.
fn unreadable_index(path: &Path, error: shale_index::Error) -> Error {
    match error {
        shale_index::Error::Corrupt { .. } => Error::NotAStore {
            path: path.to_owned(),
            reason: format!(
                "its index cannot be read: {error}; `shale fsck --rebuild` makes it anew from the packs"
            ),
        },
        other => other.into(),
    }
}

fn require_empty(path: &Path) -> Result<(), Error> {
    let entries = std::fs::read_dir(path).map_err(Error::io("list", path))?;
    for entry in entries {
        let entry = entry.map_err(Error::io("list", path))?;
        let name = entry.file_name();
        let harmless = [
            crate::lock::FILE,
            crate::reserve::FILE,
            "superblock.new",
            "shale.log",
            PROBE,
        ];
        // The last session may have died while making the store.
        let begun = [pack::DIR, INDEX_DIR].iter().any(|dir| name == *dir)
            && std::fs::read_dir(entry.path()).is_ok_and(|mut inside| inside.next().is_none());
        if !begun && !harmless.iter().any(|file| name == *file) {
            return Err(Error::NotAStore {
                path: path.to_owned(),
                reason: format!(
                    "it holds {} but no superblock, so it is not a store; name an empty directory",
                    name.display()
                ),
            });
        }
    }
    Ok(())
}

fn make_dirs(backing: &dyn Backing) -> Result<(), Error> {
    for dir in [pack::DIR, INDEX_DIR] {
        backing
            .create_dir_all(Path::new(dir))
            .map_err(Error::io("create", dir))?;
    }
    backing
        .sync_dir(Path::new(""))
        .map_err(Error::io("sync", "."))
}

/// Makes a new store, the superblock last; or checks the directories of an old one.
fn prepare(backing: &dyn Backing, fresh: bool) -> Result<Superblock, Error> {
    if fresh {
        let superblock = Superblock::fresh().map_err(Error::io("make an identity for", "."))?;
        make_dirs(backing)?;
        superblock.write(backing)?;
        return Ok(superblock);
    }
    let entries = backing
        .list(Path::new(""))
        .map_err(Error::io("list", "."))?;
    let missing = [pack::DIR, INDEX_DIR]
        .into_iter()
        .find(|dir| !entries.iter().any(|e| e.is_dir && e.name == Path::new(dir)));
    if let Some(dir) = missing {
        return Err(Error::NotAStore {
            path: backing.root().to_owned(),
            reason: format!(
                "its directory {dir} is missing; `shale fsck --rebuild` recovers what is left"
            ),
        });
    }
    Superblock::read(backing)?.ok_or(Error::Poisoned)
}
