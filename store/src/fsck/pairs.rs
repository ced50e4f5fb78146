//! The records of an index that is being rebuilt.

use std::collections::BTreeMap;
use std::sync::Arc;

use shale_backing::Backing;
use shale_index::kv::Versioned;

use super::tally::Tally;
use crate::Error;
use crate::disk::Superblock;
use crate::frame::Frames;
use crate::pack::Packs;

/// Decoded frames kept while rebuilding.
const CACHE: u64 = 16 << 20;

/// Keys and values of an index.
pub(super) type Pairs = BTreeMap<Vec<u8>, Versioned>;

/// Puts a record that is as new as `version`.
pub(super) fn put(pairs: &mut Pairs, version: u64, key: Vec<u8>, value: Vec<u8>) {
    pairs.insert(
        key,
        Versioned {
            value: value.into(),
            version,
            created: version,
        },
    );
}

/// The contents of the records.
pub(super) fn tally(pairs: &Pairs) -> Tally {
    let mut tally = Tally::default();
    for (key, value) in pairs {
        tally.take(key, &value.value, value.version);
    }
    tally
}

/// The frames that the records refer to.
pub(super) fn frames(backing: &Arc<dyn Backing>, superblock: &Superblock) -> Result<Frames, Error> {
    let packs = Packs::open_to_read(Arc::clone(backing), superblock.id)?;
    Ok(Frames::new(packs, CACHE))
}
