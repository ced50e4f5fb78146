//! The volume, shared by every room above the map: device, index, frames, free space and memory.
//!
//! A volume owns no thread and knows no file in use.

use std::sync::Arc;

use shale_backing::Backing;
use shale_codec::Effort;
use shale_index::engine::{EmbeddedHome, IndexHome, Recovery};
use shale_index::extent::SealedPack;
use shale_index::{Kv, Namespace};

use crate::Error;
use crate::disk::{Format, PresenceMonitor, SpaceGuard, Superblock, margin};
use crate::frame::Frames;
use crate::memory::WriteLimiter;
use crate::pack::{PackBytes, Packs, seal_bytes};
use crate::primitives::atomic::{AtomicBool, Ordering};
use crate::stats::Counters;

/// Space that a store keeps free on a device of `total` bytes, so that it can delete and collect:
/// room for the index and for the copy of a pack.
#[must_use]
pub fn reserve(total: u64) -> u64 {
    margin(total) + seal_bytes(total)
}

/// The parts of a volume.
pub(crate) struct VolumeParts {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) namespace: Namespace,
    pub(crate) superblock: Superblock,
    /// Packs and their lengths.
    pub(crate) on_disk: Vec<PackBytes>,
    /// The last session that the index has seen, before this one.
    pub(crate) known: u64,
}

/// How a volume is used.
pub(crate) struct VolumeOptions {
    /// Bytes for unwritten data and caches.
    pub(crate) memory: u64,
    pub(crate) effort: Effort,
    pub(crate) read_only: bool,
}

#[derive(Debug)]
pub(crate) struct Volume {
    pub(crate) backing: Arc<dyn Backing>,
    pub(crate) namespace: Namespace,
    pub(crate) frames: Frames,
    pub(crate) limiter: WriteLimiter,
    pub(crate) space: SpaceGuard,
    pub(crate) presence: PresenceMonitor,
    pub(crate) stats: Arc<Counters>,
    /// How chunks are encoded unless their file says otherwise.
    pub(crate) effort: Effort,
    /// Nothing may be changed.
    pub(crate) read_only: bool,
    /// Version of the index when it was opened.
    pub(crate) first_version: u64,
    poisoned: AtomicBool,
}

impl Volume {
    pub(crate) fn open(parts: VolumeParts, options: &VolumeOptions) -> Result<Self, Error> {
        let VolumeParts {
            backing,
            namespace,
            superblock,
            on_disk,
            known,
        } = parts;
        let stats: Arc<Counters> = Arc::default();
        let sessions = if namespace.is_shared() {
            namespace.live_sessions()?
        } else {
            Vec::new()
        };
        // Packs of other sessions that have not ended are their business.
        let live = namespace.packs()?.into_iter();
        let live = live.filter(|live| !sessions.contains(&live.pack.session()));
        let live = live.map(|live| (live.pack, live.bytes)).collect();
        let packs = Packs::open(
            Arc::clone(&backing),
            superblock.id,
            namespace.session(),
            live,
            Arc::clone(&stats),
        )?;
        for &PackBytes { pack: id, .. } in &on_disk {
            if sessions.contains(&id.session()) {
                // Its session is filling it.
            } else if id.session() <= known {
                // Frames that no commit has reached before their session ended.
                packs.condemn(id);
            } else {
                tracing::warn!(
                    "{} is newer than the index and is left alone; run `shale fsck` on the store",
                    id.path().display()
                );
            }
        }
        let sealed = namespace.sealed_packs()?.into_iter();
        let sealed = sealed.map(|SealedPack { pack, .. }| pack);
        for id in sealed.chain(namespace.condemned_packs()?) {
            if on_disk.binary_search_by_key(&id, |on| on.pack).is_err() {
                // Deleted just before its session died: to be forgotten like others.
                packs.condemn(id);
            }
        }
        packs.note_version(namespace.sequence_floor()?, namespace.session());
        let total = backing
            .space()
            .map_err(Error::io("query the space of", "."))?
            .total;
        let first_version = namespace.kv().version();
        let volume = Self {
            namespace,
            space: SpaceGuard::new(&backing, total, packs.seal_bytes()),
            frames: Frames::new(packs, options.memory / 4),
            limiter: WriteLimiter::new(options.memory / 2),
            presence: PresenceMonitor::new(&*backing),
            stats,
            effort: options.effort,
            read_only: options.read_only,
            first_version,
            poisoned: AtomicBool::new(false),
            backing,
        };
        // Before the first writer or reader, which would have to wait for it.
        volume.frames.pool.fill(&volume.limiter);
        Ok(volume)
    }

