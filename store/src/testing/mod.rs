//! What tests under a scheduler need of the inside of a store. Only with the feature `shuttle`.

mod parts;

pub use crate::pack::{ListedFrame, PackWriter, PlacedFrame, listed_frames};
pub use parts::{CommitControl, CommitReason, FrameCache, PackPin, PackPins, WriteLimiter};
pub use shale_backing::primitives::pass_time;

use std::collections::BTreeMap;
use std::sync::Arc;

use shale_backing::Backing;
use shale_index::extent::PackId;
use shale_index::{Kv, Namespace};

use crate::disk::Superblock;
use crate::map::FileMap;
use crate::settle::Sizes;
use crate::{Error, File, Region, SettleOptions, Settled, Store, StoreOptions};

/// Opens a store over any engine. An engine that holds a lock of its own while it calls others, or
/// that has threads, would stop the scheduler.
///
/// # Errors
/// What the device says.
pub fn open(
    backing: Arc<dyn Backing>,
    kv: Arc<dyn Kv>,
    options: &StoreOptions,
) -> Result<Store, Error> {
    let superblock = Superblock {
        id: [7; 16],
        created: 0,
    };
    Store::with_engine(backing, kv, superblock, options, None)
}

/// As [`Store::settle`], but with tiles and frames so small that a few chunks have several.
///
/// # Errors
/// As [`Store::settle`].
pub fn settle(
    store: &Store,
    file: &Arc<File>,
    regions: &[Region],
    options: &SettleOptions<'_>,
) -> Result<Settled, Error> {
    let sizes = Sizes {
        tile: 1024,
        row: 256,
        array: 2048,
        piece: 512,
        gather: 2048,
        ..Sizes::for_chunks(file.chunk_len())
    };
    store.settler.settle(file, regions, options, &sizes)
}

/// Asserts that nothing is left in memory of a store that has been shut down and whose files were
/// closed.
///
/// # Panics
/// Something is left.
pub fn assert_at_rest(store: &Store) {
    let packs = &store.volume.frames.packs;
    assert_eq!(store.volume.limiter.used(), 0, "unwritten bytes stay");
    assert_eq!(store.files.dirty_len(), 0, "a dirty file stays");
    assert_eq!(store.files.len(), 0, "a file stays");
    assert_eq!(store.reader.waiting(), 0, "a frame is still to be decoded");
    for &pack in packs.live().keys() {
        assert!(packs.is_quiet(pack), "a pin on {pack:x} stays");
    }
}

/// Asserts that packs count as live what the files of an index occupy in them.
///
/// # Panics
/// The counts differ.
pub fn assert_usage(store: &Store, kv: &Arc<dyn Kv>, inodes: &[u64]) {
    let namespace = Namespace::read_only(Arc::clone(kv));
    let frames = &store.volume.frames;
    let mut used: BTreeMap<PackId, u64> = BTreeMap::new();
    for &ino in inodes {
        let inode = namespace.inode(ino).expect("it is there");
        let records = namespace.commit_records(ino).expect("they can be read");
        let mut map = FileMap::load(frames, &inode, records).expect("it can be read");
        for (pack, bytes) in map.usage(frames).expect("it can be read") {
            *used.entry(pack).or_default() += bytes as u64;
        }
    }
    used.retain(|_, bytes| *bytes > 0);
    let alive = |counts: &mut dyn Iterator<Item = (PackId, u64)>| -> BTreeMap<PackId, u64> {
        counts.filter(|(_, bytes)| *bytes > 0).collect()
    };
    let counted = namespace.packs().expect("they can be read");
    assert_eq!(alive(&mut counted.into_iter()), used, "as the index counts");
    let live = frames.packs.live();
    assert_eq!(alive(&mut live.into_iter()), used, "as the store counts");
}
