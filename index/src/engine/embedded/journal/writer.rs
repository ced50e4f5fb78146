//! Appends commits and tracks which of them are durable.
//!
//! The space for the next records is reserved ahead, and a spare segment with its own reserve
//! waits beside the current one. Commits that grow the index must find more space to reserve;
//! commits that shrink it may use up the reserve, so removing files works on a full disk.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shale_backing::{Access, Backing, BackingFile};

use super::reader::{Replay, SegmentChain};
use super::record::{self, RecordKind};
use super::segment::{self, SegmentHeader, SpareSegment, path_of};
use crate::Error;
use crate::engine::embedded::options::JournalSizes;
use crate::engine::embedded::paths::{self, io_error};
use crate::kv::Version;

/// The segment that is written.
#[derive(Debug)]
struct Current {
    first: Version,
    file: Arc<dyn BackingFile>,
    header: SegmentHeader,
    end: u64,
    reserved: u64,
    /// Bytes after `end` may never be read: write elsewhere.
    broken: bool,
}

/// A full segment.
#[derive(Debug)]
struct Rolled {
    first: Version,
    /// Until it is synced.
    file: Option<Arc<dyn BackingFile>>,
}

/// The work of one sync; prepared under the commit lock, done outside of it.
#[derive(Debug)]
pub(crate) struct SyncJob {
    /// Every commit up to here is durable afterwards.
    pub(crate) target: Version,
    files: Vec<(PathBuf, Arc<dyn BackingFile>)>,
    names: Option<u64>,
}

impl SyncJob {
    /// Syncs files, oldest first, then names.
    pub(crate) fn run(&self, backing: &dyn Backing) -> Result<(), Error> {
        for (path, file) in &self.files {
            file.sync_data().map_err(io_error("sync", path))?;
        }
        if self.names.is_some() {
            let dir = Path::new(paths::DIR);
            backing.sync_dir(dir).map_err(io_error("sync", dir))?;
        }
        Ok(())
    }
}

/// The writing end of the journal.
#[derive(Debug)]
pub(crate) struct JournalWriter {
    backing: Arc<dyn Backing>,
    sizes: JournalSizes,
    rolled: Vec<Rolled>,
    current: Option<Current>,
    spare: Option<SpareSegment>,
    epoch: u64,
    last: Version,
    durable: Version,
    /// Commits not known to be durable, for the case that the page cache loses them.
    pending: VecDeque<(Version, Arc<[u8]>)>,
    pending_bytes: usize,
    /// Counts changes of names in the directory, and which of them are durable.
    names: u64,
    names_synced: u64,
    /// A sync failed: the contents of the segments above `durable` cannot be trusted.
    suspect: bool,
}

impl JournalWriter {
    /// Continues a journal after a replay.
    pub(crate) fn new(
        backing: Arc<dyn Backing>,
        sizes: JournalSizes,
        chain: &SegmentChain,
        replay: &Replay,
    ) -> Result<Self, Error> {
        let mut rolled: Vec<Rolled> = chain
            .links
            .iter()
            .map(|link| Rolled {
                first: link.first,
                file: None,
            })
            .collect();
        let mut current = None;
        // A segment that ends cleanly is continued; after a torn tail a new one overrules it.
        if let (Some(link), Some(end)) = (chain.links.last(), replay.clean_end)
            && end < sizes.segment / 2
        {
            let path = link.path();
            let file = backing
                .open(&path, Access::Write)
                .map_err(io_error("open", &path))?;
            let (first, header) = (link.first, link.header);
            current = Some(Current {
                first,
                file,
                header,
                end,
                reserved: 0,
                broken: false,
            });
            rolled.pop();
        }
        let spare = SpareSegment::reopen(&*backing, chain.last_epoch, sizes.spare);
        let epoch = spare
            .as_ref()
            .map_or(chain.last_epoch, |spare| spare.header.epoch);
        let last = replay.last;
        let mut writer = Self {
            rolled,
            current,
            spare,
            epoch,
            ..Self::read_only(backing, sizes, last)
        };
        if let Err(error) = writer.ensure_spare() {
            tracing::warn!(
                %error,
                "cannot reserve space for the index journal: free space on the device of the \
                 store, or changes will be refused"
            );
        }
        Ok(writer)
    }

    /// A writer that never writes.
    pub(crate) fn read_only(backing: Arc<dyn Backing>, sizes: JournalSizes, last: Version) -> Self {
        Self {
            backing,
            sizes,
            rolled: Vec::new(),
            current: None,
            spare: None,
            epoch: 0,
            last,
            durable: last,
            pending: VecDeque::new(),
            pending_bytes: 0,
            names: 0,
            names_synced: 0,
            suspect: false,
        }
    }

    /// The newest commit.
    pub(crate) fn last(&self) -> Version {
        self.last
    }

