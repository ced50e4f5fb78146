//! A chunk to a frame.
#![forbid(unsafe_code)]

use std::time::Instant;

use crate::checksum::{hash32, hash64};
use crate::decimal::FloatWord;
use crate::draft::Draft;
use crate::exceptions;
use crate::fate::choose_fate;
use crate::frame::{
    FrameMeta, HEADER_LEN, MAX_RAW_LEN, NumberMap, Recipe, Scheme, StreamEntry, directory_len,
};
use crate::memory::Memory;
use crate::numeric::{Lane, Lanes, Residue, is_local, reduce, reduce_columns, with_lane};
use crate::pace::Pace;
use crate::plan::{Plan, VERBATIM_SEGMENT, plan};
use crate::residual::{self, ResidualScratch};
use crate::stream::{Coder, Fate, Filter, StreamEncoder};
use crate::{Effort, Error, FrameSummary, Hint, shuffle, simd};

/// Turns chunks into frames. Keeps its scratch memory: make one per thread.
pub struct Encoder {
    lanes: Lanes,
    work: Work,
    /// The rival of a full trial.
    rival: Vec<u8>,
    /// A frame by a new plan, where an old one was not good enough.
    again: Vec<u8>,
    memory: Memory,
    pace: Pace,
}

/// Scratch memory that does not depend on the element's width.
struct Work {
    streams: StreamEncoder,
    residue: Residue,
    residuals: ResidualScratch,
    columns: Vec<u8>,
    deltas: Vec<u8>,
    extra: Vec<u8>,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder without scratch memory yet.
    pub fn new() -> Self {
        Encoder {
            lanes: Lanes::default(),
            work: Work {
                streams: StreamEncoder::new(),
                residue: Residue::default(),
                residuals: ResidualScratch::default(),
                columns: Vec::new(),
                deltas: Vec::new(),
                extra: Vec::new(),
            },
            rival: Vec::new(),
            again: Vec::new(),
            memory: Memory::default(),
            pace: Pace::new(),
        }
    }

    /// Appends one frame that holds `raw` to `out`. On an error `out` is as before.
    pub fn encode(
        &mut self,
        meta: &FrameMeta,
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        if raw.len() > MAX_RAW_LEN {
            return Err(Error::ChunkTooLarge {
                len: raw.len(),
                max: MAX_RAW_LEN,
            });
        }
        let begin = out.len();
        let result = self.encode_at(meta, hint, effort, raw, out);
        if result.is_err() {
            out.truncate(begin);
        }
        result
    }

    /// As [`encode`](Encoder::encode), at the densest effort that has lately
    /// kept `floor` bytes per second on this encoder.
    pub fn encode_at_floor(
        &mut self,
        meta: &FrameMeta,
        hint: &Hint<'_>,
        floor: u64,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        let effort = self.pace.choose(floor as f64);
        let start = Instant::now();
        let summary = self.encode(meta, hint, effort, raw, out)?;
        self.pace.note(effort, raw.len(), start.elapsed());
        Ok(summary)
    }

    fn encode_at(
        &mut self,
        meta: &FrameMeta,
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        let begin = out.len();
        if raw.is_empty() {
            let mut frame = Draft::begin(Recipe::verbatim(0), 0, out);
            frame.seal(meta, raw, out);
            return Ok(frame.summary);
        }
        let constant = (effort != Effort::None)
            .then(|| constant_width(raw))
            .flatten();
        if let Some(width) = constant {
            let mut recipe = Recipe::verbatim(0);
            recipe.scheme = Scheme::Constant;
            recipe.width = width as u8;
            recipe.head = width as u8;
            let mut frame = Draft::begin(recipe, 0, out);
            frame.edges(&raw[..width], &[], out);
            frame.seal(meta, raw, out);
            return Ok(frame.summary);
        }
        let (first, second, reused) = self.memory.plan(hint, effort, raw);
        let mut summary = self.encode_best(meta, (first, second), hint, effort, raw, out)?;
        if effort == Effort::Fast {
            return Ok(summary);
        }
        let outcome = (out.len() - begin) as f32 / raw.len() as f32;
        if !self.memory.is_as_expected(reused, outcome) {
            let (first, second, _) = self.memory.plan(hint, effort, raw);
            let mut again = std::mem::take(&mut self.again);
            again.clear();
            let other = self.encode_best(meta, (first, second), hint, effort, raw, &mut again)?;
            if again.len() < out.len() - begin {
                out.truncate(begin);
                out.extend_from_slice(&again);
                summary = other;
            }
            let outcome = again.len() as f32 / raw.len() as f32;
            self.again = again;
            self.memory.is_as_expected(false, outcome);
        }
        Ok(summary)
    }

