//! Reading ahead: whoever reads a file from front to back finds the next frames decoded.

use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use shale_index::extent::FramePart;

use crate::file::File;
use crate::store::Inner;
use crate::sync::Mutex;
use crate::sync::channel::{Receiver, Sender};

/// Bytes read in a row after which a reader counts as sequential.
const SEQUENTIAL: u64 = 256 << 10;
/// How far ahead of a sequential reader frames are decoded.
const WINDOW: u64 = 32 << 20;
/// How far behind a sequential reader decoded frames are kept: its requests overtake each other.
const BEHIND: u64 = 4 << 20;
/// The window is moved on by steps of this size.
const STEP: u64 = 1 << 20;

/// A frame to be decoded.
#[derive(Debug)]
pub(crate) struct Job {
    ino: u64,
    offset: u64,
    part: FramePart,
}

/// Where a file is being read.
#[derive(Debug, Default)]
pub(crate) struct Position {
    start: u64,
    next: u64,
    /// Bytes read since `start`.
    bytes: u64,
    /// Everything before has been asked for.
    asked: u64,
    /// Everything before has been let go.
    passed: u64,
}

/// What a sequential reader needs next, and what it has done with.
#[derive(Debug, PartialEq, Eq)]
struct Moved {
    ahead: (u64, u64),
    behind: (u64, u64),
}

impl Position {
    /// Follows a read; returns what should be decoded ahead and let go behind, if it is time for
    /// that.
    fn follow(&mut self, offset: u64, len: u64, window: u64) -> Option<Moved> {
        let end = offset.saturating_add(len);
        // Requests of one reader overtake each other a little.
        if offset.abs_diff(self.next) <= STEP {
            self.bytes = self.bytes.saturating_add(len);
            self.next = self.next.max(end);
        } else {
            *self = Self {
                start: offset,
                next: end,
                bytes: len,
                asked: 0,
                passed: offset,
            };
        }
        // Whoever reads a little here and there of a range does not want all of it.
        let dense = self.bytes >= (self.next - self.start) / 4 * 3;
        // Not much further ahead than it has come.
        let window = window.min(self.bytes.saturating_mul(2));
        let wanted = self.next.saturating_add(window);
        if self.bytes < SEQUENTIAL || !dense || wanted < self.asked.saturating_add(STEP.min(window))
        {
            return None;
        }
        let from = self.asked.max(self.next);
        self.asked = wanted;
        let passed = self.next.saturating_sub(BEHIND).max(self.passed);
        Some(Moved {
            ahead: (from, wanted),
            behind: (std::mem::replace(&mut self.passed, passed), passed),
        })
    }
}

/// The way to the threads that decode ahead.
#[derive(Debug)]
pub(crate) struct Ahead {
    sender: Mutex<Option<Sender<Job>>>,
    /// Frames on the way: each row of an array crosses the same tiles.
    waiting: Mutex<HashSet<(u64, u64)>>,
}

impl Ahead {
    pub(crate) fn new(sender: Sender<Job>) -> Self {
        Self {
            sender: Mutex::new(Some(sender)),
            waiting: Mutex::default(),
        }
    }

    pub(crate) fn stop(&self) {
        self.sender.lock().take();
    }

    /// Frames that wait to be decoded.
    pub(crate) fn waiting(&self) -> u64 {
        self.waiting.lock().len() as u64
    }
}

impl Inner {
    /// Follows a read of a file and decodes ahead of it.
    pub(crate) fn read_ahead(&self, file: &Arc<File>, offset: u64, len: u64) {
        let room = self.frames.cache.limit() / 4;
        let window = WINDOW.min(room);
        let Some(moved) = file.position.lock().follow(offset, len, window) else {
            return;
        };
        let extents = |(from, to): (u64, u64)| {
            let mut state = file.state.lock();
            let to = to.min(state.size).max(from);
            // What is in memory needs no decoding, and errors are for those who really read.
            self.extents(file, &mut state, from, to).unwrap_or_default()
        };
        if self.kernel_cache {
            for extent in extents(moved.behind) {
                self.frames.forget(&extent, file.ino);
            }
        }
        let extents = extents(moved.ahead);
        // The device may take its time, during which others must be able to read ahead.
        let Some(sender) = self.ahead.sender.lock().clone() else {
            return;
        };
        let mut bytes = 0;
        for extent in extents {
            let Ok(mut frames) = self.frames.missing(&extent, file.ino) else {
                return;
            };
            // A row of tiles that is larger than the cache would push itself out.
            let fits = frames.iter().take_while(|part| {
                bytes += u64::from(part.raw_len);
                bytes <= 2 * room
            });
            let fits = fits.count();
            let whole = fits == frames.len();
            frames.truncate(fits);
            {
                let mut waiting = self.ahead.waiting.lock();
                frames.retain(|part| waiting.insert((part.pack, part.at)));
            }
            self.frames.packs.will_need(&frames);
            for part in frames {
                let job = Job {
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

pub(crate) fn work(inner: &Inner, jobs: &Receiver<Job>) {
    for job in jobs {
        let decode = || inner.frames.get(&job.part, job.ino, job.offset);
        // Whoever reads it meets the error.
        let _ = catch_unwind(AssertUnwindSafe(decode));
        let part = (job.part.pack, job.part.at);
        inner.ahead.waiting.lock().remove(&part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sequential_readers_are_followed() {
        let mut position = Position::default();
        let (mut random, mut asked) = (0, Vec::new());
        for i in 0..64u64 {
            let offset = (i * 7919 % 64) * (8 << 20);
            random += usize::from(position.follow(offset, 128 << 10, WINDOW).is_some());
        }
        assert_eq!(random, 0);
        for i in 0..64u64 {
            let offset = (1 << 39) + i * (200 << 10);
            random += usize::from(position.follow(offset, 16 << 10, WINDOW).is_some());
        }
        assert_eq!(random, 0, "a strided reader");
        for i in 0..64 {
            let offset = (1 << 40) + i * (128 << 10);
            asked.extend(position.follow(offset, 128 << 10, WINDOW));
        }
        assert!(asked.len() >= 4, "{asked:?}");
        for pair in asked.windows(2) {
            assert_eq!(pair[0].ahead.1, pair[1].ahead.0, "no gap, nothing twice");
            assert_eq!(pair[0].behind.1, pair[1].behind.0, "no gap, nothing twice");
        }
        let last = asked.last().unwrap();
        assert!(last.behind.1 + BEHIND <= (1 << 40) + (64 << 17), "{last:?}");
        assert!(last.behind.1 > 1 << 40, "nothing is let go: {last:?}");
    }
}
