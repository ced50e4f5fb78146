//! Settling one file, window by window.

use std::collections::BTreeMap;
use std::ops::Range;
use std::panic::resume_unwind;
use std::sync::Arc;

use shale_backing::failpoint::{Stage, reach};
use shale_codec::Effort;
use shale_index::extent::{Extent, ExtentMap, Place};
use shale_index::schema::MapRoot;

use super::encode::{self, StoredUnitEncoder, Tools};
use super::plan::{self, Arrays, Sizes, Unit};
use super::sample::SamplePoints;
use super::{Region, SettleOptions, Settled, Settler, WORTH_PERCENT, array_max};
use crate::Error;
use crate::file::{File, LockedFile, Replacement};
use crate::frame::FrameBatch;
use crate::pack::{Pin, SyncRound};
use crate::primitives::atomic::{AtomicUsize, Ordering};
use crate::primitives::thread;
use crate::volume::Volume;

/// Raw bytes of a window, about.
pub(super) const WINDOW: u64 = 1 << 30;
/// Largest array with little memory.
const ARRAY_MAX_LEAST: u64 = 2 << 20;
/// Raw bytes of the trial before a file is settled.
const TRIAL: u64 = 16 << 20;
/// Files with at most this many raw bytes to encode are encoded as a whole, and the result is used
/// if it is worth it.
const DRAFT: u64 = 4 << 20;
/// Tiles of an array that are tried.
const TRIAL_TILES: usize = 4;

/// A part of a file that has been encoded and appended, but is not in use yet.
pub(super) struct Window {
    /// The extents that were encoded.
    noted: ExtentMap,
    pub(super) written: Vec<(Vec<Extent>, Pin)>,
}

impl Window {
    /// The extents of a durable window that the file can use: where nothing has changed since it
    /// was noted.
    pub(super) fn unchanged(
        &self,
        locked: &mut LockedFile<'_>,
        round: &SyncRound,
        outcome: &mut Settled,
    ) -> Result<Vec<Extent>, Error> {
        let mut extents = Vec::new();
        for (unit, pin) in &self.written {
            round.check(std::slice::from_ref(pin))?;
            for extent in unit {
                let now = locked.extents(extent.offset..extent.end())?;
                let now =
                    ExtentMap::from_extents(now.into_iter().filter(|e| e.place != Place::Hole));
                let then = self.noted.range(extent.range());
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
}

/// A file that is settled up to its last window.
pub(super) struct Prepared {
    pub(super) file: Arc<File>,
    /// Number of its last write at the beginning, if all writes were stored then.
    pub(super) generation: Option<u64>,
    /// Its map at the beginning, if it had no records beside it and other sessions may write it.
    pub(super) root: Option<MapRoot>,
    pub(super) effort: Effort,
    /// Without the last window.
    pub(super) outcome: Settled,
    pub(super) last: Option<Window>,
}

impl Prepared {
    /// Stored bytes of the last window.
    pub(super) fn stored(&self) -> u64 {
        let units = self.last.iter().flat_map(|window| &window.written);
        units.flat_map(|(unit, _)| unit).map(Extent::stored).sum()
    }
}

/// Makes durable what was appended, if anything was.
pub(super) fn sync<'a>(
    volume: &Volume,
    windows: impl IntoIterator<Item = &'a Window>,
) -> SyncRound {
    if windows.into_iter().all(|window| window.written.is_empty()) {
        return SyncRound::default();
    }
    reach(Stage::SettleWritten);
    let round = volume.frames.packs.sync_round();
    reach(Stage::SettleDurable);
    round
}

/// One file being settled.
pub(super) struct Pass<'a> {
    settler: &'a Settler,
    tools: &'a mut Tools,
    file: &'a Arc<File>,
    options: &'a SettleOptions<'a>,
    sizes: &'a Sizes,
    size: u64,
    /// Number of its last write at the beginning, if all writes were stored by then.
    generation: Option<u64>,
    root: Option<MapRoot>,
    arrays: Arrays<'a>,
    /// The largest array.
    limit: u64,
    /// Whether settling is known to be worth it.
    judged: bool,
    outcome: Settled,
    /// The last window, not in use yet.
    last: Option<Window>,
}

/// The stored extents of a part of a file, and the units to make of them.
struct Plan {
    /// The end of the arrays that begin in the part, if they reach beyond it.
    end: u64,
    noted: ExtentMap,
    units: Vec<Unit>,
}

impl<'a> Pass<'a> {
    pub(super) fn new(
        settler: &'a Settler,
        file: &'a Arc<File>,
        regions: &'a [Region],
        options: &'a SettleOptions<'a>,
        sizes: &'a Sizes,
        tools: &'a mut Tools,
    ) -> Self {
        let (size, generation, root) = {
            let mut locked = file.lock(&settler.volume);
            let root = if locked.is_shared() {
                // A file that cannot be read shows that when it is encoded.
                let refreshed = locked.refresh().and_then(|()| locked.folded_root());
                refreshed.ok().flatten()
            } else {
                None
            };
            // Data in memory now will be committed without another write.
            let clean = locked.chunks.is_empty() && locked.ready.is_empty();
            (locked.size, clean.then_some(locked.write_seq), root)
        };
        let share = settler.volume.limiter.limit() / 4 / options.workers.max(1) as u64;
        let limit = share.max(ARRAY_MAX_LEAST).min(array_max(size));
        Self {
            settler,
            tools,
            file,
            options,
            sizes,
            size,
            generation,
            root,
            arrays: Arrays::new(regions, size, limit, sizes),
            limit,
            judged: options.force,
            outcome: Settled::default(),
            last: None,
        }
    }

