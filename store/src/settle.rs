//! Settling: a quiet file is encoded again, denser, in tiles where its shape is known, and laid
//! out so that what is read together lies together.
//!
//! A file is done in windows. For each, the extents are noted, everything is read, encoded and
//! appended, the packs are synced, and one commit points the file at the new frames and frees the
//! old ones; but only where the extents are still the ones noted. Whatever changed meanwhile
//! keeps what it has, and the frames written for it are garbage that the next collection frees.

mod lanes;
pub(crate) mod plan;
mod spots;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::BTreeMap;
use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_codec::Effort;
use shale_index::DataCommit;
use shale_index::extent::{Extent, ExtentMap, Place};
use shale_index::schema::{Phase, Tried};

use crate::file::File;
use crate::frames::FrameEncoder;
use crate::pins::Pin;
use crate::store::Inner;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread;
use crate::{Error, Store};
pub(crate) use lanes::Lanes;
pub(crate) use plan::Sizes;
use plan::{Arrays, Unit};
pub use plan::{Block, Region};
use spots::Spots;
use unit::Settler;
pub(crate) use unit::{each_tile, gathered, some_tiles};

/// Raw bytes of a window, about.
const WINDOW: u64 = 1 << 30;
/// Largest array, when there is memory for it. Two of them fit into the caches of a processor,
/// so that a reader finds there what has been decoded for it.
const ARRAY_MAX: u64 = 16 << 20;
/// The same for a file that is not much larger itself.
const ARRAY_MAX_SHORT: u64 = 8 << 20;
/// The same with little memory.
const ARRAY_MAX_LEAST: u64 = 2 << 20;
/// Raw bytes that are tried before a file is settled.
const TRIAL: u64 = 16 << 20;
/// Tiles of an array that are tried.
const TRIAL_TILES: usize = 4;
/// It must become smaller than this many percent to be worth it.
pub(crate) const WORTH_PERCENT: u64 = 97;

/// How a file is settled.
#[derive(Clone, Copy)]
pub struct SettleOptions<'a> {
    /// Workers that encode; each writes packs of its own.
    pub workers: usize,
    /// How what is settled is encoded.
    pub effort: Effort,
    /// Settle even if a trial says that little is gained.
    pub force: bool,
    /// Encode also what is stored already as it would be: it may have been encoded otherwise.
    pub anew: bool,
    /// Called with the number of raw bytes before they are worked on; waits as long as others
    /// should go first. `false` ends the pass.
    pub pace: &'a (dyn Fn(u64) -> bool + Sync),
}

/// What came of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Raw bytes that were encoded anew and are in use.
    pub raw: u64,
    /// Stored bytes before.
    pub before: u64,
    /// Stored bytes after.
    pub after: u64,
    /// Raw bytes whose settling was void, because they were changed meanwhile.
    pub void: u64,
    /// It was not worth it.
    pub hard: bool,
    /// It was ended before its time.
    pub stopped: bool,
    /// It was written meanwhile, so that not all of it has been settled.
    pub changed: bool,
}

impl Store {
    /// Settles a file. `regions` tell what is known of it; wrong ones cost density, no more.
    ///
    /// # Errors
    /// When the file cannot be read or the device fails. The file is as it was, or partly settled.
    pub fn settle(
        &self,
        file: &Arc<File>,
        regions: &[Region],
        options: &SettleOptions<'_>,
    ) -> Result<Settled, Error> {
        self.inner.check_writable()?;
        let sizes = Sizes::for_chunks(file.chunk_len());
        self.inner.settle(file, regions, options, &sizes)
    }

    /// Gives a file chunks of another size, from now on. `false` when some of it is on its way to
    /// the store at the moment.
    ///
    /// # Errors
    /// When the index fails.
    pub fn set_chunk(&self, file: &Arc<File>, shift: u8) -> Result<bool, Error> {
        let inner = &*self.inner;
        inner.check_writable()?;
        let state = file.state.lock();
        if file.chunk_shift() == shift {
            return Ok(true);
        }
        if !state.chunks.is_empty() || !state.ready.is_empty() {
            return Ok(false);
        }
        let commit = DataCommit {
            chunk_shift: Some(shift),
            ..DataCommit::default()
        };
        inner.namespace.commit_data(file.ino, &commit)?;
        file.set_chunk_shift(shift);
        Ok(true)
    }

