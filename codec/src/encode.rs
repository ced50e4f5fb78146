//! Encodes a chunk into a frame.
#![forbid(unsafe_code)]

use crate::checksum::{hash32, hash64};
use crate::choose::effort::Effort;
use crate::choose::fate::choose_fate;
use crate::choose::hint::Hint;
use crate::choose::plan::{Plan, Plans, VERBATIM_BLOCK, plan};
use crate::choose::plan_cache::PlanCache;
use crate::entropy::residual::{self, ResidualScratch};
use crate::entropy::stream::{Fate, StreamEncoder};
use crate::error::Error;
use crate::frame::builder::FrameBuilder;
use crate::frame::{
    Coder, Filter, FrameMeta, FrameSummary, HEADER_LEN, MAX_RAW_LEN, NumberMap, Recipe, Scheme,
    StreamEntry, directory_len,
};
use crate::transform::decimal::FloatWord;
use crate::transform::exceptions;
use crate::transform::kernels;
use crate::transform::numeric::{
    SideStreams, WordScratch, WordScratches, is_local, reduce, reduce_columns, with_words,
};
use crate::transform::shuffle;

/// Encodes chunks. Keeps its scratch memory, so use one per thread.
pub struct Encoder {
    words: WordScratches,
    work: EncodeScratch,
    /// The frame of the second plan, in a full trial.
    rival: Vec<u8>,
    /// The frame of a new plan, when a cached one did badly.
    replanned: Vec<u8>,
    plans: PlanCache,
}

/// Scratch memory that does not depend on the element's width.
struct EncodeScratch {
    streams: StreamEncoder,
    side: SideStreams,
    residuals: ResidualScratch,
    columns: Vec<u8>,
    deltas: Vec<u8>,
    extra: Vec<u8>,
}

/// What is to become a frame.
#[derive(Clone, Copy)]
struct Chunk<'a> {
    meta: &'a FrameMeta,
    hint: &'a Hint<'a>,
    effort: Effort,
    raw: &'a [u8],
}

/// The frame in the making to which blocks are added, and how.
struct Draft<'a> {
    frame: FrameBuilder,
    plan: &'a Plan,
    effort: Effort,
    out: &'a mut Vec<u8>,
}

