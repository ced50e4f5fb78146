//! Opening an index: examines its files, repairs them, and reports what was done.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;

use shale_backing::{Access, Backing};

use super::base::Base;
use super::base::sled::{SledBase, dir_of};
use super::cache::ValueCache;
use super::checkpoint::Checkpoint;
use super::commit::{Committer, Shared};
use super::journal::reader::{Replay, SegmentChain, replay};
use super::journal::writer::JournalWriter;
use super::maintain::Maintenance;
use super::memtable::{Memtable, Slot, track_lease};
use super::options::{Limits, Options, Recovery};
use super::paths::{self, io_error};
use super::rebuild::{self, RebuiltBase};
use super::snapshot::{self, SnapshotSummary};
use super::tables::Tables;
use crate::Error;
use crate::kv::Version;

/// The state found.
struct State {
    base: Base,
    active: Memtable,
    leased: BTreeSet<Vec<u8>>,
    checkpoint: Checkpoint,
    snapshot: Option<SnapshotSummary>,
    replay: Replay,
    rebuilt: Option<String>,
}

/// Opens an index.
pub(crate) fn open(
    backing: Arc<dyn Backing>,
    options: &Options,
) -> Result<(Shared, Recovery), Error> {
    let limits = options.limits();
    if !options.read_only {
        prepare(&*backing)?;
    }
    let chain = SegmentChain::load(&*backing)?;
    let mut state = if options.read_only {
        read_all(&*backing, &limits)?
    } else {
        sync_journal(&*backing, &chain)?;
        load(&*backing, &limits, &chain)?
    };
    let last = state.replay.last;
    let mut recovery = Recovery {
        version: last,
        records: state.replay.records,
        torn_bytes: state.replay.torn,
        rebuilt: state.rebuilt,
        damaged_history: state.replay.damaged_history.clone(),
        leases_ended: 0,
        closed: state.replay.closed && state.replay.torn == 0,
        recent: std::mem::take(&mut state.replay.recent),
    };
    if recovery.torn_bytes > 0 {
        tracing::warn!(
            bytes = recovery.torn_bytes,
            version = last,
            "the index journal ended in an unfinished write, which was dropped: changes that were \
             not synced before the crash are gone"
        );
    }
    if let Some(damage) = &recovery.damaged_history {
        tracing::warn!(
            %damage,
            "an old part of the index journal is damaged; nothing is lost, a new snapshot \
             replaces it. Check the device of the store"
        );
    }
    let writer = if options.read_only {
        JournalWriter::read_only(Arc::clone(&backing), limits.journal, last)
    } else {
        for path in &chain.dead {
            paths::remove(&*backing, path)?;
        }
        JournalWriter::new(Arc::clone(&backing), limits.journal, &chain, &state.replay)?
    };
    let overdue = recovery.damaged_history.is_some() || chain.links.len() > limits.segments;
    let maintenance = Maintenance {
        checkpoint: state.checkpoint,
        snapshot: state.snapshot,
        frozen: None,
        overdue: overdue && !options.read_only,
        rebuilds: 0,
        not_before: None,
    };
    let tables = Tables {
        active: state.active,
        frozen: None,
        cache: ValueCache::new(limits.values),
        base: Arc::new(state.base),
        generation: 0,
        version: last,
    };
    let committer = Committer {
        writer,
        leased: state.leased,
        follower: None,
        closed: false,
    };
    let covered = state.snapshot.map_or(0, |snapshot| snapshot.version);
    let shared = Shared::new(backing, options, maintenance, committer, tables);
    let journaled = chain.links[chain.obsolete(covered)..]
        .iter()
        .map(|link| link.bytes)
        .sum();
    shared
        .journaled
        .store(journaled, std::sync::atomic::Ordering::Relaxed);
    if let Some(snapshot) = state.snapshot {
        let at = limits.snapshot.max(2 * snapshot.raw);
        shared
            .snapshot_at
            .store(at, std::sync::atomic::Ordering::Relaxed);
    }
    shared.known_durable(last);
    if !options.read_only {
        let mut committer = shared.committer.lock();
        recovery.leases_ended = shared.end_lease(&mut committer)?;
    }
    Ok((shared, recovery))
}

/// Ensures that the directory exists and removes unfinished files.
fn prepare(backing: &dyn Backing) -> Result<(), Error> {
    let (dir, root) = (Path::new(paths::DIR), Path::new("."));
    backing
        .create_dir_all(dir)
        .map_err(io_error("create", dir))?;
    backing.sync_dir(root).map_err(io_error("sync", root))?;
    for name in ["checkpoint.new", "snapshot-new"] {
        paths::remove(backing, &paths::path(name))?;
    }
    Ok(())
}

/// Makes durable what a killed process left in the page cache, before anything builds on it.
fn sync_journal(backing: &dyn Backing, chain: &SegmentChain) -> Result<(), Error> {
    for link in &chain.links {
        let path = link.path();
        let file = backing
            .open(&path, Access::Write)
            .map_err(io_error("open", &path))?;
        file.sync_data().map_err(io_error("sync", &path))?;
    }
    let dir = Path::new(paths::DIR);
    backing.sync_dir(dir).map_err(io_error("sync", dir))
}