    /// Puts a file that was not worth settling among those to be settled again.
    ///
    /// # Errors
    /// When the index fails.
    pub fn loosen(&self, file: &Arc<File>) -> Result<(), Error> {
        self.inner.check_writable()?;
        let _state = file.state.lock();
        let inode = self.inner.namespace.inode(file.ino)?;
        if matches!(inode.phase, Phase::Hard(_)) {
            let commit = DataCommit {
                phase: Some(Phase::Loose),
                ..DataCommit::default()
            };
            self.inner.namespace.commit_data(file.ino, &commit)?;
        }
        Ok(())
    }
}

/// One file on its way through.
struct Pass<'a> {
    file: &'a Arc<File>,
    options: &'a SettleOptions<'a>,
    sizes: &'a Sizes,
    size: u64,
    arrays: Arrays<'a>,
    /// The largest array.
    limit: u64,
    /// Whether it is known that settling is worth it.
    judged: bool,
    outcome: Settled,
}

/// What is stored in a part of a file, and what it is to become.
struct Plan {
    /// Behind `start`, and behind the arrays that begin in front of it.
    end: u64,
    noted: ExtentMap,
    units: Vec<Unit>,
}

impl Inner {
    pub(crate) fn settle(
        &self,
        file: &Arc<File>,
        regions: &[Region],
        options: &SettleOptions<'_>,
        sizes: &Sizes,
    ) -> Result<Settled, Error> {
        let (size, generation) = {
            let state = file.state.lock();
            // What is in memory now will be committed without another write.
            let clean = state.chunks.is_empty() && state.ready.is_empty();
            (state.size, clean.then_some(state.write_seq))
        };
        if options.effort == Effort::None && !options.force {
            // Nothing becomes smaller that way: this is its final form.
            return self.end_settle(file, generation, options.effort, Settled::default());
        }
        let share = self.budget.limit() / 4 / options.workers.max(1) as u64;
        let limit = share.max(ARRAY_MAX_LEAST).min(array_max(size));
        let mut pass = Pass {
            file,
            options,
            sizes,
            size,
            arrays: Arrays::new(regions, size, limit, sizes),
            limit,
            judged: options.force,
            outcome: Settled::default(),
        };
        let mut start = 0;
        // A hole costs nothing, however long it is.
        while let Some(data) = self.next_stored(file, start, size)? {
            // Also where nothing is to be done somebody may want it to end.
            if !(options.pace)(0) {
                pass.outcome.stopped = true;
                break;
            }
            // Where windows are must not depend on where exactly a hole ends, or the parts at
            // their edges would be others each time.
            start = start.max(data / WINDOW * WINDOW);
            start = self.settle_window(&mut pass, start)?;
            if pass.outcome.hard || pass.outcome.stopped {
                break;
            }
        }
        self.end_settle(file, generation, options.effort, pass.outcome)
    }

    /// The first byte at or after `from` that is stored.
    fn next_stored(&self, file: &File, from: u64, size: u64) -> Result<Option<u64>, Error> {
        let mut state = file.state.lock();
        self.load_map(file, &mut state)?;
        match state.map.as_mut() {
            Some(map) => map.next_data(&self.frames, from, size),
            None => Err(Error::Poisoned),
        }
    }

    /// Notes what is stored between two offsets and cuts it.
    fn plan(&self, pass: &Pass<'_>, start: u64, end: u64) -> Result<Plan, Error> {
        let mut arrays = pass.arrays.between(start, end);
        let end = arrays.last().map_or(end, |array| end.max(array.span().1));
        let noted = {
            let mut state = pass.file.state.lock();
            self.extents(pass.file, &mut state, start, end)?
        };
        let noted = ExtentMap::from_extents(noted.into_iter().filter(|e| e.place != Place::Hole));
        arrays.retain(|array| is_covered(&noted, array.span()));
        let taken: Vec<(u64, u64)> = arrays.iter().flat_map(Unit::ranges).collect();
        let extents: Vec<Extent> = noted.iter().copied().collect();
        let mut units = plan::rest(&extents, &taken, pass.sizes);
        units.extend(arrays);
        Ok(Plan { end, noted, units })
    }

