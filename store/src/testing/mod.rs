//! Access to the inside of a store for tests under a scheduler. Only with the feature `shuttle`.

mod parts;

pub use crate::pack::{ListedFrame, PackWriter, PlacedFrame, listed_frames};
pub use parts::{CommitControl, CommitReason, FrameCache, PackPin, PackPins, WriteLimiter};
pub use shale_backing::primitives::pass_time;

use std::collections::BTreeMap;
use std::sync::Arc;

use shale_backing::Backing;
use shale_index::extent::PackId;
use shale_index::{Ino, Kv, Namespace};

use crate::disk::{Format, Superblock};
use crate::frame::FrameEncoder;
use crate::fsck::fsck_index;
use crate::map::FileMap;
use crate::settle::Sizes;
use crate::{Error, File, Region, SettleOptions, Settled, Store, StoreOptions};

const SUPERBLOCK: Superblock = Superblock {
    id: [7; 16],
    created: 0,
    format: Format::Current,
};

/// Opens a store over any engine. An engine that holds its own lock while it calls others, or that
/// has threads, would stop the scheduler.
///
/// # Errors
/// What the device says.
pub fn open(
    backing: Arc<dyn Backing>,
    kv: Arc<dyn Kv>,
    options: &StoreOptions,
) -> Result<Store, Error> {
    Store::with_engine(backing, kv, SUPERBLOCK, options, None)
}

/// Like [`Store::settle`], but with tiles and frames so small that a few chunks have several.
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

/// Asserts that files of an index that several sessions share are sound, and that packs count
/// their bytes once everything is folded and drained.
///
/// # Panics
/// Something is wrong.
pub fn assert_shared(store: &Store, inodes: &[Ino]) {
    let volume = &store.volume;
    for &ino in inodes {
        let file = store.files.open(ino).expect("it is there");
        let mut encoder = FrameEncoder::new();
        let folded = file.lock(volume).fold(&mut encoder, &[]);
        folded.expect("no other session folds it");
    }
    let namespace = &volume.namespace;
    namespace.drain_freed().expect("the index works");
    namespace.pass_totals_on().expect("the index works");
    let report = fsck_index(&volume.backing, &SUPERBLOCK, &**namespace.kv());
    assert_eq!(report.expect("it can be read").problems, []);
}

/// Asserts that the live bytes of packs are those that the files of an index occupy in them.
///
/// # Panics
/// The counts differ.
pub fn assert_usage(store: &Store, kv: &Arc<dyn Kv>, inodes: &[Ino]) {
    let namespace = Namespace::read_only(Arc::clone(kv), false);
    let frames = &store.volume.frames;
    let mut used: BTreeMap<PackId, u64> = BTreeMap::new();
    for &ino in inodes {
        let contents = namespace.contents(ino).expect("it is there");
        let mut map = FileMap::load(frames, &contents).expect("it can be read");
        for (pack, bytes) in map.usage(frames).expect("it can be read") {
            *used.entry(pack).or_default() += bytes as u64;
        }
    }
    used.retain(|_, bytes| *bytes > 0);
    let mut counted: BTreeMap<PackId, u64> = namespace
        .packs()
        .expect("they can be read")
        .into_iter()
        .map(|live| (live.pack, live.bytes))
        .collect();
    counted.retain(|_, bytes| *bytes > 0);
    assert_eq!(counted, used, "as the index counts");
    let mut live = frames.packs.live();
    live.retain(|_, bytes| *bytes > 0);
    assert_eq!(live, used, "as the store counts");
}
