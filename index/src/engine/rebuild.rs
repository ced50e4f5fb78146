//! Makes a view from the newest good snapshot and the journal after it.

use std::collections::BTreeSet;

use shale_backing::Backing;

use super::files;
use super::journal::reader::{Chain, Replay, replay};
use super::memtable::Memtable;
use super::options::Limits;
use super::shared::track_lease;
use super::snapshot::{self, Summary};
use super::view::disk::{Disk, dir_of};
use super::view::memory::Memory;
use super::view::{Fault, View};
use crate::Error;
use crate::kv::Version;

/// Changes are merged into the view in portions of this many bytes.
const PORTION: usize = 4 << 20;

/// A new view and what it was made of.
#[derive(Debug)]
pub(crate) struct Built {
    pub(crate) view: View,
    /// The commit that it is complete up to.
    pub(crate) version: Version,
    pub(crate) leased: BTreeSet<Vec<u8>>,
    pub(crate) snapshot: Option<Summary>,
    pub(crate) replay: Replay,
}

/// Why no view could be made.
enum Failed {
    /// The place for it is at fault.
    View(Fault),
    /// What it should be made of is at fault.
    Source(Error),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Source(error)
    }
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self::View(fault)
    }
}

/// Makes a view of everything up to `target` (the end of the journal if none is given).
///
/// On disk if wanted and possible, else in memory. `durable` is a version known to be durable.
pub(crate) fn build(
    backing: &dyn Backing,
    limits: &Limits,
    target: Option<Version>,
    durable: Version,
    disk: bool,
) -> Result<Built, Error> {
    let chain = Chain::load(backing)?;
    if disk {
        let created = Disk::create(backing.anchor(), limits.sled).map_err(Failed::View);
        let mut dir = None;
        let built = created.and_then(|disk| {
            dir = Some(dir_of(disk.id()));
            fill(backing, &chain, target, durable, View::Disk(disk))
        });
        let built = built.and_then(|built| match &built.view {
            View::Disk(disk) => Ok(disk.complete(built.version).map(|()| built)?),
            View::Memory(_) => Ok(built),
        });
        match built {
            Ok(built) => return Ok(built),
            Err(Failed::Source(error)) => {
                if let Some(dir) = dir {
                    let _ = backing.remove_dir_all(&dir);
                }
                return Err(error);
            }
            Err(Failed::View(fault)) => {
                if let Some(dir) = dir {
                    let _ = backing.remove_dir_all(&dir);
                }
                tracing::warn!(
                    reason = %fault.0,
                    "no sled view can be made: the whole index is kept in memory until the next \
                     mount. Free space on the device of the store"
                );
            }
        }
    }
    let memory = View::Memory(Memory::default());
    fill(backing, &chain, target, durable, memory).map_err(|failed| match failed {
        Failed::Source(error) => error,
        Failed::View(fault) => Error::Corrupt {
            what: "view in memory".into(),
            detail: fault.0,
        },
    })
}

fn fill(
    backing: &dyn Backing,
    chain: &Chain,
    target: Option<Version>,
    durable: Version,
    view: View,
) -> Result<Built, Failed> {
    let mut leased = BTreeSet::new();
    let mut failed = None;
    let mut loaded = None;
    for version in files::list_numbered(backing, snapshot::PREFIX)?
        .into_iter()
        .rev()
    {
        match load(backing, version, &view, &mut leased) {
            Ok(summary) => {
                loaded = Some(summary);
                break;
            }
            Err(Failed::View(fault)) => return Err(fault.into()),
            Err(Failed::Source(error)) => {
                tracing::warn!(
                    %error,
                    "a snapshot of the index is damaged; trying an older one and the journal"
                );
                // What was loaded of it is older than what the journal says: harmless, as long
                // as the journal or an older snapshot goes back far enough.
                failed.get_or_insert(error);
            }
        }
    }
    let base = loaded.map_or(0, |summary| summary.version);
    let durable = durable.max(loaded.map_or(0, |summary| summary.finished));
    if let (None, Some(error)) = (&loaded, failed)
        && chain.links.first().is_none_or(|link| link.first > 1)
    {
        return Err(Failed::Source(error));
    }
    let mut portion = Memtable::default();
    let mut trouble = None;
    let replayed = replay(backing, chain, base, durable, &mut |commit| {
        if target.is_some_and(|target| commit.version > target) || trouble.is_some() {
            return Ok(());
        }
        for change in &commit.changes {
            portion.apply(commit.version, change);
            track_lease(&mut leased, change);
        }
        if portion.bytes() > PORTION {
            trouble = view.merge(std::mem::take(&mut portion).iter()).err();
        }
        Ok(())
    })?;
    if let Some(fault) = trouble {
        return Err(fault.into());
    }
    view.merge(portion.iter())?;
    let version = target.unwrap_or(replayed.last);
    Ok(Built {
        view,
        version,
        leased,
        snapshot: loaded,
        replay: replayed,
    })
}

fn load(
    backing: &dyn Backing,
    version: Version,
    view: &View,
    leased: &mut BTreeSet<Vec<u8>>,
) -> Result<Summary, Failed> {
    let mut portion = Memtable::default();
    let mut trouble = None;
    let summary = snapshot::load(backing, version, &mut |key, slot| {
        if slot.leased {
            leased.insert(key.to_vec());
        }
        portion.insert(key, slot);
        if portion.bytes() > PORTION && trouble.is_none() {
            trouble = view.merge(std::mem::take(&mut portion).iter()).err();
        }
        Ok(())
    })?;
    if let Some(fault) = trouble {
        return Err(fault.into());
    }
    view.merge(portion.iter())?;
    Ok(summary)
}
