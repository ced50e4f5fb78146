//! A store in use: opening, its threads, and shutting down.

mod names;
mod verbs;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_backing::{Backing, DeviceOptions, PROBE, PosixBacking, ReadOnly, Space, open_device};
use shale_codec::Effort;
use shale_index::engine::IndexHome;
use shale_index::{Kv, Namespace};

use crate::Error;
use crate::catalog::Catalog;
use crate::disk::{
    Format, INDEX_DIR, LOCK_FILE, RESERVE_FILE, Reserve, SharedLock, StoreLock, Superblock,
};
use crate::file::FileTable;
use crate::gc::{GcControl, GcWorker, IdleWorker, StoreUpkeep};
use crate::pack;
use crate::pack::Sessions;
use crate::primitives::Mutex;
use crate::primitives::thread::{self, JoinHandle};
use crate::read::{DecodeWorker, Prefetcher, Reader};
use crate::session::report_previous;
use crate::settle::Settler;
use crate::volume::{Volume, VolumeOptions, VolumeParts, index_home, read_index};
use crate::write::{Admission, CommitControl, Committer, EncodeQueue, EncodeWorker, Writer};

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
    /// The purpose, shown to other processes that find the store locked.
    pub purpose: String,
    /// The device that the store is on.
    pub device: DeviceOptions,
    /// Readers cache what they have read, so that it need not be kept decoded for them.
    pub kernel_cache: bool,
}

/// A store in use by this process.
#[derive(Debug)]
pub struct Store {
    pub(crate) volume: Arc<Volume>,
    pub(crate) files: Arc<FileTable>,
    pub(crate) reader: Reader,
    pub(crate) writer: Writer,
    pub(crate) settler: Settler,
    pub(crate) gc: Arc<GcControl>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    lock: Option<StoreLock>,
    /// Held instead by a process that only reads.
    shared: Option<SharedLock>,
}

impl Store {
    /// Opens the store in a directory, or creates one in an empty directory.
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

    /// Opens the store on a device, or creates one on an empty device. No other process may use it.
    ///
    /// # Errors
    /// [`Error::NotAStore`], or what the device says.
    pub fn open_on(backing: Arc<dyn Backing>, options: &StoreOptions) -> Result<Self, Error> {
        Self::open_after(backing, options, None)
    }

    /// Opens the store; the previous process may have left a note.
    fn open_after(
        backing: Arc<dyn Backing>,
        options: &StoreOptions,
        note: Option<&str>,
    ) -> Result<Self, Error> {
        let fresh = Superblock::read(&*backing)?.is_none();
        let superblock = begin_upgrade(&*backing, prepare(&*backing, fresh)?)?;
        // The index may need the space that is held there.
        Reserve::clear(&*backing);
        let memory = usize::try_from(options.memory / 16).unwrap_or(usize::MAX);
        let (engine, recovery) = index_home(&backing)
            .open(memory.clamp(8 << 20, 64 << 20))
            .map_err(|error| unreadable_index(backing.root(), error))?;
        tracing::info!(?recovery, "index opened");
        let catalog = Catalog::open(
            Arc::clone(&backing),
            superblock.id,
            Arc::clone(&engine),
            &recovery,
        )?;
        let superblock = upgrade(&*backing, superblock, &*engine)?;
        let store = Self::with_engine(backing, engine, superblock, options, Some(catalog))?;
        report_previous(store.namespace(), &recovery, note);
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
            .map(|on| on.pack.session())
            .max()
            .unwrap_or(0);
        let known = kv.version();
        let namespace = Namespace::open(kv, newest + 1, options.owner)?;
        if !namespace.is_shared() {
            pack::remove_empty_sessions(&*backing, &empty);
        }
        let parts = VolumeParts {
            backing,
            namespace,
            superblock,
            on_disk,
            known,
        };
        Self::start(parts, options, catalog, false)
    }

    /// Opens the store in a directory for reading; any number of processes may do so at a time.
    /// Nothing in it is written, so it may be on a read-only medium. The whole index is read into
    /// memory. Every change fails with `EROFS`.
    ///
    /// # Errors
    /// [`Error::Locked`] when a process writes to it, [`Error::NotAStore`], or what the device
    /// says.
    pub fn open_read_only(path: &Path, options: &StoreOptions) -> Result<Self, Error> {
        let backing: Arc<dyn Backing> = Arc::new(PosixBacking::new(path));
        Superblock::require(&*backing)?;
        let shared = SharedLock::take(path)?;
        let note = shared.as_ref().and_then(SharedLock::found_note);
        let mut store = Self::read_after(backing, options, note)?;
        store.shared = shared;
        Ok(store)
    }

    /// Opens the store on a device for reading. No process may write to it meanwhile.
    ///
    /// # Errors
    /// As [`Store::open_read_only`].
    pub fn open_read_only_on(
        backing: Arc<dyn Backing>,
        options: &StoreOptions,
    ) -> Result<Self, Error> {
        Self::read_after(backing, options, None)
    }

