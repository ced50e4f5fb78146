//! Appending to packs.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_backing::{Access, Backing, BackingFile};
use shale_index::extent::{PackBytes, SealedPack};

use super::format::{DirectoryEntry, FrameAt, HEADER_LEN, PackId, encode_footer, encode_header};
use super::pin::{Pin, Pins};
use crate::Error;
use crate::primitives::{Condvar, Mutex};

/// Frames of a pack at most, which bounds its directory.
const MAX_FRAMES: usize = 65_536;

/// Bytes after which write-out is started, long before they are synced.
const WRITE_OUT: u64 = 2 << 20;
/// Bytes at the end that are left for the next time: other appends may still be writing there.
const UNFINISHED: u64 = 1 << 20;
/// A page under write-out should not be written to.
const PAGE: u64 = 4096;

/// Threads that append at the same time without mixing their frames have a lane each: the
/// foreground has one, each settle worker another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Lane(pub(crate) usize);

impl Lane {
    /// The lane of the foreground.
    pub(crate) const FOREGROUND: Self = Self(0);
}

/// A frame that was appended.
pub(super) struct Placed {
    pub(super) at: FrameAt,
    pub(super) pin: Pin,
    /// The file, when the frame began a new pack.
    pub(super) fresh: Option<Arc<dyn BackingFile>>,
}

#[derive(Debug)]
pub(super) struct PackAppender {
    backing: Arc<dyn Backing>,
    store_id: [u8; 16],
    pub(super) session: u64,
    pub(super) seal_bytes: u64,
    state: Mutex<State>,
    /// Signalled when the last append to a pack that will be sealed has ended.
    idle: Condvar,
    /// One at a time: a caller that finds nothing to sync must not return before the thread that is
    /// syncing has.
    syncing: Mutex<()>,
}

#[derive(Debug, Default)]
struct State {
    next_number: u64,
    /// The pack that gets the next frame of each lane.
    current: BTreeMap<Lane, PackId>,
    /// Packs not sealed yet: the current ones and those that are full.
    open: BTreeMap<PackId, Open>,
    /// Packs whose sync has failed.
    abandoned: BTreeSet<PackId>,
    /// A pack file was created since the last sync of its directory.
    new_name: bool,
    /// Packs that were sealed durably, until the index knows.
    sealed: Vec<SealedPack>,
}

#[derive(Debug)]
struct Open {
    file: Arc<dyn BackingFile>,
    end: u64,
    frames: Vec<DirectoryEntry>,
    /// Appends that have a place but are not written yet.
    writing: usize,
    /// Bytes were written since the last sync.
    dirty: bool,
    /// Write-out has been started up to here.
    begun: u64,
}

impl Open {
    /// The range to start write-out for now.
    fn write_out(&mut self) -> Option<Range<u64>> {
        let until = self.end.saturating_sub(UNFINISHED) / PAGE * PAGE;
        let begun = self.begun;
        until.checked_sub(begun).filter(|&len| len >= WRITE_OUT)?;
        self.begun = until;
        Some(begun..until)
    }
}

impl State {
    fn is_current(&self, pack: PackId) -> bool {
        self.current.values().any(|&current| current == pack)
    }

    /// Makes all lanes leave a pack.
    fn leave(&mut self, pack: PackId) {
        self.current.retain(|_, current| *current != pack);
    }
}

impl PackAppender {
    pub(super) fn new(
        backing: Arc<dyn Backing>,
        store_id: [u8; 16],
        session: u64,
        seal_bytes: u64,
    ) -> Self {
        Self {
            backing,
            store_id,
            session,
            seal_bytes,
            state: Mutex::default(),
            idle: Condvar::new(),
            syncing: Mutex::new(()),
        }
    }