    /// Encodes by a plan, or by a second one if that turns out smaller.
    fn encode_best(
        &mut self,
        meta: &FrameMeta,
        (mut first, mut second): (Plan, Option<Plan>),
        hint: &Hint<'_>,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        let begin = out.len();
        if !first.suits(raw) || second.is_some_and(|second| !second.suits(raw)) {
            (first, second) = plan(hint, effort, false, raw);
        }
        if first.recipe.scheme == Scheme::Verbatim {
            return Ok(encode_verbatim(meta, raw, out));
        }
        if effort == Effort::Dense && !first.gaps {
            // The sample does not see long repeats; LZ4 does.
            let repeated = self.work.streams.lz4_len(raw, &mut self.rival);
            first.repeats = repeated < raw.len() / 10 * 9;
            second = second.filter(|second| {
                repeated as f32 * 8.0 < first.cost * raw.len() as f32 * 1.2
                    || second.cost < first.cost * 1.04
            });
            if let Some(second) = &mut second {
                second.repeats = first.repeats;
            }
        } else {
            second = None;
        }
        let mut summary = self.encode_plan(meta, &first, effort, raw, out)?;
        if let Some(second) = second {
            let mut rival = std::mem::take(&mut self.rival);
            rival.clear();
            let other = self.encode_plan(meta, &second, effort, raw, &mut rival)?;
            if rival.len() < out.len() - begin {
                out.truncate(begin);
                out.extend_from_slice(&rival);
                summary = other;
            }
            self.rival = rival;
        }
        let segments = raw.len().div_ceil(VERBATIM_SEGMENT);
        let ceiling = HEADER_LEN + directory_len(&Recipe::verbatim(0), segments) + raw.len();
        if out.len() - begin >= ceiling {
            out.truncate(begin);
            return Ok(encode_verbatim(meta, raw, out));
        }
        Ok(summary)
    }

    fn encode_plan(
        &mut self,
        meta: &FrameMeta,
        plan: &Plan,
        effort: Effort,
        raw: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        let recipe = &plan.recipe;
        let (head, rest) = raw.split_at(recipe.head as usize);
        let (body, tail) = rest.split_at(rest.len() - recipe.tail as usize);
        let segments = body.len().div_ceil(recipe.segment_len as usize);
        let mut frame = Draft::begin(*recipe, segments, out);
        frame.edges(head, tail, out);
        for segment in body.chunks(recipe.segment_len as usize) {
            frame.segment(hash64(segment), out);
            if recipe.map == NumberMap::Bytes {
                self.work
                    .encode_bytes(&mut self.lanes, &mut frame, plan, effort, segment, out)?;
            } else {
                let work = &mut self.work;
                with_lane!(self.lanes, recipe.width, lane => work.encode_numbers(lane, &mut frame, plan, effort, segment, out))?;
            }
        }
        frame.seal(meta, raw, out);
        Ok(frame.summary)
    }
}

impl Work {
    fn encode_bytes(
        &mut self,
        lanes: &mut Lanes,
        frame: &mut Draft,
        plan: &Plan,
        effort: Effort,
        segment: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let width = plan.recipe.width as usize;
        let repeats = plan.repeats;
        if plan.gaps {
            let entry = self
                .streams
                .encode(Fate::Gaps, Filter::None, segment, out)?;
            frame.stream(&entry, out);
            return Ok(());
        }
        if width == 1 {
            return self.encode_columns(frame, effort, repeats, segment, true, out);
        }
        let mut columns = std::mem::take(&mut self.columns);
        columns.resize(segment.len(), 0);
        if matches!(width, 2 | 4 | 8) {
            with_lane!(lanes, width, lane => reduce_columns(lane, &plan.recipe, segment, &mut columns));
        } else {
            shuffle::shuffle(width, segment, &mut columns);
        }
        let n = segment.len() / width;
        let result = columns
            .chunks_exact(n)
            .try_for_each(|column| self.encode_columns(frame, effort, repeats, column, true, out));
        self.columns = columns;
        result
    }

