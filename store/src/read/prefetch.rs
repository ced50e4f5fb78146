//! Prefetching: a sequential reader finds the next frames decoded.
//!
//! A second mechanism decodes in parallel inside one read of many tiles (`frame/tiles/read.rs`).

use std::collections::HashSet;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use shale_index::Ino;
use shale_index::extent::{FrameAt, FramePart};

use crate::file::File;
use crate::primitives::Mutex;
use crate::primitives::channel::{self, Receiver, Sender};
use crate::volume::Volume;

/// How far ahead of a sequential reader frames are decoded.
const WINDOW: u64 = 32 << 20;

/// A frame to be decoded.
#[derive(Debug)]
struct DecodeJob {
    ino: Ino,
    offset: u64,
    part: FramePart,
}

/// Pending frames: each row of an array crosses the same tiles.
type Waiting = Arc<Mutex<HashSet<FrameAt>>>;

/// Follows readers and queues frames to decode ahead of them.
#[derive(Debug)]
pub(crate) struct Prefetcher {
    volume: Arc<Volume>,
    /// The kernel caches what was read, so that decoded frames can be evicted behind a reader.
    kernel_cache: bool,
    sender: Mutex<Option<Sender<DecodeJob>>>,
    waiting: Waiting,
}

/// A thread that decodes ahead of readers.
#[derive(Clone, Debug)]
pub(crate) struct DecodeWorker {
    volume: Arc<Volume>,
    jobs: Receiver<DecodeJob>,
    waiting: Waiting,
}

impl Prefetcher {
    /// A prefetcher, and the worker for its threads.
    pub(crate) fn new(volume: &Arc<Volume>, kernel_cache: bool) -> (Self, DecodeWorker) {
        let (sender, jobs) = channel::unbounded();
        let waiting = Waiting::default();
        let prefetcher = Self {
            volume: Arc::clone(volume),
            kernel_cache,
            sender: Mutex::new(Some(sender)),
            waiting: Arc::clone(&waiting),
        };
        let worker = DecodeWorker {
            volume: Arc::clone(volume),
            jobs,
            waiting,
        };
        (prefetcher, worker)
    }

    /// Ends the threads.
    pub(super) fn stop(&self) {
        self.sender.lock().take();
    }

    /// Frames that wait to be decoded.
    pub(super) fn waiting(&self) -> u64 {
        self.waiting.lock().len() as u64
    }

    /// Follows a read of a file and queues frames to decode ahead of it.
    pub(super) fn follow(&self, file: &Arc<File>, offset: u64, len: u64) {
        let frames = &self.volume.frames;
        let room = frames.cache.limit() / 4;
        let Some(window) = file.follow_read(offset, len, WINDOW.min(room)) else {
            return;
        };
        let extents = |range: Range<u64>| {
            let mut locked = file.lock(&self.volume);
            let to = range.end.min(locked.size).max(range.start);
            // Bytes in memory need no decoding. The reader gets the errors.
            locked.extents(range.start..to).unwrap_or_default()
        };
        if self.kernel_cache {
            for extent in extents(window.behind) {
                frames.forget(&extent, file.ino);
            }
        }
        let extents = extents(window.ahead);
        // The device may be slow; other readers must be able to prefetch meanwhile.
        let Some(sender) = self.sender.lock().clone() else {
            return;
        };
        let mut bytes = 0;
        for extent in extents {
            let Ok(mut missing) = frames.missing(&extent, file.ino) else {
                return;
            };
            // A row of tiles larger than the cache would evict itself.
            let fits = missing.iter().take_while(|part| {
                bytes += u64::from(part.raw_len);
                bytes <= 2 * room
            });
            let fits = fits.count();
            let whole = fits == missing.len();
            missing.truncate(fits);
            {
                let mut waiting = self.waiting.lock();
                missing.retain(|part| waiting.insert(part.frame_at()));
            }
            frames.packs.will_need(&missing);
            for part in missing {
                let job = DecodeJob {
                    ino: file.ino,
                    offset: extent.offset,
                    part,
                };
                let _ = sender.send(job);
            }
            if !whole {
                return;
            }
        }
    }
}

impl DecodeWorker {
    /// Decodes until the prefetcher stops.
    pub(crate) fn run(self) {
        for job in &self.jobs {
            let decode = || self.volume.frames.get(&job.part, job.ino, job.offset);
            // The reader gets the error.
            let _ = catch_unwind(AssertUnwindSafe(decode));
            self.waiting.lock().remove(&job.part.frame_at());
        }
    }
}