    /// The newest version known to be durable.
    pub(crate) fn durable(&self) -> Version {
        self.durable
    }

    /// Bytes that wait in memory for a sync.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending_bytes
    }

    /// Appends the next commit. After an error it did not happen. Returns the bytes written.
    pub(crate) fn append(&mut self, body: Vec<u8>, shrinks: bool) -> Result<u64, Error> {
        if body.len() > self.sizes.commit {
            return Err(Error::CommitTooLarge {
                len: body.len(),
                limit: self.sizes.commit,
            });
        }
        if self.suspect && self.pending_bytes + body.len() > self.sizes.pending {
            // Reports the fault of the disk, or repairs it.
            self.repair()?;
        }
        if !shrinks {
            self.ensure_spare()?;
        }
        let version = self.last + 1;
        let len = record::stored_len(body.len()) as u64;
        let full = |c: &Current| c.end + len > self.sizes.segment && c.end > segment::HEADER as u64;
        if self.current.as_ref().is_none_or(|c| c.broken || full(c)) {
            self.roll(version)?;
            if !shrinks {
                self.ensure_spare()?;
            }
        }
        match self.write(RecordKind::Commit, version, &body, shrinks) {
            Err(Error::Io { source, .. })
                if shrinks
                    && source.kind() == io::ErrorKind::StorageFull
                    && self.spare.is_some() =>
            {
                self.roll(version)?;
                self.write(RecordKind::Commit, version, &body, shrinks)?;
            }
            other => other?,
        }
        self.last = version;
        self.pending_bytes += body.len();
        self.pending.push_back((version, body.into()));
        Ok(len)
    }

    /// Records what is durable, for a clean close.
    pub(crate) fn mark(&mut self) -> Result<(), Error> {
        match &self.current {
            Some(current) if !current.broken && !self.suspect => {
                self.write(RecordKind::Mark, self.last, &[], true)?;
                let path = self.current_path();
                match &self.current {
                    Some(current) => current.file.sync_data().map_err(io_error("sync", &path)),
                    None => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    fn current_path(&self) -> PathBuf {
        self.current
            .as_ref()
            .map_or_else(|| paths::path("journal"), |c| path_of(c.first))
    }

    /// Writes one record at the end of the current segment.
    fn write(
        &mut self,
        kind: RecordKind,
        version: Version,
        body: &[u8],
        shrinks: bool,
    ) -> Result<(), Error> {
        let path = self.current_path();
        let (durable, step) = (self.durable, self.sizes.step);
        let Some(current) = self.current.as_mut() else {
            return Err(Error::Closed("the journal has no segment".into()));
        };
        let bytes = record::encode(current.header.salt, kind, version, durable, body);
        let need = current.end + bytes.len() as u64;
        if need > current.reserved {
            let wanted = (need + step / 2).next_multiple_of(step);
            match current.file.reserve(wanted) {
                Ok(_) => current.reserved = wanted,
                Err(e) if !shrinks => return Err(io_error("reserve space for", &path)(e)),
                Err(_) => {}
            }
        }
        if let Err(e) = current.file.write_all_at(&bytes, current.end) {
            // The record may have been written in part or, worse, completely.
            let blank = [0; record::HEADER];
            current.broken = current.file.write_all_at(&blank, current.end).is_err();
            return Err(io_error("append to", &path)(e));
        }
        current.end = need;
        Ok(())
    }

    fn ensure_spare(&mut self) -> Result<(), Error> {
        if self.spare.is_none() {
            let spare = SpareSegment::create(&*self.backing, self.epoch + 1, self.sizes.spare)?;
            self.epoch += 1;
            self.spare = Some(spare);
        }
        Ok(())
    }

    /// Puts the spare segment into use.
    fn roll(&mut self, first: Version) -> Result<(), Error> {
        self.ensure_spare()?;
        let Some(spare) = self.spare.take() else {
            return Ok(());
        };
        if let Err(e) = spare.put_in_place(&*self.backing, first) {
            self.spare = Some(spare);
            return Err(e);
        }
        self.names += 1;
        self.adopt(spare, first, segment::HEADER as u64);
        Ok(())
    }

    fn adopt(&mut self, spare: SpareSegment, first: Version, end: u64) {
        let SpareSegment {
            file,
            header,
            reserved,
        } = spare;
        let new = Current {
            first,
            file,
            header,
            end,
            reserved,
            broken: false,
        };
        if let Some(old) = self.current.replace(new) {
            // One with the same first version had no commit; its file is replaced.
            if old.first < first {
                let Current { first, file, .. } = old;
                self.rolled.push(Rolled {
                    first,
                    file: Some(file),
                });
            }
        }
    }

    /// The work of a sync of everything so far. Repairs a suspect journal first.
    pub(crate) fn begin_sync(&mut self) -> Result<SyncJob, Error> {
        if self.suspect {
            self.repair()?;
        }
        let rolled = self
            .rolled
            .iter()
            .filter_map(|r| Some((path_of(r.first), r.file.clone()?)));
        let mut files: Vec<_> = rolled.collect();
        if let Some(current) = &self.current
            && self.last > self.durable
        {
            files.push((path_of(current.first), current.file.clone()));
        }
        let names = (self.names > self.names_synced).then_some(self.names);
        Ok(SyncJob {
            target: self.last,
            files,
            names,
        })
    }

    /// Notes that a sync succeeded.
    pub(crate) fn synced(&mut self, job: &SyncJob) {
        if let Some(names) = job.names {
            self.names_synced = self.names_synced.max(names);
        }
        let firsts = self.rolled.iter().map(|rolled| rolled.first);
        let nexts: Vec<Version> = firsts
            .skip(1)
            .chain(self.current.as_ref().map(|current| current.first))
            .collect();
        for (rolled, next) in self.rolled.iter_mut().zip(nexts) {
            // A segment that was still current when the sync began may have grown since.
            if next <= job.target + 1 {
                rolled.file = None;
            }
        }
        self.durable_up_to(job.target);
    }

    fn durable_up_to(&mut self, version: Version) {
        self.durable = self.durable.max(version);
        while let Some((pending, body)) = self.pending.front() {
            if *pending > self.durable {
                break;
            }
            self.pending_bytes -= body.len();
            self.pending.pop_front();
        }
    }

    /// Notes that a sync failed and tries to save the commits it should have made durable.
    pub(crate) fn sync_failed(&mut self, error: Error) -> Result<(), Error> {
        if self.pending.is_empty() {
            // Only names were concerned; the next sync retries them.
            return Err(error);
        }
        self.suspect = true;
        tracing::warn!(
            %error,
            commits = self.pending.len(),
            "sync of the index journal failed; writing the commits to a new segment: \
             check the device of the store"
        );
        self.repair()
    }

    /// After a failed fdatasync the kernel may have dropped the pages, and a second attempt would
    /// succeed without having written them. So everything not known to be durable is written again,
    /// from memory, to a new segment that overrules the old ones.
    fn repair(&mut self) -> Result<(), Error> {
        let first = self.durable + 1;
        self.ensure_spare()?;
        let Some(spare) = self.spare.take() else {
            return Ok(());
        };
        let path = paths::path("journal-spare");
        let mut bytes = Vec::new();
        for (version, body) in &self.pending {
            let salt = spare.header.salt;
            bytes.extend(record::encode(
                salt,
                RecordKind::Commit,
                *version,
                self.durable,
                body,
            ));
        }
        let end = segment::HEADER as u64 + bytes.len() as u64;
        let written = spare
            .file
            .write_all_at(&bytes, segment::HEADER as u64)
            .map_err(io_error("write", &path))
            .and_then(|()| spare.file.sync_data().map_err(io_error("sync", &path)))
            .and_then(|()| spare.put_in_place(&*self.backing, first));
        if let Err(e) = written {
            // A file whose sync failed is not retried.
            let _ = paths::remove(&*self.backing, &path);
            return Err(e);
        }
        self.names += 1;
        let keep = |r: &Rolled| r.first < first;
        let gone: Vec<_> = self
            .rolled
            .iter()
            .filter(|r| !keep(r))
            .map(|r| r.first)
            .collect();
        self.rolled.retain(keep);
        let old = self.current.as_ref().map(|current| current.first);
        self.adopt(spare, first, end);
        for rolled in &mut self.rolled {
            // Its records up to `durable` are safe; the rest is overruled.
            rolled.file = None;
        }
        self.suspect = false;
        let dir = Path::new(paths::DIR);
        self.backing.sync_dir(dir).map_err(io_error("sync", dir))?;
        self.names_synced = self.names;
        self.durable_up_to(self.last);
        for old in gone.into_iter().chain(old).filter(|old| *old > first) {
            // Overruled anyway; the next open removes leftovers.
            let _ = paths::remove(&*self.backing, &path_of(old));
        }
        Ok(())
    }

    /// Forgets the oldest segments that hold nothing above `version`; returns their files.
    pub(crate) fn trim(&mut self, version: Version) -> Vec<PathBuf> {
        let mut firsts: Vec<Version> = self.rolled.iter().map(|r| r.first).collect();
        firsts.extend(self.current.as_ref().map(|current| current.first));
        let count = firsts
            .windows(2)
            .take_while(|pair| pair[1] <= version + 1)
            .count();
        let count = count.min(self.rolled.iter().take_while(|r| r.file.is_none()).count());
        self.rolled
            .drain(..count)
            .map(|rolled| path_of(rolled.first))
            .collect()
    }
}