    fn encode_columns(
        &mut self,
        frame: &mut Draft,
        effort: Effort,
        repeats: bool,
        column: &[u8],
        may_delta: bool,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let (fate, filter) = choose_fate(effort, column, may_delta, repeats);
        let bytes = if filter == Filter::Delta {
            self.deltas.resize(column.len(), 0);
            shuffle::delta(column, &mut self.deltas);
            &self.deltas
        } else {
            column
        };
        let entry = self.streams.encode(fate, filter, bytes, out)?;
        frame.stream(&entry, out);
        Ok(())
    }

    fn encode_numbers<W: FloatWord>(
        &mut self,
        lane: &mut Lane<W>,
        frame: &mut Draft,
        plan: &Plan,
        effort: Effort,
        segment: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let recipe = &plan.recipe;
        if recipe.scheme == Scheme::Columns
            && is_local(recipe)
            && recipe.map != NumberMap::Decimal
            && plan.fill.is_none()
        {
            self.residue.clear();
            self.columns.resize(segment.len(), 0);
            reduce_columns(lane, recipe, segment, &mut self.columns);
            return self.encode_split::<W>(frame, plan, effort, segment.len() / W::BYTES, out);
        }
        reduce(lane, recipe, plan.fill, segment, &mut self.residue);
        if self.residue.excepted.len() > exceptions::max_len(segment.len()) {
            return Err(Error::Malformed("too many exceptions"));
        }
        if recipe.scheme == Scheme::Residuals {
            let begin = out.len();
            let whole = lane.words.len() == segment.len() / W::BYTES;
            let row = residual::context_row(recipe, whole);
            residual::encode(&lane.words, row, &mut self.residuals, out, &mut self.extra);
            let entry = StreamEntry {
                coder: Coder::Rans,
                filter: Filter::None,
                raw_len: lane.words.len() as u32,
                stored_len: (out.len() - begin) as u32,
                check: hash32(&out[begin..]),
            };
            frame.stream(&entry, out);
            let entry = self
                .streams
                .encode(Fate::Raw, Filter::None, &self.extra, out)?;
            frame.stream(&entry, out);
            return self.encode_residue(frame, plan, effort, out);
        }
        let n = lane.words.len();
        self.columns.resize(n * W::BYTES, 0);
        simd::split_columns(&lane.words, n, 0, &mut self.columns);
        self.encode_split::<W>(frame, plan, effort, n, out)
    }

    /// Codes columns of `n` bytes and what is beside them.
    fn encode_split<W: FloatWord>(
        &mut self,
        frame: &mut Draft,
        plan: &Plan,
        effort: Effort,
        n: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let columns = std::mem::take(&mut self.columns);
        // When every element is an exception the columns are empty, but still there.
        let result = (0..W::BYTES).try_for_each(|i| {
            let column = &columns[i * n..(i + 1) * n];
            self.encode_columns(frame, effort, plan.repeats, column, false, out)
        });
        self.columns = columns;
        result?;
        self.encode_residue(frame, plan, effort, out)
    }

    fn encode_residue(
        &mut self,
        frame: &mut Draft,
        plan: &Plan,
        effort: Effort,
        out: &mut Vec<u8>,
    ) -> Result<(), Error> {
        let errors = std::mem::take(&mut self.residue.errors);
        let result = self.encode_columns(frame, effort, plan.repeats, &errors, false, out);
        self.residue.errors = errors;
        result?;
        let fate = match effort {
            Effort::Dense => Fate::Zstd(9),
            Effort::Fast => Fate::Quick,
            _ => Fate::Zstd(1),
        };
        let entry = self
            .streams
            .encode(fate, Filter::None, &self.residue.excepted, out)?;
        frame.stream(&entry, out);
        Ok(())
    }
}

fn encode_verbatim(meta: &FrameMeta, raw: &[u8], out: &mut Vec<u8>) -> FrameSummary {
    let segments = raw.len().div_ceil(VERBATIM_SEGMENT);
    let mut frame = Draft::begin(Recipe::verbatim(VERBATIM_SEGMENT as u32), segments, out);
    out.reserve(raw.len());
    for segment in raw.chunks(VERBATIM_SEGMENT) {
        frame.segment(hash64(segment), out);
        out.extend_from_slice(segment);
    }
    frame.summary.add(Coder::Raw);
    frame.seal(meta, raw, out);
    frame.summary
}

/// The width of the element that fills the whole chunk, if one does.
fn constant_width(raw: &[u8]) -> Option<usize> {
    let repeats = |width: usize| raw.len() >= width && raw[width..] == raw[..raw.len() - width];
    if !repeats(8.min(raw.len())) {
        return None;
    }
    [1, 2, 4, 8].into_iter().find(|&width| repeats(width))
}
