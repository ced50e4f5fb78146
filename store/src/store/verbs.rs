//! The methods of a store: each delegates to the room that does the work.

use std::ops::Range;
use std::sync::Arc;

use shale_codec::FrameSummary;
use shale_index::extent::Extent;
use shale_index::{AttrChange, Ino};

use super::Store;
use crate::Error;
use crate::disk::Presence;
use crate::file::{CurrentInode, Damage, File, FileTraffic, Usage};
use crate::gc::GcState;
use crate::inspect::{FieldShare, Inspector};
use crate::read::Seek;
use crate::settle::{Region, SettleBatch, SettleOptions, Settled, Sizes};
use crate::stats::{Counters, Gauges};
use crate::write::{Asked, Times};

/// Files and inodes.
impl Store {
    /// A regular file to work on; keep it as long as the file is open, and give it back with
    /// [`Store::close`].
    ///
    /// # Errors
    /// `ENOENT`, or when the index fails.
    pub fn file(&self, ino: Ino) -> Result<Arc<File>, Error> {
        let file = self.files.get(ino)?;
        if self.volume.namespace.is_shared() {
            // An opener sees what other sessions had synced by then, also in a file that is open.
            file.lock(&self.volume).refresh()?;
        }
        Ok(file)
    }

    /// Notes that a file may have capabilities that a write takes away.
    pub fn note_privileged(&self, ino: Ino) {
        if let Some(file) = self.files.in_use(ino) {
            file.note_unprivileged(false);
        }
    }

    /// Gives a file back after use.
    pub fn close(&self, file: Arc<File>) {
        self.files.retire(file);
    }

    /// An inode with everything written to it, committed or not.
    ///
    /// # Errors
    /// `ENOENT`, or when the index fails.
    pub fn stat(&self, ino: Ino) -> Result<CurrentInode, Error> {
        self.files.stat(ino)
    }

    /// The inode behind a name in a directory.
    ///
    /// # Errors
    /// `ENOENT`, `ENAMETOOLONG`, or when the index fails.
    pub fn look_up(&self, parent: Ino, name: &[u8]) -> Result<CurrentInode, Error> {
        self.files
            .stat_found(|| Ok(self.volume.namespace.lookup(parent, name)?))
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// `ENOENT`, or when the index fails.
    pub fn set_attr(&self, ino: Ino, change: &AttrChange) -> Result<CurrentInode, Error> {
        self.files.set_attr(ino, change)
    }

    /// Ranges of a file that were accepted and could not be stored ([`File::lost`]).
    #[must_use]
    pub fn lost(&self, ino: Ino) -> Vec<Range<u64>> {
        self.files.lost(ino)
    }

    /// Whether a file has data that is not committed yet.
    #[must_use]
    pub fn is_dirty(&self, ino: Ino) -> bool {
        self.files.is_dirty(ino)
    }

    /// Notes that no program uses an orphan any more: it is freed soon.
    pub fn release_orphan(&self, ino: Ino) {
        self.files.release_orphan(ino);
    }

    /// The space of a file, including unwritten data.
    ///
    /// # Errors
    /// `ENOENT`, or when the index fails.
    pub fn usage(&self, ino: Ino) -> Result<Usage, Error> {
        self.files.usage(ino)
    }

    /// The space of everything below a directory.
    ///
    /// # Errors
    /// When the index fails.
    pub fn usage_below(&self, dir: Ino) -> Result<Usage, Error> {
        self.files.usage_below(dir)
    }

    /// The files with the most traffic in the last seconds, the busiest first.
    #[must_use]
    pub fn busiest(&self, count: usize) -> Vec<FileTraffic> {
        self.files.busiest(count)
    }
}

/// Reading.
impl Store {
    /// Reads up to `len` bytes at an offset, which become the contents of `out`; fewer only at the
    /// end of the file. After an error the contents of `out` are arbitrary.
    ///
    /// # Errors
    /// `EIO` when stored bytes are damaged, or when the device fails.
    pub fn read(
        &self,
        file: &Arc<File>,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        self.reader.read(file, offset, len, out)
    }

    /// The next data or hole at or after an offset; `None` when there is none before the end.
    ///
    /// # Errors
    /// When the map of the file cannot be read.
    pub fn seek(&self, file: &Arc<File>, offset: u64, what: Seek) -> Result<Option<u64>, Error> {
        self.reader.seek(file, offset, what)
    }

    /// Remembers the damage that an error reports, if any.
    pub fn note_damage(&self, error: &Error) {
        self.files.damage.note_error(error);
    }

    /// Remembers that a file could not be read, whether its pack is damaged, lost or out of reach.
    pub fn note_unreadable(&self, ino: Ino, offset: u64, error: &Error) {
        self.files.damage.note_unreadable(ino, offset, error);
    }

    /// Number of files with data that could not be read since the store was opened. Whether that is
    /// still so is not checked.
    #[must_use]
    pub fn damaged_files(&self) -> u64 {
        self.files.damage.len()
    }

