//! What the committer has done after a durable cycle: purges orphans and deletes dead packs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::failpoint::{Stage, reach};

use super::idle::IdleWatch;
use super::worker::GcControl;
use crate::Error;
use crate::catalog::Catalog;
use crate::file::FileTable;
use crate::map::FileMap;
use crate::pack::PackId;
use crate::volume::Volume;
use crate::write::{CommitControl, Upkeep};

/// How long one round may purge orphans.
const PURGE_TIME: Duration = Duration::from_millis(200);

/// What is done for the whole store between cycles of the committer.
pub(crate) struct StoreUpkeep {
    volume: Arc<Volume>,
    files: Arc<FileTable>,
    catalog: Option<Arc<Catalog>>,
    commits: Arc<CommitControl>,
    watch: IdleWatch,
}

impl Upkeep for StoreUpkeep {
    fn after_durable_cycle(&mut self) -> Result<(), Error> {
        if let Some(catalog) = &self.catalog {
            catalog.maintain()?;
        }
        self.volume
            .frames
            .packs
            .note_sealed(&self.volume.namespace)?;
        // A file or pack that fails does not keep the space of the others.
        let purged = self.purge_orphans();
        self.delete_dead_packs().and(purged)
    }

    fn has_become_idle(&mut self) -> bool {
        self.watch.is_due()
    }

    fn rest(&mut self) {
        self.watch.rest();
    }
}

impl StoreUpkeep {
    pub(crate) fn new(
        volume: &Arc<Volume>,
        files: &Arc<FileTable>,
        catalog: Option<&Arc<Catalog>>,
        commits: &Arc<CommitControl>,
        gc: &Arc<GcControl>,
    ) -> Self {
        Self {
            volume: Arc::clone(volume),
            files: Arc::clone(files),
            catalog: catalog.cloned(),
            commits: Arc::clone(commits),
            watch: IdleWatch::new(volume, gc),
        }
    }

    fn purge_orphans(&self) -> Result<(), Error> {
        let begun = Instant::now();
        let mut next = 0;
        let mut result = Ok(());
        while begun.elapsed() < PURGE_TIME {
            let Some(ino) = self.files.released_from(next) else {
                return result;
            };
            next = ino + 1;
            if self.files.discard(ino) {
                match self.purge(ino) {
                    Ok(()) => self.files.note_purged(ino),
                    Err(e) => result = result.and(Err(e)),
                }
            }
        }
        // The rest does not have to wait for the next tick.
        self.commits.kick_durable();
        result
    }

    fn purge(&self, ino: u64) -> Result<(), Error> {
        let (namespace, frames) = (&self.volume.namespace, &self.volume.frames);
        let inode = match namespace.inode(ino) {
            Ok(inode) => inode,
            Err(shale_index::Error::NotFound) => return Ok(()),
            Err(e) => return Err(e.into()),
        };
        let freed = if inode.is_file() {
            let records = namespace.commit_records(ino)?;
            match FileMap::load(frames, &inode, records).and_then(|mut map| map.usage(frames)) {
                Ok(usage) => usage,
                Err(e @ (Error::Damaged { .. } | Error::PackGone { .. })) => {
                    tracing::warn!(
                        "space of a deleted file stays occupied, `shale fsck --repair` on the \
                         unmounted store frees it: {e}"
                    );
                    BTreeMap::new()
                }
                Err(e) => return Err(e),
            }
        } else {
            BTreeMap::new()
        };
        namespace.purge(ino, &freed)?;
        reach(Stage::OrphanPurged);
        let changes = freed.iter().map(|(&pack, &bytes)| (pack, -bytes)).collect();
        frames.packs.account(&changes);
        Ok(())
    }

    /// Deletes packs that nothing durable refers to.
    fn delete_dead_packs(&self) -> Result<(), Error> {
        let dead = self.volume.frames.packs.dead();
        if dead.is_empty() {
            return Ok(());
        }
        self.volume.sync_index()?;
        let mut result = Ok(());
        for pack in dead {
            result = self.delete_dead_pack(pack).and(result);
        }
        result
    }

    fn delete_dead_pack(&self, pack: PackId) -> Result<(), Error> {
        let packs = &self.volume.frames.packs;
        let len = packs.len(pack).unwrap_or(0);
        packs.delete(pack)?;
        reach(Stage::GcDeleted);
        let counters = &self.volume.stats;
        counters.packs_deleted.one();
        counters.bytes_deleted.add(len);
        self.volume.namespace.forget_pack(pack)?;
        Ok(())
    }
}
