//! Workers that turn frozen chunks into frames.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use shale_codec::{Effort, FrameKind};
use shale_index::extent::{Extent, Place};

use crate::file::{File, Flushed, Frozen};
use crate::frames::FrameEncoder;
use crate::pins::Pin;
use crate::read::while_moved;
use crate::store::Inner;
use crate::sync::channel::{Receiver, RecvTimeoutError};
use crate::sync::{Priority, set_priority};
use crate::{Error, advice};

/// Pieces and extents of a chunk from which on it is written as a whole.
const MAX_FRAGMENTS: usize = 16;
/// A worker without work for so long gives its memory back: a little before all the others do.
const IDLE: Duration = Duration::from_secs(20);

/// A chunk to be written.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) file: Arc<File>,
    pub(crate) index: u64,
    pub(crate) frozen: Arc<Frozen>,
}

/// A run of bytes that becomes one frame.
struct Run {
    start: u64,
    end: u64,
    /// Older extents that fill what the frozen bytes leave open.
    base: Vec<Extent>,
}

pub(crate) fn work(inner: &Inner, jobs: &Receiver<Job>) {
    // When memory runs short, writers wait for compression anyway.
    set_priority(Priority::Behind);
    let mut worker = Worker::new();
    while let Some(job) = next(jobs, &mut worker) {
        let flush = AssertUnwindSafe(|| while_moved(|| worker.flush(inner, &job)));
        let done = catch_unwind(flush);
        let result = done.unwrap_or_else(|_| {
            inner.poison("a worker panicked while writing a chunk");
            Err(Error::Poisoned)
        });
        finish(inner, &job, result);
        inner.retire(job.file);
    }
}

/// The next chunk to be written; `None` when there will be none any more.
fn next(jobs: &Receiver<Job>, worker: &mut Worker) -> Option<Job> {
    match jobs.recv_timeout(IDLE) {
        Err(RecvTimeoutError::Timeout) => {
            *worker = Worker::new();
            jobs.recv().ok()
        }
        job => job.ok(),
    }
}

struct Worker {
    encoder: FrameEncoder,
    raw: Vec<u8>,
}

impl Worker {
    fn new() -> Self {
        Self {
            encoder: FrameEncoder::new(),
            raw: Vec::new(),
        }
    }

    fn flush(&mut self, inner: &Inner, job: &Job) -> Result<(Vec<Extent>, Vec<Pin>), Error> {
        inner.check()?;
        match self.write(inner, job, plan(inner, job)?) {
            // Older bytes that cannot be read are no reason not to write new ones.
            Err(Error::Damaged { .. }) => self.write(inner, job, alone(&job.frozen)),
            other => other,
        }
    }

    fn write(
        &mut self,
        inner: &Inner,
        job: &Job,
        runs: Vec<Run>,
    ) -> Result<(Vec<Extent>, Vec<Pin>), Error> {
        let (mut extents, mut pins) = (Vec::new(), Vec::new());
        for run in runs {
            let raw = match single_piece(&job.frozen, &run) {
                Some(piece) => piece,
                None => {
                    self.assemble(inner, job, &run)?;
                    &self.raw
                }
            };
            let pressed = inner.budget.used() > inner.budget.limit() / 8 * 7;
            let effort = match job.file.effort().unwrap_or(inner.effort) {
                // Writers are about to wait: the background pass can make up for it.
                Effort::Fast | Effort::Balanced | Effort::Dense if pressed => Effort::Lz4,
                asked => asked,
            };
            for segment in advice::segments(&job.file, run.start, run.end) {
                let (from, to) = (segment.start - run.start, segment.end - run.start);
                let raw = &raw[from as usize..to as usize];
                let len = raw.len() as u64;
                let mut put = || {
                    inner.space.make_way(&*inner.backing, len)?;
                    inner.frames.put_hinted(
                        &mut self.encoder,
                        (FrameKind::Data, job.file.ino, segment.start),
                        &segment.hint(),
                        effort,
                        raw,
                    )
                };
                let (part, pin) = loop {
                    match put() {
                        // Space is held for it, and what was deleted may not be free yet.
                        Err(e) if e.is_full() && inner.give_way(len)? => {}
                        done => break done?,
                    }
                };
                inner.space.spend(u64::from(part.frame_len));
                pins.push(pin);
                extents.push(Extent {
                    offset: segment.start,
                    len: segment.end - segment.start,
                    place: Place::Frame(part),
                });
            }
        }
        Ok((extents, pins))
    }

