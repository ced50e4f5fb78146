//! Settling: encodes a quiet file again, denser, in tiles where its shape is known, and laid out so
//! that bytes that are read together lie together.
//!
//! A file is settled in windows. For each window, the extents are noted, everything is read,
//! encoded and appended, the packs are synced, and one commit points the file at the new frames and
//! frees the old ones; but only where the extents are still the ones noted. Ranges that changed
//! meanwhile keep their extents, and the frames written for them are garbage that gc frees.
//!
//! The last window of a file, which for most files is the only one, waits in a batch for those of
//! other files: one sync serves all of them.

mod batch;
mod density;
mod encode;
mod lanes;
mod plan;
mod sample;
#[cfg(test)]
mod tests;
mod window;

use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_codec::Effort;
use shale_index::DataCommit;
use shale_index::schema::{CodecTag, Phase};

use crate::Error;
use crate::file::{File, Replacement};
use crate::frame::FrameEncoder;
use crate::pack::SyncRound;
use crate::volume::Volume;
pub use batch::SettleBatch;
pub(crate) use density::DensityChoice;
use encode::Tools;
pub(crate) use encode::{FrameSink, UnitEncoder, UnitSource, UnitTools, some_tiles};
use lanes::Lanes;
pub(crate) use plan::{Arrays, Sizes, Unit, rest};
pub use plan::{Block, Region};
use window::{Pass, Prepared};

/// Smaller files are not settled: the gain would be negligible.
pub(crate) const SETTLE_MIN: u64 = 64 << 10;
/// Largest array, if there is memory for it. Two of them fit into the processor caches, so that a
/// reader finds its decoded data there.
const ARRAY_MAX: u64 = 16 << 20;
/// The same for a file that is not much larger.
const ARRAY_MAX_SHORT: u64 = 8 << 20;
/// A file must shrink below this percentage to be worth settling.
pub(crate) const WORTH_PERCENT: u64 = 97;

/// How a file is settled.
#[derive(Clone, Copy)]
pub struct SettleOptions<'a> {
    /// Workers that encode; each has its own packs.
    pub workers: usize,
    /// Effort of the encoder.
    pub effort: Effort,
    /// Settle even if a trial shows little gain.
    pub force: bool,
    /// Also encode parts that are already in their settled form: they may have been encoded with
    /// another effort.
    pub rewrite: bool,
    /// Called with the number of raw bytes before they are processed; waits as long as other work
    /// should go first. `false` ends the pass.
    pub pace: &'a (dyn Fn(u64) -> bool + Sync),
}

/// The result of settling a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Raw bytes that were encoded again and are in use.
    pub raw: u64,
    /// Stored bytes before.
    pub before: u64,
    /// Stored bytes after.
    pub after: u64,
    /// Raw bytes that were settled in vain, because they were changed meanwhile.
    pub void: u64,
    /// It was not worth settling.
    pub incompressible: bool,
    /// It was ended early.
    pub stopped: bool,
    /// It was written meanwhile, so that not all of it is settled.
    pub changed: bool,
}

/// Settles files.
#[derive(Debug)]
pub(crate) struct Settler {
    volume: Arc<Volume>,
    lanes: Lanes,
}

impl Settler {
    pub(crate) fn new(volume: Arc<Volume>) -> Self {
        Self {
            volume,
            lanes: Lanes::default(),
        }
    }

    /// Settles one file alone. `regions` describe it; wrong ones only cost density.
    pub(crate) fn settle(
        &self,
        file: &Arc<File>,
        regions: &[Region],
        options: &SettleOptions<'_>,
        sizes: &Sizes,
    ) -> Result<Settled, Error> {
        self.volume.check_writable()?;
        let mut tools = Tools::new();
        let prepared = Pass::new(self, file, regions, options, sizes, &mut tools).run()?;
        let round = window::sync(&self.volume, &prepared.last);
        self.end(prepared, &round)
    }

    /// An empty batch.
    pub(crate) fn batch(&self) -> SettleBatch<'_> {
        SettleBatch::new(self)
    }

    /// Changes the chunk size of a file. `false` when some of its data is not stored yet.
    pub(crate) fn set_chunk(&self, file: &Arc<File>, shift: u8) -> Result<bool, Error> {
        self.volume.check_writable()?;
        let locked = file.lock(&self.volume);
        if file.chunk_shift() == shift {
            return Ok(true);
        }
        if !locked.chunks.is_empty() || !locked.ready.is_empty() {
            return Ok(false);
        }
        let commit = DataCommit {
            chunk_shift: Some(shift),
            ..DataCommit::default()
        };
        self.volume.namespace.commit_data(file.ino, &commit)?;
        file.set_chunk_shift(shift);
        Ok(true)
    }

    /// Puts a file that was not worth settling back into the list of files to settle.
    pub(crate) fn loosen(&self, file: &Arc<File>) -> Result<(), Error> {
        self.volume.check_writable()?;
        let _locked = file.lock(&self.volume);
        let inode = self.volume.namespace.inode(file.ino)?;
        if matches!(inode.phase, Phase::Incompressible(_)) {
            let commit = DataCommit {
                phase: Some(Phase::Stored),
                ..DataCommit::default()
            };
            self.volume.namespace.commit_data(file.ino, &commit)?;
        }
        Ok(())
    }

    /// Points a file at its last window, records how far it has settled, and folds its map.
    fn end(&self, prepared: Prepared, round: &SyncRound) -> Result<Settled, Error> {
        let Prepared {
            file,
            generation,
            root,
            effort,
            outcome: before,
            last,
        } = prepared;
        let mut outcome = before;
        let mut locked = file.lock(&self.volume);
        locked.replace_where(&[], |locked| {
            outcome = before;
            let extents = match &last {
                Some(window) => window.unchanged(locked, round, &mut outcome)?,
                None => Vec::new(),
            };
            let phase = if outcome.incompressible {
                Phase::Incompressible(codec_tag(effort))
            } else {
                Phase::Settled
            };
            outcome.changed = generation != Some(locked.write_seq) || !locked.chunks.is_empty();
            // Another session may have written beside the windows. So only a pass that finds the
            // file as it should be, and as it was when the pass began, ends with it settled.
            let same = !locked.is_shared() || root.is_some() && locked.folded_root()? == root;
            let whole = !outcome.stopped && outcome.void == 0 && !outcome.changed && same;
            Ok(Replacement {
                extents,
                phase: whole.then_some(phase),
            })
        })?;
        if last.is_some() {
            reach(Stage::SettleSwitched);
        }
        if outcome.raw > 0 && !locked.is_shared() && !locked.is_folded() {
            locked.fold(&mut FrameEncoder::new(), &[])?;
        }
        Ok(outcome)
    }
}

/// The largest array of a file, given enough memory. A sequential reader waits for all tiles of an
/// array before it gets the second record, so there should be several arrays. A power of two, so
/// that a growing file keeps its arrays most of the time.
pub(crate) fn array_max(size: u64) -> u64 {
    let quarter = 1 << (size / 4).max(1).ilog2();
    quarter.clamp(ARRAY_MAX_SHORT, ARRAY_MAX)
}

/// The codec tag of the coder that was tried. The numbers are part of the format.
#[must_use]
pub fn codec_tag(effort: Effort) -> CodecTag {
    let number = match effort {
        Effort::Dense => 0,
        Effort::None => 1,
        Effort::Lz4 => 2,
        Effort::Zstd(level) => 2 + level.clamp(1, 19) as u8,
        Effort::Fast => 22,
        Effort::Balanced => 23,
    };
    CodecTag::new(number).unwrap_or_default()
}