impl Draft<'_> {
    /// Records a stream that has just been appended to `out`.
    fn add_stream(&mut self, entry: &StreamEntry) {
        self.frame.add_stream(entry, self.out);
    }
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
            words: WordScratches::default(),
            work: EncodeScratch {
                streams: StreamEncoder::new(),
                side: SideStreams::default(),
                residuals: ResidualScratch::default(),
                columns: Vec::new(),
                deltas: Vec::new(),
                extra: Vec::new(),
            },
            rival: Vec::new(),
            replanned: Vec::new(),
            plans: PlanCache::default(),
        }
    }

    /// Appends one frame that holds `raw` to `out`. On an error `out` is unchanged.
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
        let chunk = Chunk {
            meta,
            hint,
            effort,
            raw,
        };
        let result = self.encode_chunk(&chunk, out);
        if result.is_err() {
            out.truncate(begin);
        }
        result
    }

    fn encode_chunk(
        &mut self,
        chunk: &Chunk<'_>,
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        let &Chunk {
            meta,
            hint,
            effort,
            raw,
        } = chunk;
        let begin = out.len();
        if raw.is_empty() {
            let mut frame = FrameBuilder::begin(Recipe::verbatim(0), 0, out);
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
            let mut frame = FrameBuilder::begin(recipe, 0, out);
            frame.add_edges(&raw[..width], &[], out);
            frame.seal(meta, raw, out);
            return Ok(frame.summary);
        }
        let (plans, reused) = self.plans.plan(hint, effort, raw);
        let mut summary = self.encode_best(chunk, plans, out)?;
        if effort == Effort::Fast {
            return Ok(summary);
        }
        let outcome = (out.len() - begin) as f32 / raw.len() as f32;
        if !self.plans.accept(reused, outcome) {
            let (plans, _) = self.plans.plan(hint, effort, raw);
            let mut replanned = std::mem::take(&mut self.replanned);
            replanned.clear();
            let other = self.encode_best(chunk, plans, &mut replanned)?;
            if replanned.len() < out.len() - begin {
                out.truncate(begin);
                out.extend_from_slice(&replanned);
                summary = other;
            }
            let outcome = replanned.len() as f32 / raw.len() as f32;
            self.replanned = replanned;
            self.plans.accept(false, outcome);
        }
        Ok(summary)
    }

    /// Encodes by the first plan, or by the second if its frame is smaller.
    fn encode_best(
        &mut self,
        chunk: &Chunk<'_>,
        plans: Plans,
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        let &Chunk {
            meta,
            hint,
            effort,
            raw,
        } = chunk;
        let begin = out.len();
        let Plans {
            mut first,
            mut second,
        } = plans;
        if !first.suits(raw) || second.is_some_and(|second| !second.suits(raw)) {
            Plans { first, second } = plan(hint, effort, false, raw);
        }
        if first.recipe.scheme == Scheme::Verbatim {
            return Ok(encode_verbatim(meta, raw, out));
        }
        if effort == Effort::Dense && !first.gaps {
            // The sample does not show long repeats; LZ4 finds them.
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
        let mut summary = self.encode_plan(chunk, &first, out)?;
        if let Some(second) = second {
            let mut rival = std::mem::take(&mut self.rival);
            rival.clear();
            let other = self.encode_plan(chunk, &second, &mut rival)?;
            if rival.len() < out.len() - begin {
                out.truncate(begin);
                out.extend_from_slice(&rival);
                summary = other;
            }
            self.rival = rival;
        }
        let blocks = raw.len().div_ceil(VERBATIM_BLOCK);
        let ceiling = HEADER_LEN + directory_len(&Recipe::verbatim(0), blocks) + raw.len();
        if out.len() - begin >= ceiling {
            out.truncate(begin);
            return Ok(encode_verbatim(meta, raw, out));
        }
        Ok(summary)
    }

    fn encode_plan(
        &mut self,
        chunk: &Chunk<'_>,
        plan: &Plan,
        out: &mut Vec<u8>,
    ) -> Result<FrameSummary, Error> {
        let &Chunk {
            meta, effort, raw, ..
        } = chunk;
        let recipe = &plan.recipe;
        let (head, rest) = raw.split_at(recipe.head as usize);
        let (body, tail) = rest.split_at(rest.len() - recipe.tail as usize);
        let blocks = body.len().div_ceil(recipe.block_len as usize);
        let mut frame = FrameBuilder::begin(*recipe, blocks, out);
        frame.add_edges(head, tail, out);
        let mut draft = Draft {
            frame,
            plan,
            effort,
            out,
        };
        for block in body.chunks(recipe.block_len as usize) {
            draft.frame.begin_block(hash64(block), draft.out);
            if recipe.map == NumberMap::Bytes {
                self.work.encode_bytes(&mut self.words, &mut draft, block)?;
            } else {
                let work = &mut self.work;
                with_words!(self.words, recipe.width, scratch => work.encode_numbers(scratch, &mut draft, block))?;
            }
        }
        let Draft { mut frame, out, .. } = draft;
        frame.seal(meta, raw, out);
        Ok(frame.summary)
    }
}

impl EncodeScratch {
    fn encode_bytes(
        &mut self,
        words: &mut WordScratches,
        draft: &mut Draft<'_>,
        block: &[u8],
    ) -> Result<(), Error> {
        let plan = draft.plan;
        let width = plan.recipe.width as usize;
        if plan.gaps {
            let entry = self
                .streams
                .encode(Fate::Gaps, Filter::None, block, draft.out)?;
            draft.add_stream(&entry);
            return Ok(());
        }
        if width == 1 {
            return self.encode_column(draft, block, true);
        }
        let mut columns = std::mem::take(&mut self.columns);
        columns.resize(block.len(), 0);
        if matches!(width, 2 | 4 | 8) {
            with_words!(words, width, scratch => reduce_columns(scratch, &plan.recipe, block, &mut columns));
        } else {
            shuffle::shuffle(width, block, &mut columns);
        }
        let n = block.len() / width;
        let result = columns
            .chunks_exact(n)
            .try_for_each(|column| self.encode_column(draft, column, true));
        self.columns = columns;
        result
    }

