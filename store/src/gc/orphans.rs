//! The committer's work after a durable cycle: purges orphans and deletes dead packs.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use shale_backing::failpoint::{Stage, reach};
use shale_index::Ino;

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

/// Work for the whole store between cycles of the committer.
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
        if self.volume.namespace.is_shared() {
            self.look_after_shared()?;
        }
        // A file or pack that fails does not block the space of the others.
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

    /// What several sessions have to do together: says which orphans are in use here, passes on
    /// totals, and subtracts freed bytes.
    fn look_after_shared(&mut self) -> Result<(), Error> {
        let namespace = &self.volume.namespace;
        for ino in self.files.take_unused_orphans() {
            namespace.end_use(ino)?;
        }
        let (orphans, looked) = namespace.orphans()?;
        if !orphans.is_empty() {
            let sessions = namespace.live_sessions()?;
            let in_use = self.files.take_orphans(&orphans, &sessions);
            namespace.note_uses(&in_use, looked)?;
        }
        namespace.pass_totals_on()?;
        namespace.drain_freed()?;
        let packs = &self.volume.frames.packs;
        let sessions = namespace.live_sessions()?;
        let ended = |pack: PackId| !sessions.contains(&pack.session());
        packs.set_live(&namespace.packs()?, ended);
        Ok(())
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
                    Ok(true) => self.files.note_purged(ino),
                    // The next cycle looks again.
                    Ok(false) | Err(Error::Index(shale_index::Error::Stale)) => {}
                    Err(e) => result = result.and(Err(e)),
                }
            }
        }
        // The rest need not wait for the next tick.
        self.commits.kick_durable();
        result
    }

    /// Frees an orphan; `false` when another session may use it.
    fn purge(&self, ino: Ino) -> Result<bool, Error> {
        let (namespace, frames) = (&self.volume.namespace, &self.volume.frames);
        if namespace.is_shared() && !self.may_purge(ino)? {
            return Ok(false);
        }
        let contents = match namespace.contents(ino) {
            Ok(contents) => contents,
            Err(shale_index::Error::NotFound) => return Ok(true),
            Err(e) => return Err(e.into()),
        };
        let freed = if contents.inode.is_file() {
            match FileMap::counted(frames, &contents) {
                Ok(usage) => usage,
                Err(e @ (Error::Damaged { .. } | Error::PackGone { .. })) => {
                    tracing::warn!(
                        "the space of a deleted file stays occupied; run `shale fsck --repair` on \
                         the unmounted store to free it: {e}"
                    );
                    BTreeMap::new()
                }
                Err(e) => return Err(e),
            }
        } else {
            BTreeMap::new()
        };
        namespace.purge(&contents, &freed)?;
        reach(Stage::OrphanPurged);
        let changes = freed.iter().map(|(&pack, &bytes)| (pack, -bytes)).collect();
        if !namespace.is_shared() {
            frames.packs.account(&changes);
        }
        Ok(true)
    }

    /// Whether every session has looked whether it uses an orphan, and none does.
    fn may_purge(&self, ino: Ino) -> Result<bool, Error> {
        let namespace = &self.volume.namespace;
        let (orphans, _) = namespace.orphans()?;
        let looked = namespace.all_looked()?;
        let orphan = orphans.iter().find(|orphan| orphan.ino == ino);
        Ok(orphan.is_some_and(|orphan| orphan.since <= looked))
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
        let namespace = &self.volume.namespace;
        if namespace.is_shared() && namespace.live_bytes(pack)? != 0 {
            return Ok(());
        }
        let len = packs.len(pack).unwrap_or(0);
        if let Err(e) = namespace.condemn_pack(pack).map_err(Error::from) {
            // A full device needs the space of the pack before it has room for the tombstone.
            if namespace.is_shared() || !e.is_full() {
                return Err(e);
            }
        }
        packs.delete(pack)?;
        reach(Stage::GcDeleted);
        let counters = &self.volume.stats;
        counters.packs_deleted.one();
        counters.bytes_deleted.add(len);
        self.volume.namespace.forget_pack(pack)?;
        Ok(())
    }
}