    /// Settles the window that begins at `start`; returns its end.
    fn settle_window(&self, pass: &mut Pass<'_>, start: u64) -> Result<u64, Error> {
        let options = pass.options;
        let end = pass.size.min(start.saturating_add(WINDOW));
        let Plan {
            end,
            noted,
            mut units,
        } = self.plan(pass, start, end)?;
        // Who insists on a codec may get more than there was, up to all of it.
        let bytes = if options.force {
            |extent: &Extent| extent.len
        } else {
            Extent::stored
        };
        let needed = noted.iter().map(bytes).sum();
        if self
            .space
            .admit(&*self.backing, needed, self.budget.used())
            .is_err()
        {
            pass.outcome.stopped = true;
            return Ok(end);
        }
        let all = units.len();
        if !options.anew {
            units.retain(|unit| !unit::is_done(unit, &noted, &self.frames, pass.file.ino));
        }
        // A file that was settled before is worth being settled again.
        pass.judged |= units.len() < all;
        if units.is_empty() {
            return Ok(end);
        }
        if !pass.judged && !self.is_worth_it(pass)? {
            pass.outcome.hard = true;
            return Ok(end);
        }
        pass.judged = true;
        let written = self.write_units(pass.file, &noted, &units, options)?;
        pass.outcome.stopped |= written.len() < units.len();
        self.switch(pass.file, &noted, written, &mut pass.outcome)?;
        Ok(end)
    }

    /// Encodes some of a file to see what would be gained: here and there, for the first variable
    /// may be like no other.
    fn is_worth_it(&self, pass: &Pass<'_>) -> Result<bool, Error> {
        let around = 2 * pass.limit.max(pass.sizes.linear);
        let mut noted = ExtentMap::new();
        let mut chosen: BTreeMap<u64, Unit> = BTreeMap::new();
        let mut raw = 0;
        for spot in self.spots(pass.file)? {
            if raw >= TRIAL {
                break;
            }
            let end = pass.size.min(spot.saturating_add(around));
            let plan = self.plan(pass, spot.saturating_sub(around), end)?;
            let holds = |unit: &Unit| {
                let mut ranges = unit.ranges();
                ranges.any(|(start, end)| start <= spot && spot < end)
            };
            let Some(unit) = plan.units.into_iter().find(holds) else {
                continue;
            };
            if unit::is_done(&unit, &plan.noted, &self.frames, pass.file.ino) {
                return Ok(true);
            }
            let (start, end) = unit.span();
            for extent in plan.noted.range(start, end) {
                noted.insert(extent);
            }
            let tried = match unit {
                Unit::Array { .. } => unit.raw().min(TRIAL_TILES as u64 * pass.sizes.tile),
                Unit::Gather(_) => unit.raw(),
            };
            if chosen.insert(start, unit).is_none() {
                raw += tried;
            }
        }
        // By one worker and in order, as it would be done: he learns from one for the next.
        let mut settler = Settler::new(self, pass.file, &noted, pass.options.effort);
        let (mut before, mut after) = (0, 0);
        for unit in chosen.values() {
            before += stored_in(&noted, unit);
            after += settler.try_out(unit, TRIAL_TILES)?;
        }
        Ok(after * 100 < before * WORTH_PERCENT)
    }

    /// Places spread over what is stored of a file.
    fn spots(&self, file: &File) -> Result<Vec<u64>, Error> {
        let mut spots = Spots::new();
        let mut next = Some(0);
        while let Some(start) = next {
            let (extents, behind) = self.extents_from(file, start)?;
            for extent in extents {
                spots.add(extent.offset, extent.len);
            }
            next = behind;
        }
        Ok(spots.into_places())
    }

