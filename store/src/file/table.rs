//! The table of files in use: taking them, giving them back, and their state beyond the index.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::{Deref, Range};
use std::sync::Arc;

use shale_index::schema::Inode;
use shale_index::{AttrChange, DirEntry, Ino, Orphan};

use super::damage::DamageList;
use super::locked::LockedFile;
use super::state::File;
use super::traffic::{ClosedFiles, FileTraffic};
use super::usage::PendingSums;
use crate::Error;
use crate::primitives::Mutex;
use crate::primitives::atomic::{AtomicU64, Ordering};
use crate::volume::Volume;

/// Files in use, by inode. Every user of a file takes it from here and gives it back with
/// [`FileTable::retire`]: the last one to do so removes it.
#[derive(Debug)]
pub(crate) struct FileTable {
    pub(super) volume: Arc<Volume>,
    map: Mutex<HashMap<Ino, Arc<File>>>,
    /// Files removed so far. An earlier answer of the index about a file may be outdated.
    forgotten: AtomicU64,
    /// Files with unwritten data.
    dirty: Mutex<BTreeMap<Ino, Arc<File>>>,
    /// Orphans that no program uses any more.
    released: Mutex<BTreeSet<Ino>>,
    /// Orphans of which other sessions have been told that this one uses them.
    used_orphans: Mutex<BTreeSet<Ino>>,
    pub(super) closed: Mutex<ClosedFiles>,
    pub(super) pending: PendingSums,
    pub(crate) damage: DamageList,
}

/// A file that is given back when it is dropped.
#[derive(Debug)]
pub(crate) struct FileRef<'a> {
    table: &'a FileTable,
    file: Option<Arc<File>>,
}

impl Deref for FileRef<'_> {
    type Target = Arc<File>;

    fn deref(&self) -> &Arc<File> {
        self.file.as_ref().expect("taken by drop alone")
    }
}

impl Drop for FileRef<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.table.retire(file);
        }
    }
}

/// An inode with everything written to it, committed or not.
#[derive(Clone, Debug)]
pub struct CurrentInode {
    /// Its size and times are those of the last write.
    pub inode: Inode,
    /// Bytes that are in memory and not committed yet.
    pub unwritten: u64,
}

impl From<Inode> for CurrentInode {
    /// An inode that cannot have unwritten data.
    fn from(inode: Inode) -> Self {
        Self {
            inode,
            unwritten: 0,
        }
    }
}

impl FileTable {
    /// An empty table; `released` are orphans of earlier sessions.
    pub(crate) fn new(volume: Arc<Volume>, released: BTreeSet<Ino>) -> Self {
        Self {
            volume,
            map: Mutex::default(),
            forgotten: AtomicU64::new(0),
            dirty: Mutex::default(),
            released: Mutex::new(released),
            used_orphans: Mutex::default(),
            closed: Mutex::default(),
            pending: PendingSums::default(),
            damage: DamageList::default(),
        }
    }

    /// A regular file; give it back with [`FileTable::retire`].
    pub(crate) fn get(&self, ino: Ino) -> Result<Arc<File>, Error> {
        let mut files = self.map.lock();
        if let Some(file) = files.get(&ino) {
            return Ok(Arc::clone(file));
        }
        // It may be purged right now, and the space it frees has been counted. Moving one of its
        // frames would make the count wrong.
        if self.released.lock().contains(&ino) {
            return Err(Error::NotFound { ino });
        }
        let namespace = &self.volume.namespace;
        let inode = namespace.inode(ino)?;
        if !inode.is_file() {
            return Err(Error::NotAFile { ino });
        }
        if inode.nlink == 0 && namespace.is_shared() {
            // Before another session can find that it is not in use.
            namespace.note_use(ino)?;
            self.used_orphans.lock().insert(ino);
        }
        Ok(self.insert(&mut files, &inode))
    }

