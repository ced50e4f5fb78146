//! The log of the catalog: appending commits, and syncing them.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use shale_backing::{Access, Backing, BackingFile};
use shale_codec::{Effort, Encoder, FrameKind, FrameMeta, Hint};
use shale_index::encoding::encode_commit;
use shale_index::kv::{Commit, Version};

use super::{COMMITS, IDENTITY, LACKING, dir, path, read};
use crate::Error;

/// Bytes of waiting commits from which a commit writes them itself.
const BUFFER_MAX: usize = 4 << 20;

#[derive(Debug)]
pub(super) struct CatalogLog {
    pub(super) backing: Arc<dyn Backing>,
    pub(super) store_id: [u8; 16],
    pub(super) state: Mutex<LogState>,
    /// Held while the log is synced: a caller that finds nothing to sync must not return earlier.
    pub(super) syncing: Mutex<()>,
    pub(super) stop: AtomicBool,
}

pub(super) struct LogState {
    pub(super) number: u64,
    pub(super) file: Option<Arc<dyn BackingFile>>,
    pub(super) end: u64,
    /// Whether the section of the next frame has begun.
    pub(super) begun: bool,
    /// A sync of the file has failed: a dump does not go there.
    pub(super) suspect: bool,
    /// Commits not written yet.
    pub(super) buffer: Vec<u8>,
    pub(super) newest: Version,
    /// The newest version that is in a file, and the newest that is durable there; 0 when
    /// something older is missing.
    pub(super) logged: Version,
    pub(super) durable: Version,
    pub(super) unsynced: bool,
    /// Number of files when it was opened.
    pub(super) files: usize,
    /// Bytes since the last dump, and of that dump.
    pub(super) since_dump: u64,
    pub(super) dump: u64,
    /// Commits are missing in the log: only a dump makes it complete again.
    pub(super) incomplete: bool,
    /// The log itself records that.
    pub(super) admitted: bool,
    /// A dump is running for that reason.
    pub(super) mending: bool,
    pub(super) encoder: Encoder,
}

impl std::fmt::Debug for LogState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LogState")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl LogState {
    /// Notes that commits are missing in the log.
    pub(super) fn lose(&mut self) {
        self.incomplete = true;
        self.admitted = false;
        self.durable = 0;
    }
}

impl CatalogLog {
    pub(super) fn new(
        backing: Arc<dyn Backing>,
        store_id: [u8; 16],
        number: u64,
        version: Version,
    ) -> Self {
        let state = LogState {
            number,
            file: None,
            end: 0,
            begun: false,
            suspect: false,
            buffer: Vec::new(),
            newest: version,
            logged: version,
            durable: version,
            unsynced: false,
            files: 0,
            since_dump: 0,
            dump: 0,
            incomplete: false,
            admitted: false,
            mending: false,
            encoder: Encoder::new(),
        };
        Self {
            backing,
            store_id,
            state: Mutex::new(state),
            syncing: Mutex::default(),
            stop: AtomicBool::new(false),
        }
    }

    /// Records in the log that commits are missing, if they are.
    pub(super) fn admit(&self, state: &mut LogState) -> Result<(), Error> {
        if state.incomplete && !state.admitted {
            self.write(state, LACKING, &[])?;
            state.admitted = true;
        }
        Ok(())
    }

    /// Takes a commit; called by the engine in the order of versions.
    pub(super) fn record(&self, commit: &Commit) {
        let mut state = self.state.lock();
        push(&mut state.buffer, commit);
        state.newest = commit.version;
        if state.buffer.len() > BUFFER_MAX
            && let Err(e) = self.flush(&mut state)
        {
            tracing::warn!(
                "{}: cannot append commits: {e}; the catalog is incomplete until the next dump, \
                 which starts by itself. Check the device of the store",
                self.backing.root().join(dir()).display()
            );
            state.buffer.clear();
            state.lose();
        }
    }

    pub(super) fn flush(&self, state: &mut LogState) -> Result<(), Error> {
        if state.buffer.is_empty() {
            return Ok(());
        }
        self.admit(state)?;
        let buffer = std::mem::take(&mut state.buffer);
        let written = self.write(state, COMMITS, &buffer);
        if written.is_err() {
            state.buffer = buffer;
        } else {
            state.logged = state.newest;
        }
        written
    }

    /// Continues an existing file after its last good frame. Truncates the remains of a crash,
    /// which would seem to belong to the next frames.
    pub(super) fn go_on(&self, state: &mut LogState, number: u64, end: u64) {
        let opened = self.backing.open(&path(number), Access::Write);
        let cut = opened.and_then(|file| {
            if file.len()? > end {
                file.set_len(end)?;
            }
            Ok(file)
        });
        // If that fails, a new file is begun.
        if let Ok(file) = cut {
            (state.number, state.file, state.end) = (number, Some(file), end);
        }
    }

    /// Appends a frame; the first one of a section names its store and file.
    pub(super) fn write(&self, state: &mut LogState, holds: u64, raw: &[u8]) -> Result<(), Error> {
        if state.file.is_none() {
            let path = path(state.number);
            let file = self
                .backing
                .open(&path, Access::CreateNew)
                .map_err(Error::io("create", &path))?;
            if let Err(e) = self.backing.sync_dir(&dir()) {
                // The next attempt needs an unused name.
                state.number += 1;
                return Err(Error::io("sync", dir())(e));
            }
            state.file = Some(file);
            (state.end, state.begun, state.suspect) = (0, false, false);
        }
        if !state.begun {
            let identity = read::encode_identity(self.store_id, state.number);
            let durable = state.durable;
            self.append(state, IDENTITY, durable, &identity)?;
            state.begun = true;
        }
        let newest = state.newest;
        self.append(state, holds, newest, raw)
    }

    fn append(
        &self,
        state: &mut LogState,
        holds: u64,
        sequence: Version,
        raw: &[u8],
    ) -> Result<(), Error> {
        let Some(file) = state.file.clone() else {
            return Ok(());
        };
        let meta = FrameMeta {
            kind: FrameKind::Catalog,
            inode: 0,
            offset: holds,
            sequence,
        };
        let mut frame = Vec::new();
        state
            .encoder
            .encode(&meta, &Hint::Unknown, Effort::Zstd(1), raw, &mut frame)?;
        file.write_all_at(&frame, state.end)
            .map_err(Error::io("append to", path(state.number)))?;
        state.end += frame.len() as u64;
        state.since_dump += frame.len() as u64;
        state.unsynced = true;
        Ok(())
    }

    pub(super) fn sync(&self) -> Result<(), Error> {
        let _alone = self.syncing.lock();
        let (file, logged) = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.unsynced) {
                return Ok(());
            }
            (state.file.clone(), state.logged)
        };
        let synced = file.map_or(Ok(()), |file| file.sync_data());
        let mut state = self.state.lock();
        if let Err(e) = synced {
            state.lose();
            state.suspect = true;
            return Err(Error::io("sync", path(state.number))(e));
        }
        if !state.incomplete {
            state.durable = logged;
        }
        Ok(())
    }
}

pub(super) fn push(out: &mut Vec<u8>, commit: &Commit) {
    let bytes = encode_commit(commit);
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&bytes);
}
