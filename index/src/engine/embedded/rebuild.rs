//! Rebuilds the base from the newest good snapshot and the journal after it.

use std::collections::BTreeSet;

use shale_backing::Backing;

use super::base::memory::MemoryBase;
use super::base::sled::{SledBase, dir_of};
use super::base::{Base, BaseFault};
use super::journal::reader::{Replay, SegmentChain, replay};
use super::memtable::{Memtable, track_lease};
use super::options::Limits;
use super::paths;
use super::snapshot::{self, SnapshotSummary};
use crate::Error;
use crate::kv::Version;

/// Changes are merged into the base in portions of this many bytes.
const PORTION: usize = 4 << 20;

/// A new base and its sources.
#[derive(Debug)]
pub(crate) struct RebuiltBase {
    pub(crate) base: Base,
    /// The commit up to which it is complete.
    pub(crate) version: Version,
    pub(crate) leased: BTreeSet<Vec<u8>>,
    pub(crate) snapshot: Option<SnapshotSummary>,
    pub(crate) replay: Replay,
}

/// Why no base could be built.
enum Failed {
    /// The destination is at fault.
    Base(BaseFault),
    /// The source is at fault.
    Source(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Source(error)
    }
}

impl From<BaseFault> for Failed {
    fn from(fault: BaseFault) -> Self {
        Self::Base(fault)
    }
}

/// Builds a base of everything up to `target` (the end of the journal if none is given).
///
/// On disk if wanted and possible, else in memory. `durable` is a version known to be durable.
pub(crate) fn build(
    backing: &dyn Backing,
    limits: &Limits,
    target: Option<Version>,
    durable: Version,
    on_disk: bool,
) -> Result<RebuiltBase, Error> {
    let chain = SegmentChain::load(backing)?;
    if on_disk {
        let created = SledBase::create(backing.anchor(), limits.sled).map_err(Failed::Base);
        let mut dir = None;
        let built = created.and_then(|disk| {
            dir = Some(dir_of(disk.id()));
            fill(backing, &chain, target, durable, Base::Sled(disk))
        });
        let built = built.and_then(|built| match &built.base {
            Base::Sled(disk) => Ok(disk.complete(built.version).map(|()| built)?),
            Base::Memory(_) => Ok(built),
        });
        match built {
            Ok(built) => return Ok(built),
            Err(Failed::Source(error)) => {
                if let Some(dir) = dir {
                    let _ = backing.remove_dir_all(&dir);
                }
                return Err(error);
            }
            Err(Failed::Base(fault)) => {
                if let Some(dir) = dir {
                    let _ = backing.remove_dir_all(&dir);
                }
                tracing::warn!(
                    reason = %fault.0,
                    "cannot create sled's copy of the index: the whole index stays in memory \
                     until the next mount. Free space on the device of the store, then mount again"
                );
            }
        }
    }
    let memory = Base::Memory(MemoryBase::default());
    fill(backing, &chain, target, durable, memory).map_err(|failed| match failed {
        Failed::Source(error) => error,
        Failed::Base(fault) => Error::Corrupt {
            what: "base in memory".into(),
            detail: fault.0,
        },
    })
}

/// Merges changes into a base, a portion at a time.
struct Portions<'a> {
    base: &'a Base,
    changes: Memtable,
    fault: Option<BaseFault>,
}

impl<'a> Portions<'a> {
    fn new(base: &'a Base) -> Self {
        Self {
            base,
            changes: Memtable::default(),
            fault: None,
        }
    }

    fn merge_if_full(&mut self) {
        if self.changes.bytes() > PORTION && self.fault.is_none() {
            let changes = std::mem::take(&mut self.changes);
            self.fault = self.base.merge(changes.iter()).err();
        }
    }

    fn finish(self) -> Result<(), BaseFault> {
        match self.fault {
            Some(fault) => Err(fault),
            None => self.base.merge(self.changes.iter()),
        }
    }
}

fn fill(
    backing: &dyn Backing,
    chain: &SegmentChain,
    target: Option<Version>,
    durable: Version,
    base: Base,
) -> Result<RebuiltBase, Failed> {
    let mut leased = BTreeSet::new();
    let mut failed = None;
    let mut loaded = None;
    for version in paths::list_numbered(backing, snapshot::PREFIX)?
        .into_iter()
        .rev()
    {
        match load(backing, version, &base, &mut leased) {
            Ok(summary) => {
                loaded = Some(summary);
                break;
            }
            Err(Failed::Base(fault)) => return Err(fault.into()),
            Err(Failed::Source(error)) => {
                tracing::warn!(
                    %error,
                    "a snapshot of the index is damaged; trying an older one and the journal. Check \
                     the device of the store"
                );
                // The part that was loaded is older than the journal: harmless, as long as the
                // journal or an older snapshot goes back far enough.
                failed.get_or_insert(error);
            }
        }
    }
    let after = loaded.map_or(0, |summary| summary.version);
    let durable = durable.max(loaded.map_or(0, |summary| summary.finished));
    if let (None, Some(error)) = (&loaded, failed)
        && chain.links.first().is_none_or(|link| link.first > 1)
    {
        return Err(Failed::Source(error));
    }
    let mut portions = Portions::new(&base);
    let replayed = replay(backing, chain, after, durable, &mut |commit| {
        if target.is_some_and(|target| commit.version > target) || portions.fault.is_some() {
            return Ok(());
        }
        for change in &commit.changes {
            portions.changes.apply(commit.version, change);
            track_lease(&mut leased, change);
        }
        portions.merge_if_full();
        Ok(())
    })?;
    portions.finish()?;
    let version = target.unwrap_or(replayed.last);
    Ok(RebuiltBase {
        base,
        version,
        leased,
        snapshot: loaded,
        replay: replayed,
    })
}

fn load(
    backing: &dyn Backing,
    version: Version,
    base: &Base,
    leased: &mut BTreeSet<Vec<u8>>,
) -> Result<SnapshotSummary, Failed> {
    let mut portions = Portions::new(base);
    let summary = snapshot::load(backing, version, &mut |key, slot| {
        if slot.leased {
            leased.insert(key.to_vec());
        }
        portions.changes.insert(key, slot);
        portions.merge_if_full();
        Ok(())
    })?;
    portions.finish()?;
    Ok(summary)
}