    /// A regular file that `create` creates, without a second look-up of its inode.
    pub(crate) fn get_created(
        &self,
        create: impl FnOnce() -> Result<Inode, Error>,
    ) -> Result<(Inode, Arc<File>), Error> {
        let forgotten = self.forgotten.load(Ordering::SeqCst);
        let inode = create()?;
        let mut files = self.map.lock();
        // Another program may have opened it already, and even written and closed it.
        let file = if files.contains_key(&inode.ino)
            || self.forgotten.load(Ordering::SeqCst) != forgotten
            || self.released.lock().contains(&inode.ino)
        {
            drop(files);
            self.get(inode.ino)?
        } else {
            self.insert(&mut files, &inode)
        };
        Ok((inode, file))
    }

    fn insert(&self, files: &mut HashMap<Ino, Arc<File>>, inode: &Inode) -> Arc<File> {
        let traffic = self.closed.lock().of(inode.ino);
        let file = Arc::new(File::new(inode, traffic));
        files.insert(inode.ino, Arc::clone(&file));
        file
    }

    /// The same, given back when dropped.
    pub(crate) fn open(&self, ino: Ino) -> Result<FileRef<'_>, Error> {
        self.get(ino).map(|file| self.hold(file))
    }

    /// A file if it is in use.
    pub(crate) fn in_use(&self, ino: Ino) -> Option<FileRef<'_>> {
        let file = self.map.lock().get(&ino).cloned();
        file.map(|file| self.hold(file))
    }

    fn hold(&self, file: Arc<File>) -> FileRef<'_> {
        FileRef {
            table: self,
            file: Some(file),
        }
    }

    /// Number of files in use.
    pub(crate) fn len(&self) -> u64 {
        self.map.lock().len() as u64
    }

    /// Gives a file back. The file is removed when no one else uses it and it has no unwritten
    /// data.
    pub(crate) fn retire(&self, file: Arc<File>) {
        let ino = file.ino;
        // Before the count is read: of two users that leave at once, one must see zero.
        drop(file);
        let mut files = self.map.lock();
        if let Some(file) = files.get(&ino)
            && Arc::strong_count(file) == 1
            && file.state.lock().is_clean()
        {
            self.closed.lock().note(ino, &file.traffic);
            self.forgotten.fetch_add(1, Ordering::SeqCst);
            files.remove(&ino);
        }
    }

    /// Removes a file, whatever unwritten data it has; `false` when it is in use.
    pub(crate) fn discard(&self, ino: Ino) -> bool {
        let mut files = self.map.lock();
        let mut dirty = self.dirty.lock();
        let Some(file) = files.get(&ino) else {
            return true;
        };
        let ours = 1 + usize::from(dirty.contains_key(&ino));
        if Arc::strong_count(file) > ours {
            return false;
        }
        let state = file.state.lock();
        let unwritten = state.unwritten();
        drop(state);
        self.volume.limiter.give(unwritten);
        dirty.remove(&ino);
        self.forgotten.fetch_add(1, Ordering::SeqCst);
        files.remove(&ino);
        true
    }

    /// Wakes all threads that wait for an event of a file.
    fn wake_all(&self) {
        for file in self.map.lock().values() {
            // Not between a check of the state and the beginning of the wait.
            drop(file.state.lock());
            file.moved.notify_all();
        }
    }

    /// Makes every later operation fail, and wakes all waiting ones.
    pub(crate) fn poison(&self, why: &str) {
        self.volume.poison(why);
        self.wake_all();
    }

    /// Checks whether the store was removed, and wakes all waiting threads if it was.
    pub(crate) fn notice_removal(&self) {
        if self.volume.notice_removal() {
            self.wake_all();
        }
    }

    /// The traffic of every file in use.
    pub(crate) fn busiest(&self, count: usize) -> Vec<FileTraffic> {
        let in_use: Vec<_> = {
            let files = self.map.lock();
            let traffic = |file: &Arc<File>| (file.ino, Arc::clone(&file.traffic));
            files.values().map(traffic).collect()
        };
        self.closed.lock().busiest(&in_use, count)
    }
}