/// The whole index in memory; no file is touched.
fn read_all(backing: &dyn Backing, limits: &Limits) -> Result<State, Error> {
    let durable = Checkpoint::load(backing)?.map_or(0, |checkpoint| checkpoint.version);
    let RebuiltBase {
        base,
        leased,
        snapshot,
        replay,
        ..
    } = rebuild::build(backing, limits, None, durable, false)?;
    let gone = Slot {
        version: Version::MAX,
        created: 0,
        value: None,
        leased: false,
    };
    // Their holder is gone, or is another process: a reader must not see them.
    let _ = base.merge(leased.iter().map(|key| (key.as_slice(), &gone)));
    let (active, checkpoint) = (Memtable::default(), Checkpoint::default());
    let leased = BTreeSet::new();
    Ok(State {
        base,
        active,
        leased,
        checkpoint,
        snapshot,
        replay,
        rebuilt: None,
    })
}

fn load(backing: &dyn Backing, limits: &Limits, chain: &SegmentChain) -> Result<State, Error> {
    let found = Checkpoint::load(backing)?;
    let snapshots = paths::list_numbered(backing, snapshot::PREFIX)?;
    let newest = snapshots.last().copied().unwrap_or(0);
    let begins = chain.links.first().map_or(Version::MAX, |link| link.first);
    let (durable, base) = match found {
        // Commits after it are only in the snapshot: an old copy was put back.
        Ok(checkpoint) if newest > checkpoint.version && begins > checkpoint.version + 1 => (
            newest,
            Err("the checkpoint is older than the journal".to_owned()),
        ),
        Ok(checkpoint) => {
            let Checkpoint { version, base, .. } = checkpoint;
            let opened = SledBase::open(backing.anchor(), base, version, limits.sled);
            (
                version,
                opened
                    .map(|disk| (disk, checkpoint))
                    .map_err(|fault| fault.0),
            )
        }
        Err(reason) => (0, Err(reason)),
    };
    let state = match base {
        Ok((disk, checkpoint)) => {
            let snapshot = snapshots.last().copied();
            catch_up(backing, chain, disk, checkpoint, snapshot)?
        }
        Err(reason) => {
            let fresh = chain.links.is_empty() && snapshots.is_empty() && durable == 0;
            if !fresh {
                tracing::warn!(
                    %reason,
                    "sled's copy of the index cannot be used: rebuilding it from snapshot and \
                     journal. No data is lost"
                );
            }
            remove_bases(backing, None)?;
            let built = rebuild::build(backing, limits, None, durable, true)?;
            let mut state = State {
                checkpoint: Checkpoint {
                    version: built.version,
                    base: 0,
                    leased: built.leased.clone(),
                },
                base: built.base,
                active: Memtable::default(),
                leased: built.leased,
                snapshot: built.snapshot,
                replay: built.replay,
                rebuilt: (!fresh).then_some(reason),
            };
            if let Base::Sled(disk) = &state.base {
                state.checkpoint.base = disk.id();
                state.checkpoint.store(backing)?;
            }
            state
        }
    };
    remove_bases(backing, Some(state.checkpoint.base))?;
    Ok(state)
}

/// Puts the commits after the checkpoint above a good base.
fn catch_up(
    backing: &dyn Backing,
    chain: &SegmentChain,
    disk: SledBase,
    checkpoint: Checkpoint,
    snapshot: Option<Version>,
) -> Result<State, Error> {
    let after = checkpoint.version;
    if chain.links.is_empty() && snapshot.unwrap_or(0) < after {
        return Err(Error::Corrupt {
            what: "the index journal".into(),
            detail: format!("no segment is left, although commit {after} was acknowledged"),
        });
    }
    let mut active = Memtable::default();
    let mut leased = checkpoint.leased.clone();
    let replay = replay(
        backing,
        chain,
        after,
        snapshot.unwrap_or(0),
        &mut |commit| {
            for change in &commit.changes {
                active.apply(commit.version, change);
                track_lease(&mut leased, change);
            }
            Ok(())
        },
    )?;
    let snapshot = snapshot
        .map(|version| snapshot::peek(backing, version))
        .transpose()?;
    let base = Base::Sled(disk);
    Ok(State {
        base,
        active,
        leased,
        checkpoint,
        snapshot,
        replay,
        rebuilt: None,
    })
}

/// Removes all bases but one.
fn remove_bases(backing: &dyn Backing, keep: Option<u64>) -> Result<(), Error> {
    let dir = Path::new(paths::SLED_DIR);
    let entries = match backing.list(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error("list", dir)(e)),
    };
    for entry in entries {
        let path = dir.join(&entry.name);
        if keep.is_some_and(|id| path == dir_of(id)) {
            continue;
        }
        let removed = if entry.is_dir {
            backing.remove_dir_all(&path)
        } else {
            backing.remove_file(&path)
        };
        removed.map_err(io_error("remove", &path))?;
    }
    Ok(())
}
