//! Files in use: who takes them, gives them back and sees what they know.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use shale_index::schema::Inode;

use crate::activity::Activity;
use crate::file::File;
use crate::store::Inner;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::{Error, Store};

/// Files in use, by inode. Whoever works on a file takes it from here, and gives it back with
/// [`Inner::retire`]: the last one to do so makes it forgotten.
#[derive(Debug, Default)]
pub(crate) struct Files {
    map: Mutex<HashMap<u64, Arc<File>>>,
    /// How many have been forgotten. What the index said of a file before may be old.
    forgotten: AtomicU64,
}

/// A file that is given back when this goes.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    inner: &'a Inner,
    file: Option<Arc<File>>,
}

impl Deref for Held<'_> {
    type Target = Arc<File>;

    fn deref(&self) -> &Arc<File> {
        self.file.as_ref().expect("taken by drop alone")
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(file) = self.file.take() {
            self.inner.retire(file);
        }
    }
}

/// An inode with what has been written to it, committed or not.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its size and times are those of the last write.
    pub inode: Inode,
    /// Bytes that are in memory and not committed yet.
    pub unwritten: u64,
}

impl From<Inode> for Seen {
    /// An inode that nothing can have been written to.
    fn from(inode: Inode) -> Self {
        Self {
            inode,
            unwritten: 0,
        }
    }
}

impl Store {
    /// A regular file to work on; keep it as long as the file is open, and give it back with
    /// [`Store::close`].
    ///
    /// # Errors
    /// `ENOENT`, or when the index fails.
    pub fn file(&self, ino: u64) -> Result<Arc<File>, Error> {
        self.inner.file(ino)
    }

    /// Gives a file back after use.
    pub fn close(&self, file: Arc<File>) {
        self.inner.retire(file);
    }

    /// An inode.
    ///
    /// # Errors
    /// `ENOENT`, or when the index fails.
    pub fn inode(&self, ino: u64) -> Result<Seen, Error> {
        // Before the index is asked: else it could be committed and forgotten in between.
        let Some(file) = self.inner.file_in_use(ino) else {
            return Ok(self.inner.namespace.inode(ino)?.into());
        };
        let state = file.state.lock();
        let mut inode = self.inner.namespace.inode(ino)?;
        inode.size = state.size;
        if state.times_dirty {
            inode.mtime = state.mtime;
            inode.ctime = inode.ctime.max(state.ctime);
        }
        Ok(Seen {
            inode,
            unwritten: state.unwritten(),
        })
    }

    /// What a name in a directory stands for.
    ///
    /// # Errors
    /// `ENOENT`, `ENAMETOOLONG`, or when the index fails.
    pub fn look_up(&self, parent: u64, name: &[u8]) -> Result<Seen, Error> {
        self.with_news(|| Ok(self.inner.namespace.lookup(parent, name)?))
    }