    /// Settles everything but the end: the last window is appended and not in use.
    pub(super) fn run(mut self) -> Result<Prepared, Error> {
        let options = self.options;
        // Without compression nothing shrinks: the file has its final form.
        if options.effort != Effort::None || options.force {
            self.settle_windows()?;
        }
        Ok(Prepared {
            file: Arc::clone(self.file),
            generation: self.generation,
            root: self.root,
            effort: options.effort,
            outcome: self.outcome,
            last: self.last,
        })
    }

    fn settle_windows(&mut self) -> Result<(), Error> {
        let mut start = 0;
        // A hole costs nothing, however long it is.
        while let Some(data) = self.next_stored(start)? {
            if let Some(window) = self.last.take() {
                self.switch(&window)?;
            }
            // Even if nothing is to be done, the caller may want it to end.
            if !(self.options.pace)(0) {
                self.outcome.stopped = true;
                break;
            }
            // The position of windows must not depend on where exactly a hole ends, or the parts at
            // their edges would differ each time.
            start = start.max(data / WINDOW * WINDOW);
            start = self.settle_window(start)?;
            if self.outcome.incompressible || self.outcome.stopped {
                break;
            }
        }
        Ok(())
    }

    /// The first byte at or after `from` that is stored.
    fn next_stored(&self, from: u64) -> Result<Option<u64>, Error> {
        let mut locked = self.file.lock(&self.settler.volume);
        locked.next_stored(from..self.size)
    }

    /// Notes the stored extents in a range and splits it into units.
    fn plan(&self, range: Range<u64>) -> Result<Plan, Error> {
        let Range { start, end } = range;
        let mut arrays = self.arrays.between(start..end);
        let end = arrays.last().map_or(end, |array| end.max(array.span().end));
        let noted = {
            let mut locked = self.file.lock(&self.settler.volume);
            locked.extents(start..end)?
        };
        let noted = ExtentMap::from_extents(noted.into_iter().filter(|e| e.place != Place::Hole));
        arrays.retain(|array| is_covered(&noted, array.span()));
        let taken: Vec<Range<u64>> = arrays.iter().flat_map(Unit::ranges).collect();
        let extents: Vec<Extent> = noted.iter().copied().collect();
        let mut units = plan::rest(&extents, &taken, self.sizes);
        units.extend(arrays);
        Ok(Plan { end, noted, units })
    }