    /// Encodes and appends units with several workers; fewer are returned when told to stop.
    fn write_units(
        &self,
        file: &Arc<File>,
        noted: &ExtentMap,
        units: &[Unit],
        options: &SettleOptions<'_>,
    ) -> Result<Vec<(Vec<Extent>, Pin)>, Error> {
        let workers = options.workers.max(1);
        let next = AtomicUsize::new(0);
        let work = || {
            let mut settler = Settler::new(self, file, noted, options.effort);
            let mut written = Vec::new();
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !(options.pace)(unit.raw()) {
                    break;
                }
                written.push(settler.write(unit, workers)?);
            }
            Ok::<_, Error>(written)
        };
        if workers == 1 {
            return work();
        }
        thread::scope(|scope| {
            let workers: Vec<_> = (0..workers).map(|_| scope.spawn(work)).collect();
            let mut all = Vec::new();
            for worker in workers {
                all.extend(worker.join().map_err(|_| Error::Poisoned)??);
            }
            Ok(all)
        })
    }

    /// Points the file at what was written, where nothing has changed since it was noted.
    fn switch(
        &self,
        file: &Arc<File>,
        noted: &ExtentMap,
        written: Vec<(Vec<Extent>, Pin)>,
        outcome: &mut Settled,
    ) -> Result<(), Error> {
        let (units, pins): (Vec<_>, Vec<_>) = written.into_iter().unzip();
        reach(Stage::SettleWritten);
        self.frames.packs.make_durable(&pins)?;
        reach(Stage::SettleDurable);
        let mut state = file.state.lock();
        let mut extents = Vec::new();
        for extent in units.iter().flatten() {
            let now = self.extents(file, &mut state, extent.offset, extent.end())?;
            let now = ExtentMap::from_extents(now.into_iter().filter(|e| e.place != Place::Hole));
            let then = noted.range(extent.offset, extent.end());
            if now.iter().copied().eq(then) {
                outcome.raw += extent.len;
                outcome.before += now.iter().map(Extent::stored).sum::<u64>();
                outcome.after += extent.stored();
                extents.push(*extent);
            } else {
                outcome.void += extent.len;
            }
        }
        self.replace(file, &mut state, &extents, None)?;
        reach(Stage::SettleSwitched);
        Ok(())
    }

    /// Folds the map and notes how far the file has settled. `generation` is that of its writes
    /// at the beginning, if all of them were stored then.
    fn end_settle(
        &self,
        file: &Arc<File>,
        generation: Option<u64>,
        effort: Effort,
        mut outcome: Settled,
    ) -> Result<Settled, Error> {
        let mut state = file.state.lock();
        let phase = if outcome.hard {
            Phase::Hard(tried(effort))
        } else {
            Phase::Settled
        };
        outcome.changed = generation != Some(state.write_seq) || !state.chunks.is_empty();
        if !outcome.stopped && outcome.void == 0 && !outcome.changed {
            self.replace(file, &mut state, &[], Some(phase))?;
        }
        if outcome.raw > 0 {
            self.fold(file, &mut state, &mut FrameEncoder::new(), &[])?;
        }
        Ok(outcome)
    }
}

/// The largest array of a file, with memory enough. Whoever reads from front to back waits for all
/// tiles of an array before he gets its second record, so there should be several. A power of two,
/// so that a file that grows keeps its arrays most of the time.
pub(crate) fn array_max(size: u64) -> u64 {
    let quarter = 1 << (size / 4).max(1).ilog2();
    quarter.clamp(ARRAY_MAX_SHORT, ARRAY_MAX)
}

/// How a record notes what was tried. The numbers are part of the format.
#[must_use]
pub fn tried(effort: Effort) -> Tried {
    let number = match effort {
        Effort::Dense => 0,
        Effort::None => 1,
        Effort::Lz4 => 2,
        Effort::Zstd(level) => 2 + level.clamp(1, 19) as u8,
        Effort::Fast => 22,
        Effort::Balanced => 23,
    };
    Tried::new(number).unwrap_or_default()
}

/// Whether all of a range is stored.
fn is_covered(noted: &ExtentMap, (start, end): (u64, u64)) -> bool {
    let mut at = start;
    for extent in noted.range(start, end) {
        if extent.offset != at {
            return false;
        }
        at = extent.end();
    }
    at == end
}

/// Stored bytes of a unit as they are now.
fn stored_in(noted: &ExtentMap, unit: &Unit) -> u64 {
    unit.ranges()
        .flat_map(|(start, end)| noted.range(start, end))
        .map(|extent| extent.stored())
        .sum()
}