    /// Appends one frame or several contiguous ones. `entries` describe them, with offsets relative
    /// to the first frame.
    pub(super) fn append(
        &self,
        lane: Lane,
        bytes: &[u8],
        entries: &[DirectoryEntry],
        pins: &Arc<Pins>,
    ) -> Result<Placed, Error> {
        let mut state = self.state.lock();
        let mut fresh = None;
        let (pack, file, at) = loop {
            if let Some(&pack) = state.current.get(&lane)
                && let Some(open) = state.open.get_mut(&pack)
            {
                let room = self.seal_bytes.saturating_sub(open.end);
                let first = open.end == HEADER_LEN as u64;
                if (first || room >= bytes.len() as u64) && open.frames.len() < MAX_FRAMES {
                    let at = open.end;
                    open.end += bytes.len() as u64;
                    open.writing += 1;
                    break (pack, Arc::clone(&open.file), at);
                }
            }
            state.current.remove(&lane);
            let (pack, file) = self.begin(&mut state)?;
            state.current.insert(lane, pack);
            fresh = Some(file);
        };
        // Pinned before gc can find the pack sealed and empty.
        let pin = pins.pin(pack);
        drop(state);

        let written = file.write_all_at(bytes, at);
        reach(Stage::FrameAppended);

        let mut state = self.state.lock();
        let mut write_out = None;
        if let Some(open) = state.open.get_mut(&pack) {
            open.writing -= 1;
            open.dirty = true;
            // The next frame can take its place if it covers all of it: the directory must be the
            // last part of a pack.
            if written.is_err() && open.end == at + bytes.len() as u64 && file.set_len(at).is_ok() {
                open.end = at;
            }
            if written.is_ok() {
                open.frames
                    .extend(entries.iter().map(|entry| DirectoryEntry {
                        at: at + entry.at,
                        ..*entry
                    }));
            }
            if open.writing == 0 {
                self.idle.notify_all();
            }
            write_out = open.write_out();
        }
        if let Err(e) = written {
            // Nothing refers to the partial frame. A full device may have room for the next frame;
            // after any other error another file is more likely to work.
            if !matches!(e.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT)) {
                state.leave(pack);
            }
            return Err(Error::io("append to", pack.path())(e));
        }
        drop(state);
        if let Some(range) = write_out {
            file.write_out(range.start, range.end - range.start);
        }
        Ok(Placed {
            at: FrameAt { pack, at },
            pin,
            fresh,
        })
    }

    fn begin(&self, state: &mut State) -> Result<(PackId, Arc<dyn BackingFile>), Error> {
        let pack = PackId::new(self.session, state.next_number);
        let path = pack.path();
        let begin = || {
            self.backing
                .create_dir_all(path.parent().unwrap_or(Path::new("")))?;
            let file = self.backing.open(&path, Access::CreatePack)?;
            if let Err(e) = file.write_all_at(&encode_header(self.store_id, pack), 0) {
                // Otherwise it would stay until the next mount.
                let _ = self.backing.remove_file(&path);
                return Err(e);
            }
            Ok(file)
        };
        // A number is not used again, even if the file could not be written.
        state.next_number += 1;
        let file: Arc<dyn BackingFile> = begin()
            // Not ENOENT: the program's file exists.
            .map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => io::Error::other(e.to_string()),
                _ => e,
            })
            .map_err(Error::io("create", &path))?;
        state.new_name = true;
        let open = Open {
            file: Arc::clone(&file),
            end: HEADER_LEN as u64,
            frames: Vec::new(),
            writing: 0,
            dirty: true,
            begun: 0,
        };
        state.open.insert(pack, open);
        Ok((pack, file))
    }

    pub(super) fn is_active(&self, pack: PackId) -> bool {
        self.state.lock().open.contains_key(&pack)
    }

    pub(super) fn abandoned(&self) -> Vec<PackId> {
        self.state.lock().abandoned.iter().copied().collect()
    }

    /// Packs sealed since the last call.
    pub(super) fn take_sealed(&self) -> Vec<SealedPack> {
        std::mem::take(&mut self.state.lock().sealed)
    }

    /// Packs that get the next frames, and their lengths.
    pub(super) fn growing(&self) -> Vec<PackBytes> {
        let state = self.state.lock();
        let current = state.current.values();
        current
            .filter_map(|&pack| {
                let bytes = state.open.get(&pack)?.end;
                Some(PackBytes { pack, bytes })
            })
            .collect()
    }

    pub(super) fn roll(&self) {
        self.state.lock().current.clear();
    }

    /// Syncs appended frames, sealing full packs. Returns the packs that failed, which are
    /// abandoned.
    pub(super) fn sync(&self) -> Vec<(PackId, io::Error)> {
        let _alone = self.syncing.lock();
        let mut failed = Vec::new();
        let (work, new_name) = {
            let mut state = self.state.lock();
            let work: Vec<PackId> = state
                .open
                .iter()
                .filter(|&(&pack, open)| open.dirty || !state.is_current(pack))
                .map(|(&pack, _)| pack)
                .collect();
            (work, std::mem::take(&mut state.new_name))
        };
        if new_name && let Err(e) = self.sync_names() {
            // Without its name no pack is durable: retry with the next sync.
            self.state.lock().new_name = true;
            let kind = e.kind();
            return work
                .into_iter()
                .map(|pack| {
                    (
                        pack,
                        e.raw_os_error()
                            .map_or(kind.into(), io::Error::from_raw_os_error),
                    )
                })
                .collect();
        }
        for pack in work {
            if let Err(e) = self.sync_pack(pack) {
                let mut state = self.state.lock();
                state.open.remove(&pack);
                state.abandoned.insert(pack);
                state.leave(pack);
                failed.push((pack, e));
            }
        }
        failed
    }

    fn sync_names(&self) -> io::Result<()> {
        self.backing.sync_dir(&PackId::session_dir(self.session))?;
        self.backing.sync_dir(Path::new(super::DIR))
    }

    fn sync_pack(&self, pack: PackId) -> io::Result<()> {
        let mut state = self.state.lock();
        let full = !state.is_current(pack);
        if full {
            while state.open.get(&pack).is_some_and(|open| open.writing > 0) {
                self.idle.wait(&mut state);
            }
        }
        let Some(open) = state.open.get_mut(&pack) else {
            return Ok(());
        };
        open.dirty = false;
        let file = Arc::clone(&open.file);
        let seal = full.then(|| (open.end, std::mem::take(&mut open.frames)));
        drop(state);
        if let Some((end, mut frames)) = seal {
            frames.sort_unstable_by_key(|entry| entry.at);
            // The directory only saves scanning: the pack is as good without it.
            let footer = encode_footer(pack, end, &frames, 0);
            let written = footer.is_ok_and(|footer| file.write_all_at(&footer, end).is_ok());
            if !written {
                file.set_len(end)?;
            }
            file.seal()?;
            reach(Stage::PackSealed);
            let mut state = self.state.lock();
            state.open.remove(&pack);
            if written {
                state.sealed.push(SealedPack {
                    pack,
                    directory: end,
                });
            }
            return Ok(());
        }
        file.sync_data()?;
        reach(Stage::PackSynced);
        Ok(())
    }
}
