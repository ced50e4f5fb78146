//! Settling: a quiet file is encoded again, denser, in tiles where its shape is known, and laid
//! out so that what is read together lies together.
//!
//! A file is done in windows. For each, the extents are noted, everything is read, encoded and
//! appended, the packs are synced, and one commit points the file at the new frames and frees the
//! old ones; but only where the extents are still the ones noted. Whatever changed meanwhile
//! keeps what it has, and the frames written for it are garbage that the next collection frees.
//!
//! The last window of a file, which for most files is the only one, waits in a batch for those of
//! other files: one sync serves all of them.

mod batch;
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

use crate::file::{File, FileState};
use crate::frames::FrameEncoder;
use crate::map::FileMap;
use crate::pack::SyncRound;
use crate::pins::Pin;
use crate::store::Inner;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::thread;
use crate::{Error, Store};
pub use batch::SettleBatch;
use batch::{Prepared, Window};
pub(crate) use lanes::Lanes;
pub(crate) use plan::Sizes;
use plan::{Arrays, Unit};
pub use plan::{Block, Region};
use spots::Spots;
use unit::{Settler, Tools};
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
/// Files that have no more raw bytes to be encoded are encoded as a whole, and what that gave is
/// used if it was worth it.
const DRAFT: u64 = 4 << 20;
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
    tools: &'a mut Tools,
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
    /// The window done last, which the file does not use yet.
    last: Option<Window>,
}

/// What is stored in a part of a file, and what it is to become.
struct Plan {
    /// Behind `start`, and behind the arrays that begin in front of it.
    end: u64,
    noted: ExtentMap,
    units: Vec<Unit>,
}

impl Inner {
    /// Settles one file alone.
    pub(crate) fn settle(
        &self,
        file: &Arc<File>,
        regions: &[Region],
        options: &SettleOptions<'_>,
        sizes: &Sizes,
    ) -> Result<Settled, Error> {
        let prepared = self.prepare(file, regions, options, sizes, &mut Tools::new())?;
        let round = batch::sync(self, &prepared.last);
        self.end_settle(prepared, &round)
    }

    /// Does everything but the end: the last window is appended and not in use.
    fn prepare(
        &self,
        file: &Arc<File>,
        regions: &[Region],
        options: &SettleOptions<'_>,
        sizes: &Sizes,
        tools: &mut Tools,
    ) -> Result<Prepared, Error> {
        let (size, generation) = {
            let state = file.state.lock();
            // What is in memory now will be committed without another write.
            let clean = state.chunks.is_empty() && state.ready.is_empty();
            (state.size, clean.then_some(state.write_seq))
        };
        let mut prepared = Prepared {
            file: Arc::clone(file),
            generation,
            effort: options.effort,
            outcome: Settled::default(),
            last: None,
        };
        if options.effort == Effort::None && !options.force {
            // Nothing becomes smaller that way: this is its final form.
            return Ok(prepared);
        }
        let share = self.budget.limit() / 4 / options.workers.max(1) as u64;
        let limit = share.max(ARRAY_MAX_LEAST).min(array_max(size));
        let mut pass = Pass {
            tools,
            file,
            options,
            sizes,
            size,
            arrays: Arrays::new(regions, size, limit, sizes),
            limit,
            judged: options.force,
            outcome: Settled::default(),
            last: None,
        };
        let mut start = 0;
        // A hole costs nothing, however long it is.
        while let Some(data) = self.next_stored(file, start, size)? {
            if let Some(window) = pass.last.take() {
                self.switch(file, window, &mut pass.outcome)?;
            }
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
        prepared.outcome = pass.outcome;
        prepared.last = pass.last;
        Ok(prepared)
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
        let whole = end >= pass.size && units.iter().map(Unit::raw).sum::<u64>() <= DRAFT;
        let written = if pass.judged {
            self.write_units(pass, &noted, &units)?
        } else if whole {
            self.write_if_worth_it(pass, &noted, &units)?
        } else if self.is_worth_it(pass)? {
            self.write_units(pass, &noted, &units)?
        } else {
            pass.outcome.hard = true;
            return Ok(end);
        };
        pass.judged = true;
        pass.last = (!written.is_empty()).then_some(Window { noted, written });
        Ok(end)
    }

    /// Encodes all that there is, and appends it if it has become smaller.
    fn write_if_worth_it(
        &self,
        pass: &mut Pass<'_>,
        noted: &ExtentMap,
        units: &[Unit],
    ) -> Result<Vec<(Vec<Extent>, Pin)>, Error> {
        let options = pass.options;
        let mut settler = Settler::new(self, pass.file, noted, options.effort, pass.tools);
        let mut drafts = Vec::new();
        let (mut before, mut after) = (0, 0);
        for unit in units {
            if !(options.pace)(unit.raw()) {
                pass.outcome.stopped = true;
                return Ok(Vec::new());
            }
            let (draft, bytes) = settler.encode(unit)?;
            before += stored_in(noted, unit);
            after += bytes.len() as u64;
            drafts.push((draft, bytes.to_vec()));
        }
        if after * 100 >= before * WORTH_PERCENT {
            pass.outcome.hard = true;
            return Ok(Vec::new());
        }
        let append = |(unit, (draft, bytes)): (&Unit, (_, Vec<u8>))| {
            unit::append(self, unit, draft, &bytes, options.workers)
        };
        units.iter().zip(drafts).map(append).collect()
    }

    /// Encodes some of a file to see what would be gained: here and there, for the first variable
    /// may be like no other.
    fn is_worth_it(&self, pass: &mut Pass<'_>) -> Result<bool, Error> {
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
        // By one worker and in order, as it would be done: it learns from one for the next.
        let effort = pass.options.effort;
        let mut settler = Settler::new(self, pass.file, &noted, effort, pass.tools);
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
        pass: &mut Pass<'_>,
        noted: &ExtentMap,
        units: &[Unit],
    ) -> Result<Vec<(Vec<Extent>, Pin)>, Error> {
        let (file, options) = (pass.file, pass.options);
        let workers = options.workers.max(1);
        let next = AtomicUsize::new(0);
        let work = |tools: &mut Tools| {
            let mut settler = Settler::new(self, file, noted, options.effort, tools);
            let mut written = Vec::new();
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !(options.pace)(unit.raw()) {
                    break;
                }
                written.push(settler.write(unit, workers)?);
            }
            Ok::<_, Error>(written)
        };
        let threads = workers.min(units.len());
        let written = if threads == 1 {
            work(pass.tools)?
        } else {
            thread::scope(|scope| {
                let threads: Vec<_> = (0..threads)
                    .map(|_| scope.spawn(|| work(&mut Tools::new())))
                    .collect();
                let mut all = Vec::new();
                for thread in threads {
                    all.extend(thread.join().map_err(|_| Error::Poisoned)??);
                }
                Ok::<_, Error>(all)
            })?
        };
        pass.outcome.stopped |= written.len() < units.len();
        Ok(written)
    }