    /// Older bytes with the frozen ones laid over them.
    fn assemble(&mut self, inner: &Inner, job: &Job, run: &Run) -> Result<(), Error> {
        self.raw.clear();
        self.raw.resize((run.end - run.start) as usize, 0);
        for extent in &run.base {
            let at = (extent.offset - run.start) as usize;
            let old = &mut self.raw[at..at + extent.len as usize];
            inner.frames.copy_extent(extent, job.file.ino, old)?;
        }
        job.frozen.segs.copy_to(run.start, &mut self.raw, |_, _| {});
        Ok(())
    }
}

fn single_piece<'a>(frozen: &'a Frozen, run: &Run) -> Option<&'a [u8]> {
    let (start, piece) = frozen
        .segs
        .iter()
        .find(|(start, piece)| *start <= run.start && start + piece.len() as u64 >= run.end)?;
    Some(&piece[(run.start - start) as usize..(run.end - start) as usize])
}

/// The new bytes and nothing else.
fn alone(frozen: &Frozen) -> Vec<Run> {
    let run = |(start, piece): (u64, &[u8])| Run {
        start,
        end: start + piece.len() as u64,
        base: Vec::new(),
    };
    frozen.segs.iter().map(run).collect()
}

/// Decides what is written: the new bytes alone, or the chunk with its older bytes when little
/// is missing or it has become too fragmented.
fn plan(inner: &Inner, job: &Job) -> Result<Vec<Run>, Error> {
    let (chunk_start, chunk_end) = job.file.chunk_range(job.index);
    let new = alone(&job.frozen);
    let pieces: Vec<(u64, u64)> = new.iter().map(|run| (run.start, run.end)).collect();
    if let [(start, end)] = pieces[..]
        && start == chunk_start
        && end == chunk_end
    {
        return Ok(new);
    }
    // Space is held for the new bytes alone.
    if inner.space.is_short() {
        return Ok(new);
    }
    let mut state = job.file.state.lock();
    let valid = chunk_end.min(state.size).saturating_sub(chunk_start);
    let older = match inner.extents(&job.file, &mut state, chunk_start, chunk_end) {
        Ok(older) => older,
        // A map that cannot be read is no reason not to write new bytes.
        Err(Error::Damaged { .. }) => return Ok(new),
        Err(e) => return Err(e),
    };
    drop(state);
    let older: Vec<Extent> = older
        .into_iter()
        .filter(|e| e.place != Place::Hole)
        .collect();
    let dense = job.frozen.segs.bytes() * 2 >= valid;
    if older.is_empty() || !(dense || older.len() + pieces.len() > MAX_FRAGMENTS) {
        return Ok(new);
    }
    let mut spans: Vec<(u64, u64)> = pieces.clone();
    spans.extend(older.iter().map(|e| (e.offset, e.end())));
    spans.sort_unstable();
    let mut runs: Vec<Run> = Vec::new();
    for (start, end) in spans {
        match runs.last_mut() {
            Some(run) if start <= run.end => run.end = run.end.max(end),
            _ => runs.push(Run {
                start,
                end,
                base: Vec::new(),
            }),
        }
    }
    // A run of older bytes alone is left where it is.
    runs.retain(|run| {
        pieces
            .iter()
            .any(|&(start, end)| start < run.end && run.start < end)
    });
    for run in &mut runs {
        run.base = older
            .iter()
            .filter(|e| e.offset < run.end && run.start < e.end())
            .copied()
            .collect();
    }
    Ok(runs)
}

fn finish(inner: &Inner, job: &Job, result: Result<(Vec<Extent>, Vec<Pin>), Error>) {
    let written = result.is_ok();
    let mut state = job.file.state.lock();
    match result {
        Ok((extents, pins)) => {
            state.ready.push(Flushed {
                index: job.index,
                frozen: Arc::clone(&job.frozen),
                extents,
                pins,
            });
            inner.budget.stall(0);
            inner.committer.ready(job.frozen.segs.bytes());
        }
        Err(error) => {
            if !std::mem::replace(&mut state.warned, true) {
                tracing::warn!(
                    inode = job.file.ino,
                    "{}: what was written at {} cannot be stored yet, it stays in memory and is \
                     tried again: {error}",
                    inner.namespace.path(job.file.ino),
                    job.file.chunk_range(job.index).0
                );
            }
            let freed = state.thaw(job.index, &job.frozen, job.file.chunk_len() as usize);
            state.fail(error.errno());
            inner.budget.give(freed);
            inner.budget.stall(error.errno());
        }
    }
    drop(state);
    job.file.moved.notify_all();
    // What failed has time until the next cycle, or a sick device would be tried without a pause.
    if written && inner.budget.is_tight() {
        inner.committer.kick();
    }
}
