//! Dumps: the whole index, written into the log at once.

use std::sync::atomic::Ordering;

use shale_index::kv::{Change, Commit, Kv};

use super::log::{CatalogLog, push};
use super::{DUMP, DUMP_END, FILES, LogFile, list, path};
use crate::Error;

/// Raw bytes of a frame, roughly.
const FRAME_BYTES: usize = 1 << 20;

impl CatalogLog {
    /// Writes the whole index into a new file and deletes the older ones. If there are older files,
    /// an earlier dump was given up: then the last file is the new one.
    pub(super) fn dump(&self, engine: &dyn Kv) -> Result<(), Error> {
        let files = list(&*self.backing)?.len();
        let (number, before, whole, old) = {
            let mut state = self.state.lock();
            // Commits that cannot be written to the old file are in the dump anyway, but until it
            // is complete, the log must not count as complete.
            if self.flush(&mut state).is_err() {
                state.buffer.clear();
                state.lose();
            }
            let mut old = None;
            if state.file.is_none() || state.suspect || files < FILES {
                state.number += 1;
                old = state.file.take();
            }
            state.begun = false;
            state.admitted = false;
            self.admit(&mut state)?;
            let whole = !std::mem::take(&mut state.incomplete);
            state.mending = !whole;
            let before = std::mem::take(&mut state.since_dump);
            (state.number, before, whole, old)
        };
        if let Some(Err(_)) = old.map(|old| old.sync_data()) {
            self.state.lock().lose();
        }
        let dumped = self.dump_pairs(engine);
        let mut state = self.state.lock();
        let ended = dumped.and_then(|()| self.write(&mut state, DUMP_END, &[]));
        state.mending = false;
        if let Err(e) = ended {
            // The old files are still there; the next dump is due as soon as this one was.
            state.since_dump += before;
            state.incomplete |= !whole;
            return Err(e);
        }
        state.dump = std::mem::take(&mut state.since_dump);
        // The next session merges files that cannot be deleted now; this one does not.
        state.files = 1;
        drop(state);
        self.sync()?;
        for LogFile { number: old, .. } in list(&*self.backing)?
            .into_iter()
            .filter(|file| file.number < number)
        {
            self.backing
                .remove_file(&path(old))
                .map_err(Error::io("delete", path(old)))?;
        }
        Ok(())
    }

    fn dump_pairs(&self, engine: &dyn Kv) -> Result<(), Error> {
        let mut raw = Vec::new();
        let mut failed = None;
        engine
            .dump(&mut |key, value| {
                if self.stop.load(Ordering::SeqCst) {
                    return Err(shale_index::Error::Closed(
                        "the store is being closed".to_owned(),
                    ));
                }
                let change = Change {
                    key: key.to_vec(),
                    value: Some(value.clone()),
                    leased: false,
                };
                push(
                    &mut raw,
                    &Commit {
                        version: value.version,
                        changes: vec![change],
                    },
                );
                if raw.len() >= FRAME_BYTES {
                    if let Err(e) = self.write(&mut self.state.lock(), DUMP, &raw) {
                        failed = Some(e);
                        return Err(shale_index::Error::Closed("a write failed".to_owned()));
                    }
                    raw.clear();
                }
                Ok(())
            })
            .map_err(|e| failed.take().unwrap_or(Error::Index(e)))?;
        self.write(&mut self.state.lock(), DUMP, &raw)
    }
}