    /// These files with the places, each tried again: places that were deleted, overwritten or only
    /// temporarily unreadable are forgotten.
    #[must_use]
    pub fn damage(&self) -> Vec<Damage> {
        self.files
            .damage
            .recheck(|damage| self.is_unreadable(damage))
    }

    /// Tries the whole chunk: a part of it may have been overwritten.
    fn is_unreadable(&self, damage: &Damage) -> bool {
        if self
            .stat(damage.ino)
            .map_or(true, |current| current.inode.nlink == 0)
        {
            return false;
        }
        let Ok(file) = self.file(damage.ino) else {
            return false;
        };
        let Range { start, end } = file.chunk_range(file.chunk_of(damage.offset));
        let result = self.read(&file, start, (end - start) as usize, &mut Vec::new());
        self.close(file);
        result.is_err()
    }
}

/// Writing.
impl Store {
    /// Writes at an offset.
    ///
    /// # Errors
    /// `EFBIG`, `ENOSPC`, or an error of writing behind that leaves no room for more.
    pub fn write(&self, file: &Arc<File>, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.writer.write(file, offset, data, Times::Touch)
    }

    /// Writes data that bypasses a cache above, which still reports the times itself.
    ///
    /// # Errors
    /// As [`Store::write`].
    pub fn write_past(&self, file: &Arc<File>, offset: u64, data: &[u8]) -> Result<(), Error> {
        self.writer.write(file, offset, data, Times::Keep)
    }

    /// Writes data that a cache above has accepted before; the cache reports the times itself,
    /// unless `touch`. Data that is refused here is lost: `write` has already succeeded for the
    /// program.
    ///
    /// # Errors
    /// `EFBIG`, or why nothing can be stored. The range then counts as lost
    /// ([`File::lost`]).
    pub fn write_back(
        &self,
        file: &Arc<File>,
        offset: u64,
        data: &[u8],
        touch: bool,
    ) -> Result<(), Error> {
        let times = if touch { Times::Touch } else { Times::Keep };
        self.writer.write_back(file, offset, data, times)
    }

    /// Shortens or extends a file.
    ///
    /// # Errors
    /// `EFBIG`, or when the index fails.
    pub fn truncate(&self, file: &Arc<File>, size: u64) -> Result<(), Error> {
        self.writer.truncate(file, size)
    }

    /// Makes a range read as zeros and frees its space; the size stays.
    ///
    /// # Errors
    /// When the index fails.
    pub fn punch(&self, file: &Arc<File>, range: Range<u64>) -> Result<(), Error> {
        self.writer.punch(file, range)
    }

    /// Returns when everything written to a file before the call is durable, with its size, its
    /// times and its name.
    ///
    /// # Errors
    /// What prevented it; the data stays in memory and the next sync tries again.
    pub fn sync(&self, file: &Arc<File>) -> Result<(), Error> {
        self.writer.sync(file)
    }

    /// Returns when every change of names and attributes before the call is durable.
    ///
    /// # Errors
    /// What prevented it.
    pub fn sync_metadata(&self) -> Result<(), Error> {
        self.writer.sync_metadata()
    }

    /// Returns when everything written before the call is durable.
    ///
    /// # Errors
    /// What prevented it for any of the files.
    pub fn sync_all(&self) -> Result<(), Error> {
        self.writer.sync_all()
    }
}

/// Room on the device.
impl Store {
    /// Sets how many bytes a cache above may have accepted that it has not sent yet. From now on
    /// that much of the device is held for them.
    pub fn set_cached_above(&self, bytes: u64) {
        self.writer.admission.set_cached_above(bytes);
    }

    /// Calls `changed` whenever room on the device becomes short or ceases to be. It must not wait.
    pub fn on_shortage(&self, changed: Box<dyn Fn() + Send + Sync>) {
        self.volume.space.listen(changed);
    }

    /// Number of the current shortage of room.
    #[must_use]
    pub fn shortage(&self) -> u64 {
        self.volume.space.shortage()
    }

    /// Notes that all writers know that they must ask ([`Store::covers_cached`]) in this shortage,
    /// and that everything a cache above had accepted before has been written back.
    pub fn set_writers_told(&self, shortage: u64) {
        self.volume.space.set_told(shortage);
    }

    /// Whether room is short, so that a cache above has to ask ([`Store::admit_cached`]) before
    /// it accepts more.
    #[must_use]
    pub fn is_short_of_room(&self) -> bool {
        self.writer.admission.is_short_of_room()
    }

    /// A writer asks before a cache above accepts its write to a file. Returns, without waiting,
    /// whether the write and all that the cache may hold are covered.
    #[must_use]
    pub fn covers_cached(&self, file: &File, asked: Asked) -> bool {
        self.writer.admission.covers_cached(file, asked)
    }

    /// Returns when the requested write can be stored.
    ///
    /// # Errors
    /// `ENOSPC`, `EDQUOT`, or why nothing can be stored.
    pub fn admit_cached(&self, file: &File, asked: Asked) -> Result<(), Error> {
        self.writer.admission.admit_cached(file, asked)
    }

    /// Notes that no program writes to a file any more: the promised data has been written, or
    /// never will be.
    pub fn forget_asked(&self, ino: Ino) {
        self.writer.admission.forget_asked(ino);
    }

