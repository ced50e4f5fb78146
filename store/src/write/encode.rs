//! Encode workers: threads that turn frozen chunks into frames.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use shale_codec::{Effort, FrameKind};
use shale_index::extent::{Extent, Place};

use super::admission::Admission;
use super::control::CommitControl;
use crate::Error;
use crate::file::{File, FileTable, Flushed, Frozen};
use crate::frame::{FrameEncoder, FrameSpec, while_moved};
use crate::pack::Pin;
use crate::primitives::channel::{self, Receiver, RecvTimeoutError, Sender};
use crate::primitives::{Mutex, Priority, set_priority};
use crate::volume::Volume;

/// Number of pieces and extents from which a chunk is written as a whole.
const MAX_FRAGMENTS: usize = 16;
/// A worker that was idle for this long gives its memory back: a little before all the others do.
const IDLE: Duration = Duration::from_secs(20);

/// A chunk to be written.
#[derive(Debug)]
pub(super) struct EncodeJob {
    pub(super) file: Arc<File>,
    pub(super) index: u64,
    pub(super) frozen: Arc<Frozen>,
}

/// Chunks that wait for the encode workers.
#[derive(Debug)]
pub(crate) struct EncodeQueue {
    sender: Mutex<Option<Sender<EncodeJob>>>,
    receiver: Receiver<EncodeJob>,
}

impl Default for EncodeQueue {
    fn default() -> Self {
        let (sender, receiver) = channel::unbounded();
        Self {
            sender: Mutex::new(Some(sender)),
            receiver,
        }
    }
}

impl EncodeQueue {
    pub(super) fn send(&self, jobs: Vec<EncodeJob>) {
        let sender = self.sender.lock();
        for job in jobs {
            if let Some(sender) = sender.as_ref() {
                // Workers live as long as the sender.
                let _ = sender.send(job);
            }
        }
    }

    /// Chunks that wait for a worker.
    pub(crate) fn waiting(&self) -> u64 {
        let sender = self.sender.lock();
        sender.as_ref().map_or(0, |sender| sender.len() as u64)
    }

    /// Ends the workers once the queue is empty.
    pub(crate) fn close(&self) {
        self.sender.lock().take();
    }
}

/// A run of bytes that becomes one frame.
struct Run {
    range: Range<u64>,
    /// Older extents that fill the gaps between the frozen bytes.
    base: Vec<Extent>,
}

/// The frames of a chunk, and the pins of their packs.
type Written = (Vec<Extent>, Vec<Pin>);

/// A thread that encodes chunks and appends the frames to packs.
pub(crate) struct EncodeWorker {
    volume: Arc<Volume>,
    files: Arc<FileTable>,
    admission: Arc<Admission>,
    commits: Arc<CommitControl>,
    jobs: Receiver<EncodeJob>,
    encoder: FrameEncoder,
    raw: Vec<u8>,
}

impl EncodeWorker {
    pub(crate) fn new(writer: &super::Writer) -> Self {
        Self {
            volume: Arc::clone(&writer.volume),
            files: Arc::clone(&writer.files),
            admission: Arc::clone(&writer.admission),
            commits: Arc::clone(&writer.commits),
            jobs: writer.queue.receiver.clone(),
            encoder: FrameEncoder::new(),
            raw: Vec::new(),
        }
    }

    /// Encodes until the queue is closed.
    pub(crate) fn run(mut self) {
        // When memory is short, writers wait for compression anyway.
        set_priority(Priority::Background);
        while let Some(job) = self.next() {
            let flush = AssertUnwindSafe(|| while_moved(|| self.flush(&job)));
            let done = catch_unwind(flush);
            let result = done.unwrap_or_else(|_| {
                self.files.poison("a worker panicked while writing a chunk");
                Err(Error::Poisoned)
            });
            self.finish(&job, result);
            self.files.retire(job.file);
        }
    }

    /// The next chunk to write; `None` when the queue is closed.
    fn next(&mut self) -> Option<EncodeJob> {
        match self.jobs.recv_timeout(IDLE) {
            Err(RecvTimeoutError::Timeout) => {
                self.encoder = FrameEncoder::new();
                self.raw = Vec::new();
                self.jobs.recv().ok()
            }
            job => job.ok(),
        }
    }

    fn flush(&mut self, job: &EncodeJob) -> Result<Written, Error> {
        self.volume.check()?;
        match self.write(job, plan(&self.volume, job)?) {
            // New bytes are written even if older ones cannot be read.
            Err(Error::Damaged { .. }) => self.write(job, alone(&job.frozen)),
            other => other,
        }
    }

    fn write(&mut self, job: &EncodeJob, runs: Vec<Run>) -> Result<Written, Error> {
        let (mut extents, mut pins) = (Vec::new(), Vec::new());
        for run in runs {
            let raw = match single_piece(&job.frozen, &run) {
                Some(piece) => piece,
                None => {
                    self.assemble(job, &run)?;
                    &self.raw
                }
            };
            let limiter = &self.volume.limiter;
            let pressed = limiter.used() > limiter.limit() / 8 * 7;
            let effort = match job.file.effort().unwrap_or(self.volume.effort) {
                // Writers are about to wait: settling can compress it better later.
                Effort::Fast | Effort::Balanced | Effort::Dense if pressed => Effort::Lz4,
                asked => asked,
            };
            for span in job.file.spans(run.range.clone()) {
                let hint = span.hint();
                let Range { start, end } = span.range;
                let (from, to) = (start - run.range.start, end - run.range.start);
                let raw = &raw[from as usize..to as usize];
                let len = raw.len() as u64;
                let volume = &*self.volume;
                let mut put = || {
                    volume.space.make_way(&*volume.backing, len)?;
                    let spec = FrameSpec {
                        kind: FrameKind::Data,
                        ino: job.file.ino,
                        offset: start,
                        hint,
                        effort,
                    };
                    volume.frames.append(&mut self.encoder, &spec, raw)
                };
                let (part, pin) = loop {
                    match put() {
                        // Space is held for it, and deleted data may not be freed yet.
                        Err(e) if e.is_full() && self.admission.give_way(len)? => {}
                        done => break done?,
                    }
                };
                volume.space.spend(u64::from(part.frame_len));
                pins.push(pin);
                extents.push(Extent {
                    offset: start,
                    len: end - start,
                    place: Place::Frame(part),
                });
            }
        }
        Ok((extents, pins))
    }