    /// Opens the store for reading; the previous process may have left a note.
    fn read_after(
        backing: Arc<dyn Backing>,
        options: &StoreOptions,
        note: Option<&str>,
    ) -> Result<Self, Error> {
        let backing: Arc<dyn Backing> = Arc::new(ReadOnly::new(backing));
        let (superblock, kv, recovery) = read_index(&backing)?;
        let parts = VolumeParts {
            on_disk: pack::list(&*backing)?,
            known: kv.version(),
            namespace: Namespace::read_only(kv, superblock.format == Format::Old),
            superblock,
            backing,
        };
        let store = Self::start(parts, options, None, true)?;
        report_previous(store.namespace(), &recovery, note);
        Ok(store)
    }

    /// Starts a store from its parts.
    fn start(
        parts: VolumeParts,
        options: &StoreOptions,
        catalog: Option<Catalog>,
        read_only: bool,
    ) -> Result<Self, Error> {
        let volume_options = VolumeOptions {
            memory: options.memory,
            effort: options.effort,
            read_only,
        };
        let volume = Arc::new(Volume::open(parts, &volume_options)?);
        // In a shared index other sessions may use them; they are looked at later.
        let orphans = if volume.namespace.is_shared() {
            Vec::new()
        } else {
            volume.namespace.orphans()?.0
        };
        let orphans = orphans.iter().map(|orphan| orphan.ino).collect();
        let files = Arc::new(FileTable::new(Arc::clone(&volume), orphans));
        let commits: Arc<CommitControl> = Arc::default();
        let gc: Arc<GcControl> = Arc::default();
        let admission = Admission::new(
            Arc::clone(&volume),
            Arc::clone(&files),
            Arc::clone(&commits),
            Arc::clone(&gc) as _,
        );
        let (prefetcher, decode_worker) = Prefetcher::new(&volume, options.kernel_cache);
        let store = Self {
            reader: Reader::new(Arc::clone(&volume), prefetcher),
            writer: Writer {
                volume: Arc::clone(&volume),
                files: Arc::clone(&files),
                queue: Arc::new(EncodeQueue::default()),
                commits,
                admission: Arc::new(admission),
                catalog: catalog.map(Arc::new),
            },
            settler: Settler::new(Arc::clone(&volume)),
            gc,
            files,
            volume,
            threads: Mutex::default(),
            lock: None,
            shared: None,
        };
        let threads = store.spawn_threads(options.workers.max(1), &decode_worker)?;
        *store.threads.lock() = threads;
        Ok(store)
    }

    fn spawn_threads(
        &self,
        workers: usize,
        decode_worker: &DecodeWorker,
    ) -> Result<Vec<JoinHandle<()>>, Error> {
        let Self {
            volume,
            files,
            writer,
            gc,
            ..
        } = self;
        let mut threads = Vec::new();
        for number in 0..workers {
            let worker = decode_worker.clone();
            let name = format!("shale-decode-{number}");
            threads.push(spawn(name, move || worker.run())?);
        }
        if volume.read_only {
            let idle = IdleWorker::new(volume, gc, &writer.commits);
            threads.push(spawn("shale-rest".to_owned(), move || idle.run())?);
            return Ok(threads);
        }
        for number in 0..workers {
            let worker = EncodeWorker::new(writer);
            let name = format!("shale-encode-{number}");
            threads.push(spawn(name, move || worker.run())?);
        }
        let upkeep = StoreUpkeep::new(volume, files, writer.catalog.as_ref(), &writer.commits, gc);
        let committer = Committer::new(writer, Box::new(upkeep));
        threads.push(spawn("shale-commit".to_owned(), move || committer.run())?);
        let worker = GcWorker::new(volume, files, &writer.admission, &writer.commits, gc);
        threads.push(spawn("shale-gc".to_owned(), move || worker.run())?);
        Ok(threads)
    }

    /// Refuses changes if the store was opened for reading.
    ///
    /// # Errors
    /// `EROFS`.
    pub fn check_writable(&self) -> Result<(), Error> {
        self.volume.check_writable()
    }

    /// Names, inodes and attributes as they are committed.
    pub(crate) fn namespace(&self) -> &Namespace {
        &self.volume.namespace
    }