    /// Whether a small write without a promise would still be covered.
    #[must_use]
    pub fn covers_a_few(&self) -> bool {
        self.writer.admission.covers_a_few()
    }

    /// Returns when there is room for another name or attribute.
    ///
    /// # Errors
    /// `ENOSPC`: what is left is needed to commit what was accepted, and to delete.
    pub fn admit_names(&self) -> Result<(), Error> {
        self.writer.admission.admit_names()
    }
}

/// Settling.
impl Store {
    /// Settles a file. `regions` describe it; wrong ones only cost density.
    ///
    /// # Errors
    /// When the file cannot be read or the device fails. The file is as it was, or partly settled.
    pub fn settle(
        &self,
        file: &Arc<File>,
        regions: &[Region],
        options: &SettleOptions<'_>,
    ) -> Result<Settled, Error> {
        let sizes = Sizes::for_chunks(file.chunk_len());
        self.settler.settle(file, regions, options, &sizes)
    }

    /// An empty batch.
    #[must_use]
    pub fn settle_batch(&self) -> SettleBatch<'_> {
        self.settler.batch()
    }

    /// Changes the chunk size of a file. `false` when some of its data is not stored yet.
    ///
    /// # Errors
    /// When the index fails.
    pub fn set_chunk(&self, file: &Arc<File>, shift: u8) -> Result<bool, Error> {
        self.settler.set_chunk(file, shift)
    }

    /// Puts a file that was not worth settling back into the list of files to settle.
    ///
    /// # Errors
    /// When the index fails.
    pub fn loosen(&self, file: &Arc<File>) -> Result<(), Error> {
        self.settler.loosen(file)
    }
}

/// Garbage collection.
impl Store {
    /// Requests a gc pass that rewrites all packs less than `percent` live.
    pub fn request_gc(&self, percent: u64) {
        self.gc.ask(percent);
    }

    /// The state of gc, or how its last pass ended.
    #[must_use]
    pub fn gc_state(&self) -> GcState {
        self.gc.state()
    }

    /// Stored bytes that nothing needs any more, in packs that no longer grow.
    #[must_use]
    pub fn garbage(&self) -> u64 {
        let packs = &self.volume.frames.packs;
        packs
            .live()
            .into_iter()
            .filter(|&(pack, _)| packs.is_quiet(pack))
            .filter_map(|(pack, live)| Some(packs.len(pack).ok()?.saturating_sub(live)))
            .sum()
    }
}

/// Reports.
impl Store {
    fn inspector(&self) -> Inspector<'_> {
        Inspector {
            volume: &self.volume,
            files: &self.files,
        }
    }

    /// The transforms and coders of a file's frames, from a sample of them.
    ///
    /// # Errors
    /// When the map or a frame of the file cannot be read.
    pub fn codecs(&self, ino: Ino) -> Result<String, Error> {
        self.inspector().codecs(ino)
    }

    /// Stored extents of a file from an offset on, in order and without holes: some, and where
    /// to go on; `None` at the end. However large the file, one call reads little.
    ///
    /// # Errors
    /// When the map of the file cannot be read.
    pub fn extents_from(
        &self,
        file: &Arc<File>,
        start: u64,
    ) -> Result<(Vec<Extent>, Option<u64>), Error> {
        self.inspector().extents_from(file, start)
    }

    /// The fields of the array of tiles behind an extent, and the length of a record of it;
    /// `None` for other extents.
    ///
    /// # Errors
    /// When the directory of the array cannot be read.
    pub fn fields(
        &self,
        ino: Ino,
        extent: &Extent,
    ) -> Result<Option<(u64, Vec<FieldShare>)>, Error> {
        self.inspector().fields(ino, extent)
    }

    /// The recipe of the frame that holds byte `offset` of a file, which must be in `extent`.
    ///
    /// # Errors
    /// When the frame cannot be read.
    pub fn summary_at(
        &self,
        ino: Ino,
        extent: &Extent,
        offset: u64,
    ) -> Result<FrameSummary, Error> {
        self.inspector().summary_at(ino, extent, offset)
    }

    /// The state of the directory of the store.
    #[must_use]
    pub fn presence(&self) -> Presence {
        self.volume.presence.look(&*self.volume.backing)
    }

    /// Its counters since it was opened.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.volume.stats
    }

    /// Its present state.
    #[must_use]
    pub fn gauges(&self) -> Gauges {
        let volume = &*self.volume;
        let kv = volume.namespace.kv();
        // One lock at a time: in one expression the first would be held until its end.
        let dirty_files = self.files.dirty_len();
        let files = self.files.len();
        Gauges {
            buffer_used: volume.limiter.used(),
            buffer_limit: volume.limiter.limit(),
            cache_used: volume.frames.cache.used(),
            cache_limit: volume.frames.cache.limit(),
            encode_queue: self.writer.queue.waiting(),
            decode_queue: self.reader.waiting(),
            dirty_files,
            files,
            commits: kv.version().saturating_sub(volume.first_version),
            journal_syncs: kv.syncs(),
        }
    }
}
