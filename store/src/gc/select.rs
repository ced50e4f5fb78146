//! Selects the pack to rewrite next.

use std::collections::BTreeSet;

use super::LIVE_PERCENT;
use crate::Error;
use crate::pack::PackId;
use crate::volume::Volume;

/// A pack is rewritten when less than this percentage of it is live and the device is nearly full.
const LIVE_PERCENT_FULL: u64 = 90;

/// The sealed pack with the most garbage, among those less than `percent` live and not in
/// `left_out`. By default `percent` is half, or nearly all when the device is nearly full. The live
/// bytes must have room in addition, or copies would fill the device before anything is freed.
pub(super) fn worst_pack(
    volume: &Volume,
    percent: Option<u64>,
    left_out: &BTreeSet<PackId>,
) -> Result<Option<PackId>, Error> {
    let (space, packs) = (&volume.space, &volume.frames.packs);
    let percent = percent.unwrap_or_else(|| {
        if space.is_low(&*volume.backing) {
            LIVE_PERCENT_FULL
        } else {
            LIVE_PERCENT
        }
    });
    let room = space.room(&*volume.backing, volume.limiter.used());
    let mut worst = None;
    let mut too_large = false;
    // single-node: this process counts what is live in all packs.
    for (pack, live) in packs.live() {
        if live == 0 || left_out.contains(&pack) || !packs.is_quiet(pack) {
            continue;
        }
        let Ok(len) = packs.len(pack) else {
            if packs.is_dead(pack) {
                continue;
            }
            // The rewrite gets the error.
            return Ok(Some(pack));
        };
        if live * 100 >= len * percent {
            continue;
        }
        if live > room {
            too_large = true;
        } else {
            worst = worst.max(Some((len - live, pack)));
        }
    }
    match worst {
        Some((_, pack)) => Ok(Some(pack)),
        None if too_large => Err(Error::NoSpace),
        None => Ok(None),
    }
}