    /// Older bytes with the frozen ones laid over them.
    fn assemble(&mut self, job: &EncodeJob, run: &Run) -> Result<(), Error> {
        let Range { start, end } = run.range;
        self.raw.clear();
        self.raw.resize((end - start) as usize, 0);
        for extent in &run.base {
            let at = (extent.offset - start) as usize;
            let old = &mut self.raw[at..at + extent.len as usize];
            self.volume.frames.copy_extent(extent, job.file.ino, old)?;
        }
        job.frozen.data.copy_to(start, &mut self.raw, |_| {});
        Ok(())
    }

    fn finish(&self, job: &EncodeJob, result: Result<Written, Error>) {
        let volume = &*self.volume;
        let limiter = &volume.limiter;
        let written = result.is_ok();
        let mut locked = job.file.lock(volume);
        match result {
            Ok((extents, pins)) => {
                locked.ready.push(Flushed {
                    index: job.index,
                    frozen: Arc::clone(&job.frozen),
                    extents,
                    pins,
                });
                limiter.resume();
                self.commits.ready(job.frozen.data.bytes());
            }
            Err(error) => {
                if !std::mem::replace(&mut locked.warned, true) {
                    tracing::warn!(
                        inode = job.file.ino,
                        "{}: data written at offset {} cannot be stored yet and stays in memory, \
                         retrying: {error}; check the device of the store and its free space",
                        volume.namespace.path(job.file.ino),
                        job.file.chunk_range(job.index).start
                    );
                }
                let freed = locked.thaw(job.index, &job.frozen, job.file.chunk_len() as usize);
                let error = Arc::new(error);
                locked.fail(Arc::clone(&error));
                limiter.give(freed);
                limiter.stall(error);
            }
        }
        drop(locked);
        job.file.notify();
        // Retry only in the next cycle, or a failing device would be retried without a pause.
        if written && limiter.is_tight() {
            self.commits.kick();
        }
    }
}

fn single_piece<'a>(frozen: &'a Frozen, run: &Run) -> Option<&'a [u8]> {
    let Range { start, end } = run.range;
    let (from, piece) = frozen
        .data
        .iter()
        .find(|(from, piece)| *from <= start && from + piece.len() as u64 >= end)?;
    Some(&piece[(start - from) as usize..(end - from) as usize])
}

/// Only the new bytes.
fn alone(frozen: &Frozen) -> Vec<Run> {
    let run = |(start, piece): (u64, &[u8])| Run {
        range: start..start + piece.len() as u64,
        base: Vec::new(),
    };
    frozen.data.iter().map(run).collect()
}

/// Decides what to write: the new bytes alone, or the chunk with its older bytes when little is
/// missing or it has become too fragmented.
fn plan(volume: &Volume, job: &EncodeJob) -> Result<Vec<Run>, Error> {
    let chunk = job.file.chunk_range(job.index);
    let new = alone(&job.frozen);
    let pieces: Vec<Range<u64>> = new.iter().map(|run| run.range.clone()).collect();
    if pieces == [chunk.clone()] {
        return Ok(new);
    }
    // Older bytes must not hide what another session writes beside the new ones.
    if volume.namespace.is_shared() {
        return Ok(new);
    }
    // Space is held for the new bytes alone.
    if volume.space.is_short() {
        return Ok(new);
    }
    let mut locked = job.file.lock(volume);
    let valid = chunk.end.min(locked.size).saturating_sub(chunk.start);
    let older = match locked.extents(chunk) {
        Ok(older) => older,
        // New bytes are written even if the map cannot be read.
        Err(Error::Damaged { .. }) => return Ok(new),
        Err(e) => return Err(e),
    };
    drop(locked);
    let older: Vec<Extent> = older
        .into_iter()
        .filter(|e| e.place != Place::Hole)
        .collect();
    let dense = job.frozen.data.bytes() * 2 >= valid;
    if older.is_empty() || !(dense || older.len() + pieces.len() > MAX_FRAGMENTS) {
        return Ok(new);
    }
    let mut spans = pieces.clone();
    spans.extend(older.iter().map(Extent::range));
    spans.sort_unstable_by_key(|span| (span.start, span.end));
    let mut runs: Vec<Run> = Vec::new();
    for span in spans {
        match runs.last_mut() {
            Some(Run { range, .. }) if span.start <= range.end => {
                range.end = range.end.max(span.end);
            }
            _ => runs.push(Run {
                range: span,
                base: Vec::new(),
            }),
        }
    }
    // A run of only older bytes stays where it is.
    runs.retain(|run| {
        pieces
            .iter()
            .any(|piece| piece.start < run.range.end && run.range.start < piece.end)
    });
    for Run { range, base } in &mut runs {
        *base = older
            .iter()
            .filter(|e| e.offset < range.end && range.start < e.end())
            .copied()
            .collect();
    }
    Ok(runs)
}