    pub(crate) fn with_news(
        &self,
        ask: impl FnOnce() -> Result<Inode, Error>,
    ) -> Result<Seen, Error> {
        let files = &self.inner.files;
        let forgotten = files.forgotten.load(Ordering::SeqCst);
        let inode = ask()?;
        if inode.is_file()
            && (files.map.lock().contains_key(&inode.ino)
                || files.forgotten.load(Ordering::SeqCst) != forgotten)
        {
            return self.inode(inode.ino);
        }
        Ok(inode.into())
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// `ENOENT`, or when the index fails.
    pub fn set_attr(&self, ino: u64, change: &shale_index::AttrChange) -> Result<Seen, Error> {
        self.inner.check_writable()?;
        let Some(file) = self.inner.file_in_use(ino) else {
            return Ok(self.inner.namespace.set_attr(ino, change)?.0.into());
        };
        let mut state = file.state.lock();
        let mut change = change.clone();
        if state.times_dirty {
            change.mtime.get_or_insert(state.mtime);
            change.ctime.get_or_insert(state.ctime);
        }
        let (mut inode, _) = self.inner.namespace.set_attr(ino, &change)?;
        state.mtime = inode.mtime;
        state.ctime = inode.ctime;
        state.times_dirty = false;
        inode.size = state.size;
        Ok(Seen {
            inode,
            unwritten: state.unwritten(),
        })
    }

    /// Ranges of a file that were accepted and could not be stored ([`File::lost`]).
    #[must_use]
    pub fn lost(&self, ino: u64) -> Vec<std::ops::Range<u64>> {
        self.inner
            .file_in_use(ino)
            .map_or_else(Vec::new, |file| file.lost())
    }

    /// Whether a file has data that is not committed yet.
    #[must_use]
    pub fn is_dirty(&self, ino: u64) -> bool {
        self.inner.file_in_use(ino).is_some_and(|file| {
            let state = file.state.lock();
            !state.is_clean()
        })
    }
}

impl Inner {
    pub(crate) fn file(&self, ino: u64) -> Result<Arc<File>, Error> {
        let mut files = self.files.map.lock();
        if let Some(file) = files.get(&ino) {
            return Ok(Arc::clone(file));
        }
        // It may be going this moment, and what it frees has been counted: whoever moved
        // something of it now would make that wrong.
        if self.released.lock().contains(&ino) {
            return Err(Error::Refused(libc::ENOENT));
        }
        let inode = self.namespace.inode(ino)?;
        if !inode.is_file() {
            return Err(Error::Refused(libc::EINVAL));
        }
        let file = Arc::new(File::new(&inode, self.activity_of(ino)));
        files.insert(ino, Arc::clone(&file));
        Ok(file)
    }

    /// A file if somebody works on it.
    pub(crate) fn file_in_use(&self, ino: u64) -> Option<Held<'_>> {
        let file = self.files.map.lock().get(&ino).cloned();
        file.map(|file| self.held(file))
    }

    /// All files with something to write.
    pub(crate) fn dirty_files(&self) -> Vec<Held<'_>> {
        let files: Vec<Arc<File>> = self.dirty.lock().values().cloned().collect();
        files.into_iter().map(|file| self.held(file)).collect()
    }

    /// A line for each file of which something is not stored, some of them if they are many.
    pub(crate) fn unstored(&self) -> Vec<String> {
        const SHOWN: usize = 20;
        let files = self.dirty_files();
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
            lines.push(format!("{}: {what}", self.namespace.path(file.ino)));
        }
        if lines.len() > SHOWN {
            let more = lines.len() - SHOWN;
            lines.truncate(SHOWN);
            lines.push(format!("and {more} more files"));
        }
        lines
    }

    pub(crate) fn held(&self, file: Arc<File>) -> Held<'_> {
        Held {
            inner: self,
            file: Some(file),
        }
    }

    /// Something about every file in use.
    pub(crate) fn activities<T>(&self, look: impl Fn(u64, &Activity) -> T) -> Vec<T> {
        let files = self.files.map.lock();
        files
            .values()
            .map(|file| look(file.ino, &file.activity))
            .collect()
    }

    pub(crate) fn files_in_use(&self) -> u64 {
        self.files.map.lock().len() as u64
    }

    /// Wakes all who wait for something to happen to a file.
    pub(crate) fn wake_all(&self) {
        for file in self.files.map.lock().values() {
            // Not between a look at what has happened and the beginning of the wait.
            drop(file.state.lock());
            file.moved.notify_all();
        }
    }

    /// Gives a file back, which is forgotten when nobody else uses it and it has nothing to
    /// write.
    pub(crate) fn retire(&self, file: Arc<File>) {
        let ino = file.ino;
        // Before the look at who uses it, so that of two who go at once one sees none.
        drop(file);
        let mut files = self.files.map.lock();
        if let Some(file) = files.get(&ino)
            && Arc::strong_count(file) == 1
            && file.state.lock().is_clean()
        {
            self.note_closed(ino, &file.activity);
            self.files.forgotten.fetch_add(1, Ordering::SeqCst);
            files.remove(&ino);
        }
    }

    /// Forgets a file whatever it has to write, unless somebody uses it.
    pub(crate) fn discard(&self, ino: u64) -> bool {
        let mut files = self.files.map.lock();
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
        self.budget.give(unwritten);
        dirty.remove(&ino);
        files.remove(&ino);
        true
    }
}