    /// Refuses work after an internal error.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.poisoned.load(Ordering::SeqCst) {
            Err(Error::Poisoned)
        } else {
            Ok(())
        }
    }

    /// Refuses changes, also after an internal error.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.read_only {
            return Err(Error::ReadOnly);
        }
        self.check_there()?;
        self.check()
    }

    /// Refuses work that can no longer become durable.
    pub(crate) fn check_there(&self) -> Result<(), Error> {
        if self.is_removed() {
            return Err(self.removed());
        }
        Ok(())
    }

    fn removed(&self) -> Error {
        Error::Removed {
            path: self.backing.root().to_owned(),
        }
    }

    /// Whether the store is known to be removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.presence.is_removed()
    }

    /// Makes every later operation fail, and writers that wait for memory.
    pub(crate) fn poison(&self, why: &str) {
        tracing::error!("{why}; all operations fail with EIO from now on: unmount and mount again");
        self.poisoned.store(true, Ordering::SeqCst);
        self.limiter.stall(Arc::new(Error::Poisoned));
    }

    /// Checks whether the store was removed, and returns whether that is new. Data that was read or
    /// is in memory stays readable; nothing can be changed.
    pub(crate) fn notice_removal(&self) -> bool {
        if !self.presence.notice_removal(&*self.backing) {
            return false;
        }
        self.namespace.fence("the store has been removed");
        self.space.tell();
        self.limiter.stall(Arc::new(self.removed()));
        true
    }

    /// Makes the index durable.
    pub(crate) fn sync_index(&self) -> Result<(), Error> {
        let kv = self.namespace.kv();
        kv.sync(kv.version())?;
        Ok(())
    }

    /// The text of an error, with the path of the file if it is about one.
    pub(crate) fn explain(&self, error: &Error) -> String {
        match error {
            Error::Damaged { ino, .. } | Error::Lost { ino, .. } | Error::NoFrame { ino, .. } => {
                format!("{}: {error}", self.namespace.path(*ino))
            }
            _ => error.to_string(),
        }
    }
}

/// Where the index of a store is kept.
pub(crate) fn index_home(backing: &Arc<dyn Backing>) -> impl IndexHome {
    EmbeddedHome::new(Arc::clone(backing))
}

/// Reads the whole index of a store into memory.
pub(crate) fn read_index(
    backing: &Arc<dyn Backing>,
) -> Result<(Superblock, Arc<dyn Kv>, Recovery), Error> {
    let superblock = Superblock::require(&**backing)?;
    if superblock.format == Format::Upgrading {
        return Err(Error::NotAStore {
            path: backing.root().to_owned(),
            reason: "its upgrade to format 3 was interrupted; mount it once without --ro to \
                     finish the upgrade"
                .to_owned(),
        });
    }
    let not_usable = |reason: String| Error::NotAStore {
        path: backing.root().to_owned(),
        reason,
    };
    let opened = index_home(backing).open_to_read();
    let (engine, recovery) = opened.map_err(|error| match error {
        shale_index::Error::Corrupt { .. } => not_usable(format!(
            "its index cannot be read without writing: {error}; try a mount without --ro, or \
             rebuild the index from the packs with `shale fsck --rebuild`"
        )),
        other => other.into(),
    })?;
    tracing::info!(?recovery, "index read");
    if engine
        .get(&shale_index::schema::keys::inode(shale_index::ROOT))?
        .is_none()
    {
        return Err(not_usable(
            "it is still empty; mount it once without --ro".to_owned(),
        ));
    }
    Ok((superblock, engine, recovery))
}