    /// Settles the window that begins at `start`; returns its end.
    fn settle_window(&mut self, start: u64) -> Result<u64, Error> {
        let options = self.options;
        let volume = &*self.settler.volume;
        let end = self.size.min(start.saturating_add(WINDOW));
        let Plan {
            end,
            noted,
            mut units,
        } = self.plan(start..end)?;
        // With a codec that the caller insists on it may take more than before, up to its raw size.
        let bytes = if options.force {
            |extent: &Extent| extent.len
        } else {
            Extent::stored
        };
        let needed = noted.iter().map(bytes).sum();
        if volume
            .space
            .admit(&*volume.backing, needed, volume.limiter.used())
            .is_err()
        {
            self.outcome.stopped = true;
            return Ok(end);
        }
        let all = units.len();
        if !options.rewrite {
            units.retain(|unit| !encode::is_done(unit, &noted, &volume.frames, self.file.ino));
        }
        // A file that was settled before is worth settling again.
        self.judged |= units.len() < all;
        if units.is_empty() {
            return Ok(end);
        }
        let whole = end >= self.size && units.iter().map(Unit::raw).sum::<u64>() <= DRAFT;
        let written = if self.judged {
            self.write_units(&noted, &units)?
        } else if whole {
            self.write_if_worth_it(&noted, &units)?
        } else if self.is_worth_it()? {
            self.write_units(&noted, &units)?
        } else {
            self.outcome.incompressible = true;
            return Ok(end);
        };
        self.judged = true;
        self.last = (!written.is_empty()).then_some(Window { noted, written });
        Ok(end)
    }

    /// Encodes the whole file, and appends it if it has shrunk.
    fn write_if_worth_it(
        &mut self,
        noted: &ExtentMap,
        units: &[Unit],
    ) -> Result<Vec<(Vec<Extent>, Pin)>, Error> {
        let (settler, options) = (self.settler, self.options);
        let mut encoder = StoredUnitEncoder::new(
            &settler.volume.frames,
            self.file,
            noted,
            options.effort,
            self.tools,
        );
        let mut drafts = Vec::new();
        let (mut before, mut after) = (0, 0);
        for unit in units {
            if !(options.pace)(unit.raw()) {
                self.outcome.stopped = true;
                return Ok(Vec::new());
            }
            let (draft, frames) = encoder.collect(unit)?;
            before += stored_in(noted, unit);
            after += frames.len();
            drafts.push((draft, frames.clone()));
        }
        if after * 100 >= before * WORTH_PERCENT {
            self.outcome.incompressible = true;
            return Ok(Vec::new());
        }
        let append = |(unit, (draft, frames)): (&Unit, (_, FrameBatch))| {
            settler.append(unit, draft, &frames, options.workers)
        };
        units.iter().zip(drafts).map(append).collect()
    }

    /// Encodes samples of a file to estimate the gain: from all over it, because the first variable
    /// may be unlike the others.
    fn is_worth_it(&mut self) -> Result<bool, Error> {
        let frames = &self.settler.volume.frames;
        let around = 2 * self.limit.max(self.sizes.linear);
        let mut noted = ExtentMap::new();
        let mut chosen: BTreeMap<u64, Unit> = BTreeMap::new();
        let mut raw = 0;
        for point in self.sample_points()? {
            if raw >= TRIAL {
                break;
            }
            let end = self.size.min(point.saturating_add(around));
            let plan = self.plan(point.saturating_sub(around)..end)?;
            let holds = |unit: &Unit| {
                let mut ranges = unit.ranges();
                ranges.any(|range| range.contains(&point))
            };
            let Some(unit) = plan.units.into_iter().find(holds) else {
                continue;
            };
            if encode::is_done(&unit, &plan.noted, frames, self.file.ino) {
                return Ok(true);
            }
            let Range { start, end } = unit.span();
            for extent in plan.noted.range(start..end) {
                noted.insert(extent);
            }
            let tried = match unit {
                Unit::Array(_) => unit.raw().min(TRIAL_TILES as u64 * self.sizes.tile),
                Unit::Gather(_) => unit.raw(),
            };
            if chosen.insert(start, unit).is_none() {
                raw += tried;
            }
        }
        // By one worker and in order, as in settling: the encoder learns from one unit for the
        // next.
        let effort = self.options.effort;
        let mut encoder = StoredUnitEncoder::new(frames, self.file, &noted, effort, self.tools);
        let (mut before, mut after) = (0, 0);
        for unit in chosen.values() {
            before += stored_in(&noted, unit);
            after += encoder.try_out(unit, TRIAL_TILES)?;
        }
        Ok(after * 100 < before * WORTH_PERCENT)
    }