    /// The directory of the store.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.volume.backing.root().to_owned()
    }

    /// Space on the device; the reserve counts as free.
    ///
    /// # Errors
    /// What the device says.
    pub fn space(&self) -> Result<Space, Error> {
        let held = self.volume.space.held();
        let mut space = self
            .volume
            .backing
            .space()
            .map_err(Error::io("query the space of", "."))?;
        space.free += held;
        space.available += held;
        Ok(space)
    }

    /// Writes everything, makes it durable and ends the session, or stops reading.
    ///
    /// # Errors
    /// What could not be made durable.
    pub fn shut_down(&self) -> Result<(), Error> {
        // Until the opposite is known, whatever happens meanwhile.
        if let Some(lock) = &self.lock {
            lock.keep_note();
        }
        self.end_session()?;
        if let Some(lock) = &self.lock {
            lock.remove_note();
        }
        Ok(())
    }

    /// Names unstored data in the log and in the note for the process that waits for the end of the
    /// session.
    fn tell_unstored(&self) {
        let unstored = self.files.unstored();
        for line in &unstored {
            tracing::error!("{line}");
        }
        if let Some(lock) = &self.lock {
            lock.append_to_note(&unstored);
        }
    }

    fn end_session(&self) -> Result<(), Error> {
        let Volume {
            namespace,
            frames,
            space,
            ..
        } = &*self.volume;
        if self.volume.read_only {
            self.stop_threads();
            return Ok(namespace.kv().close()?);
        }
        reach(Stage::ShutDownBegins);
        self.gc.stop();
        let synced = self.sync_all();
        if synced.is_err() {
            self.tell_unstored();
        }
        if self.volume.is_removed() {
            self.stop_threads();
            return synced;
        }
        reach(Stage::ShutDownSynced);
        self.stop_threads();
        frames.packs.roll();
        for (pack, error) in frames.packs.sync() {
            tracing::warn!(
                "{}: the pack could not be sealed and has no directory, which later sessions do \
                 not need: {error}; check the device of the store",
                pack.path().display()
            );
        }
        frames.packs.leave();
        reach(Stage::ShutDownSealed);
        if let Err(e) = frames.packs.note_sealed(namespace) {
            tracing::warn!(
                "cannot note in the index which packs are sealed: {e}; `shale fsck` will not \
                 notice when their directories are missing"
            );
        }
        // The last commit: when the index is closed, the catalog has everything.
        namespace.end_session()?;
        if let Some(catalog) = &self.writer.catalog {
            catalog.close()?;
        }
        namespace.kv().close()?;
        space.close();
        reach(Stage::ShutDownClosed);
        synced
    }

    fn stop_threads(&self) {
        self.writer.commits.stop();
        self.writer.queue.close();
        self.reader.stop();
        for thread in std::mem::take(&mut *self.threads.lock()) {
            let _ = thread.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if !self.threads.lock().is_empty()
            && let Err(e) = self.shut_down()
        {
            tracing::error!(
                "the store did not shut down cleanly: {e}; check the device of the store"
            );
        }
    }
}

/// Marks a store of format 2 before its index is changed: from then on older programs refuse it.
fn begin_upgrade(backing: &dyn Backing, superblock: Superblock) -> Result<Superblock, Error> {
    if superblock.format != Format::Old {
        return Ok(superblock);
    }
    let format = Format::Upgrading;
    let superblock = Superblock {
        format,
        ..superblock
    };
    superblock.write(backing)?;
    Ok(superblock)
}

/// Upgrades the index of a store that is marked, and takes the mark away.
fn upgrade(
    backing: &dyn Backing,
    superblock: Superblock,
    engine: &dyn Kv,
) -> Result<Superblock, Error> {
    if superblock.format != Format::Upgrading {
        return Ok(superblock);
    }
    let moved = Namespace::upgrade(engine)?;
    let format = Format::Current;
    let superblock = Superblock {
        format,
        ..superblock
    };
    superblock.write(backing)?;
    tracing::info!("the store has been upgraded to format 3, {moved} index records were moved");
    Ok(superblock)
}

fn spawn(name: String, body: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, Error> {
    thread::Builder::new()
        .name(name)
        .spawn(body)
        .map_err(Error::io("start a thread for", "."))
}

/// Adds advice to the error of an index that recovery cannot repair.
fn unreadable_index(path: &Path, error: shale_index::Error) -> Error {
    match error {
        shale_index::Error::Corrupt { .. } => Error::NotAStore {
            path: path.to_owned(),
            reason: format!(
                "its index cannot be read: {error}; `shale fsck --rebuild` rebuilds it from the packs"
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
            LOCK_FILE,
            RESERVE_FILE,
            "superblock.new",
            "shale.log",
            PROBE,
        ];
        // The last session may have died while creating the store.
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

/// Creates a new store, the superblock last; or checks the directories of an old one.
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
    Superblock::require(backing)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::options;

    #[test]
    fn the_note_goes_with_the_shutdown_not_with_the_last_user() {
        let dir = tempfile::tempdir().unwrap();
        let note = || std::fs::read_to_string(dir.path().join("lock")).unwrap();
        let store = Arc::new(Store::open(dir.path(), &options()).unwrap());
        let late_thread = Arc::clone(&store);
        assert!(note().contains("test"));
        store.shut_down().unwrap();
        assert_eq!(note(), "");
        drop(late_thread);
    }
}