/// Files with unwritten data.
impl FileTable {
    /// Notes that a file has unwritten data.
    pub(crate) fn mark_dirty(&self, file: &mut LockedFile<'_>) {
        if file.dirty_since.is_none() {
            file.dirty_since = Some(std::time::Instant::now());
            let (ino, file) = (file.file().ino, Arc::clone(file.file()));
            self.dirty.lock().insert(ino, file);
        }
    }

    /// Notes that a file has no unwritten data.
    pub(crate) fn mark_clean(&self, file: &mut LockedFile<'_>) {
        file.dirty_since = None;
        self.dirty.lock().remove(&file.file().ino);
    }

    /// All of them.
    pub(crate) fn dirty(&self) -> Vec<FileRef<'_>> {
        let files: Vec<Arc<File>> = self.dirty.lock().values().cloned().collect();
        files.into_iter().map(|file| self.hold(file)).collect()
    }

    /// Their number.
    pub(crate) fn dirty_len(&self) -> u64 {
        self.dirty.lock().len() as u64
    }

    /// Whether a file has data that is not committed yet.
    pub(crate) fn is_dirty(&self, ino: Ino) -> bool {
        self.in_use(ino).is_some_and(|file| {
            let state = file.state.lock();
            !state.is_clean()
        })
    }

    /// A line for each file with bytes that are not stored; not all lines if there are many.
    pub(crate) fn unstored(&self) -> Vec<String> {
        const SHOWN: usize = 20;
        let files = self.dirty();
        let mut lines = Vec::new();
        for file in &files {
            let state = file.state.lock();
            let (lost, bytes) = (&state.lost, state.unwritten());
            let what = match (lost.is_empty(), bytes) {
                (true, 0) => continue,
                (true, _) => format!("{bytes} bytes are not stored"),
                (false, 0) => format!("bytes {lost} are lost"),
                (false, _) => format!("bytes {lost} are lost, {bytes} others are not stored"),
            };
            lines.push(format!("{}: {what}", self.volume.namespace.path(file.ino)));
        }
        if lines.len() > SHOWN {
            let more = lines.len() - SHOWN;
            lines.truncate(SHOWN);
            lines.push(format!("and {more} more files"));
        }
        lines
    }
}

/// Orphans that no program uses any more.
impl FileTable {
    /// Notes that no program uses an orphan any more: it is freed soon.
    // single-node: programs that have it open do so through this process.
    pub(crate) fn release_orphan(&self, ino: Ino) {
        self.released.lock().insert(ino);
    }

    /// Notes the orphans of ended sessions, which any session may free. Its own orphans are released
    /// by the programs that use them. Returns those in use here.
    pub(crate) fn take_orphans(&self, orphans: &[Orphan], sessions: &[u64]) -> Vec<Ino> {
        let files = self.map.lock();
        let mut released = self.released.lock();
        let mut in_use = Vec::new();
        for orphan in orphans {
            if files.contains_key(&orphan.ino) {
                in_use.push(orphan.ino);
                self.used_orphans.lock().insert(orphan.ino);
            } else if !sessions.contains(&orphan.session) {
                released.insert(orphan.ino);
            }
        }
        in_use
    }

    /// Orphans that other sessions think this one uses, and that it does not use any more.
    pub(crate) fn take_unused_orphans(&self) -> Vec<Ino> {
        let files = self.map.lock();
        let mut used = self.used_orphans.lock();
        let unused = used.iter().filter(|ino| !files.contains_key(ino));
        let unused: Vec<Ino> = unused.copied().collect();
        used.retain(|ino| files.contains_key(ino));
        unused
    }

    /// The first one with a number from `ino` on.
    pub(crate) fn released_from(&self, ino: Ino) -> Option<u64> {
        self.released.lock().range(ino..).next().copied()
    }