    /// Points spread over the stored bytes of the file.
    fn sample_points(&self) -> Result<Vec<u64>, Error> {
        let mut points = SamplePoints::new();
        let mut next = Some(0);
        while let Some(start) = next {
            let mut locked = self.file.lock(&self.settler.volume);
            let (extents, rest) = locked.extents_from(start)?;
            drop(locked);
            for extent in extents {
                points.add(extent.offset, extent.len);
            }
            next = rest;
        }
        Ok(points.into_offsets())
    }

    /// Encodes and appends units with several workers; returns fewer when told to stop.
    fn write_units(
        &mut self,
        noted: &ExtentMap,
        units: &[Unit],
    ) -> Result<Vec<(Vec<Extent>, Pin)>, Error> {
        let (settler, file, options) = (self.settler, self.file, self.options);
        let frames = &settler.volume.frames;
        let workers = options.workers.max(1);
        let next = AtomicUsize::new(0);
        let work = |tools: &mut Tools| {
            let mut encoder = StoredUnitEncoder::new(frames, file, noted, options.effort, tools);
            let mut written = Vec::new();
            while let Some(unit) = units.get(next.fetch_add(1, Ordering::Relaxed)) {
                if !(options.pace)(unit.raw()) {
                    break;
                }
                let (draft, frames) = encoder.collect(unit)?;
                written.push(settler.append(unit, draft, frames, workers)?);
            }
            Ok::<_, Error>(written)
        };
        let threads = workers.min(units.len());
        let written = if threads == 1 {
            work(self.tools)?
        } else {
            thread::scope(|scope| {
                let threads: Vec<_> = (0..threads)
                    .map(|_| scope.spawn(|| work(&mut Tools::new())))
                    .collect();
                let mut all = Vec::new();
                for thread in threads {
                    // A panic ends this file only, as it does with one worker.
                    all.extend(thread.join().unwrap_or_else(|panic| resume_unwind(panic))?);
                }
                Ok::<_, Error>(all)
            })?
        };
        self.outcome.stopped |= written.len() < units.len();
        Ok(written)
    }

    /// Makes a window durable and points the file at it.
    fn switch(&mut self, window: &Window) -> Result<(), Error> {
        let volume = &*self.settler.volume;
        let round = sync(volume, [window]);
        let before = self.outcome;
        let mut locked = self.file.lock(volume);
        locked.replace_where(&[], |locked| {
            self.outcome = before;
            let extents = window.unchanged(locked, &round, &mut self.outcome)?;
            let phase = None;
            Ok(Replacement { extents, phase })
        })?;
        reach(Stage::SettleSwitched);
        Ok(())
    }
}

/// Whether all of a range is stored.
fn is_covered(noted: &ExtentMap, range: Range<u64>) -> bool {
    let mut at = range.start;
    for extent in noted.range(range.clone()) {
        if extent.offset != at {
            return false;
        }
        at = extent.end();
    }
    at == range.end
}

/// Stored bytes of a unit at present.
fn stored_in(noted: &ExtentMap, unit: &Unit) -> u64 {
    unit.ranges()
        .flat_map(|range| noted.range(range))
        .map(|extent| extent.stored())
        .sum()
}