    /// Makes a window durable and the file use it.
    fn switch(&self, file: &Arc<File>, window: Window, outcome: &mut Settled) -> Result<(), Error> {
        let round = batch::sync(self, [&window]);
        let mut state = file.state.lock();
        let extents = self.unchanged(file, &mut state, &window, &round, outcome)?;
        self.replace(file, &mut state, &extents, None)?;
        reach(Stage::SettleSwitched);
        Ok(())
    }

    /// What of a durable window the file can use: where nothing has changed since it was noted.
    fn unchanged(
        &self,
        file: &Arc<File>,
        state: &mut FileState,
        window: &Window,
        round: &SyncRound,
        outcome: &mut Settled,
    ) -> Result<Vec<Extent>, Error> {
        let mut extents = Vec::new();
        for (unit, pin) in &window.written {
            round.check(std::slice::from_ref(pin))?;
            for extent in unit {
                let now = self.extents(file, state, extent.offset, extent.end())?;
                let now =
                    ExtentMap::from_extents(now.into_iter().filter(|e| e.place != Place::Hole));
                let then = window.noted.range(extent.offset, extent.end());
                if now.iter().copied().eq(then) {
                    outcome.raw += extent.len;
                    outcome.before += now.iter().map(Extent::stored).sum::<u64>();
                    outcome.after += extent.stored();
                    extents.push(*extent);
                } else {
                    outcome.void += extent.len;
                }
            }
        }
        Ok(extents)
    }

    /// Makes a file use its last window, notes how far it has settled, and folds its map.
    fn end_settle(&self, prepared: Prepared, round: &SyncRound) -> Result<Settled, Error> {
        let Prepared {
            file,
            generation,
            effort,
            mut outcome,
            last,
        } = prepared;
        let mut state = file.state.lock();
        let extents = match &last {
            Some(window) => self.unchanged(&file, &mut state, window, round, &mut outcome)?,
            None => Vec::new(),
        };
        let phase = if outcome.hard {
            Phase::Hard(tried(effort))
        } else {
            Phase::Settled
        };
        outcome.changed = generation != Some(state.write_seq) || !state.chunks.is_empty();
        let whole = !outcome.stopped && outcome.void == 0 && !outcome.changed;
        self.replace(&file, &mut state, &extents, whole.then_some(phase))?;
        if last.is_some() {
            reach(Stage::SettleSwitched);
        }
        let folded = state.map.as_ref().is_none_or(FileMap::is_folded);
        if outcome.raw > 0 && !folded {
            self.fold(&file, &mut state, &mut FrameEncoder::new(), &[])?;
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