    /// Whether there are any.
    pub(crate) fn has_released(&self) -> bool {
        !self.released.lock().is_empty()
    }

    /// Notes that one has been purged.
    pub(crate) fn note_purged(&self, ino: Ino) {
        self.released.lock().remove(&ino);
    }
}

/// Inodes as of now.
impl FileTable {
    /// An inode with everything written to it.
    pub(crate) fn stat(&self, ino: Ino) -> Result<CurrentInode, Error> {
        // Before the index is read: otherwise the file could be committed and forgotten in between.
        let Some(file) = self.in_use(ino) else {
            return Ok(self.volume.namespace.inode(ino)?.into());
        };
        let state = file.state.lock();
        let mut inode = self.volume.namespace.inode(ino)?;
        inode.size = if self.volume.namespace.is_shared() {
            inode.size.max(state.unwritten_end())
        } else {
            state.size
        };
        if state.times_dirty {
            inode.mtime = state.mtime;
            inode.ctime = inode.ctime.max(state.ctime);
        }
        Ok(CurrentInode {
            inode,
            unwritten: state.unwritten(),
        })
    }

    /// An inode that the index is asked for, with what has been written to it.
    // single-node: unwritten bytes are in this process, so this table knows all that the index does
    // not.
    pub(crate) fn stat_found(
        &self,
        ask: impl FnOnce() -> Result<Inode, Error>,
    ) -> Result<CurrentInode, Error> {
        let forgotten = self.forgotten.load(Ordering::SeqCst);
        let inode = ask()?;
        if inode.is_file()
            && (self.map.lock().contains_key(&inode.ino)
                || self.forgotten.load(Ordering::SeqCst) != forgotten)
        {
            return self.stat(inode.ino);
        }
        Ok(inode.into())
    }

    /// The inodes of listed entries, with what has been written to them; `None` for those that are
    /// gone.
    pub(crate) fn stat_listed(
        &self,
        entries: &[DirEntry],
    ) -> Result<Vec<Option<CurrentInode>>, Error> {
        let forgotten = self.forgotten.load(Ordering::SeqCst);
        let inodes = self.volume.namespace.inodes(entries)?;
        let moved = self.forgotten.load(Ordering::SeqCst) != forgotten;
        let current = |inode: Option<Inode>| {
            let Some(inode) = inode else { return Ok(None) };
            if inode.is_file() && (moved || self.map.lock().contains_key(&inode.ino)) {
                return match self.stat(inode.ino) {
                    Err(Error::Index(shale_index::Error::NotFound)) => Ok(None),
                    current => current.map(Some),
                };
            }
            Ok(Some(inode.into()))
        };
        inodes.into_iter().map(current).collect()
    }

    /// Changes attributes.
    pub(crate) fn set_attr(&self, ino: Ino, change: &AttrChange) -> Result<CurrentInode, Error> {
        self.volume.check_writable()?;
        let Some(file) = self.in_use(ino) else {
            return Ok(self.volume.namespace.set_attr(ino, change)?.into());
        };
        let mut state = file.state.lock();
        let mut change = change.clone();
        if state.times_dirty {
            change.mtime.get_or_insert(state.mtime);
            change.ctime.get_or_insert(state.ctime);
        }
        let mut inode = self.volume.namespace.set_attr(ino, &change)?;
        state.mtime = inode.mtime;
        state.ctime = inode.ctime;
        state.times_dirty = false;
        inode.size = state.size;
        Ok(CurrentInode {
            inode,
            unwritten: state.unwritten(),
        })
    }

    /// Ranges of a file that were accepted and could not be stored ([`File::lost`]).
    pub(crate) fn lost(&self, ino: Ino) -> Vec<Range<u64>> {
        self.in_use(ino).map_or_else(Vec::new, |file| file.lost())
    }
}