    fn encode_column(
        &mut self,
        draft: &mut Draft<'_>,
        column: &[u8],
        may_delta: bool,
    ) -> Result<(), Error> {
        let (fate, filter) = choose_fate(draft.effort, column, may_delta, draft.plan.repeats);
        let bytes = if filter == Filter::Delta {
            self.deltas.resize(column.len(), 0);
            shuffle::delta(column, &mut self.deltas);
            &self.deltas
        } else {
            column
        };
        let entry = self.streams.encode(fate, filter, bytes, draft.out)?;
        draft.add_stream(&entry);
        Ok(())
    }

    fn encode_numbers<W: FloatWord>(
        &mut self,
        scratch: &mut WordScratch<W>,
        draft: &mut Draft<'_>,
        block: &[u8],
    ) -> Result<(), Error> {
        let plan = draft.plan;
        let recipe = &plan.recipe;
        if recipe.scheme == Scheme::Columns
            && is_local(recipe)
            && recipe.map != NumberMap::Decimal
            && plan.fill.is_none()
        {
            self.side.clear();
            self.columns.resize(block.len(), 0);
            reduce_columns(scratch, recipe, block, &mut self.columns);
            return self.encode_split::<W>(draft, block.len() / W::BYTES);
        }
        reduce(scratch, recipe, plan.fill, block, &mut self.side);
        if self.side.excepted.len() > exceptions::max_len(block.len()) {
            return Err(Error::Malformed("too many exceptions"));
        }
        if recipe.scheme == Scheme::Residuals {
            let out = &mut *draft.out;
            let begin = out.len();
            let whole = scratch.words.len() == block.len() / W::BYTES;
            let row = residual::context_row(recipe, whole);
            residual::encode(
                &scratch.words,
                row,
                &mut self.residuals,
                out,
                &mut self.extra,
            );
            let entry = StreamEntry {
                coder: Coder::Rans,
                filter: Filter::None,
                raw_len: scratch.words.len() as u32,
                stored_len: (out.len() - begin) as u32,
                check: hash32(&out[begin..]),
            };
            draft.add_stream(&entry);
            let entry = self
                .streams
                .encode(Fate::Raw, Filter::None, &self.extra, draft.out)?;
            draft.add_stream(&entry);
            return self.encode_side_streams(draft);
        }
        let n = scratch.words.len();
        self.columns.resize(n * W::BYTES, 0);
        kernels::split_columns(&scratch.words, n, 0, &mut self.columns);
        self.encode_split::<W>(draft, n)
    }

    /// Codes columns of `n` bytes, and the side streams.
    fn encode_split<W: FloatWord>(&mut self, draft: &mut Draft<'_>, n: usize) -> Result<(), Error> {
        let columns = std::mem::take(&mut self.columns);
        // When every element is an exception the columns are empty, but still there.
        let result = (0..W::BYTES).try_for_each(|i| {
            let column = &columns[i * n..(i + 1) * n];
            self.encode_column(draft, column, false)
        });
        self.columns = columns;
        result?;
        self.encode_side_streams(draft)
    }

    fn encode_side_streams(&mut self, draft: &mut Draft<'_>) -> Result<(), Error> {
        let errors = std::mem::take(&mut self.side.errors);
        let result = self.encode_column(draft, &errors, false);
        self.side.errors = errors;
        result?;
        let fate = match draft.effort {
            Effort::Dense => Fate::Zstd(9),
            Effort::Fast => Fate::Quick,
            _ => Fate::Zstd(1),
        };
        let entry = self
            .streams
            .encode(fate, Filter::None, &self.side.excepted, draft.out)?;
        draft.add_stream(&entry);
        Ok(())
    }
}

fn encode_verbatim(meta: &FrameMeta, raw: &[u8], out: &mut Vec<u8>) -> FrameSummary {
    let blocks = raw.len().div_ceil(VERBATIM_BLOCK);
    let mut frame = FrameBuilder::begin(Recipe::verbatim(VERBATIM_BLOCK as u32), blocks, out);
    out.reserve(raw.len());
    for block in raw.chunks(VERBATIM_BLOCK) {
        frame.begin_block(hash64(block), out);
        out.extend_from_slice(block);
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
