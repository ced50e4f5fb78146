//! The parts with the locks that threads wait on, each separately.

use std::sync::Arc;

use shale_index::extent::{FrameAt, PackId};

use crate::Error;
use crate::pack::Pin;
use crate::{frame, memory, write};

/// The bound on unwritten bytes.
#[derive(Debug)]
pub struct WriteLimiter(memory::WriteLimiter);

impl WriteLimiter {
    /// Allows up to `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self(memory::WriteLimiter::new(limit))
    }

    /// Takes `bytes`, and calls `pressed` before each wait.
    ///
    /// # Errors
    /// Writing is stalled.
    pub fn take(&self, bytes: u64, pressed: impl FnMut()) -> Result<(), Error> {
        self.0.take(bytes, pressed)
    }

    /// Gives `bytes` back.
    pub fn give(&self, bytes: u64) {
        self.0.give(bytes);
    }

    /// Bytes taken and not given back.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used()
    }

    /// Makes waiting writers fail because the device is full.
    pub fn stall(&self) {
        self.0.stall(Arc::new(Error::NoSpace));
    }

    /// Ends the stall.
    pub fn resume(&self) {
        self.0.resume();
    }
}

/// Wakes the committer, and waits for it.
#[derive(Debug, Default)]
pub struct CommitControl(write::CommitControl);

/// Why the committer runs a cycle.
#[derive(Clone, Copy, Debug)]
pub struct CommitReason {
    /// A caller waits until everything is durable.
    pub durable: bool,
}

impl CommitControl {
    /// There is data to commit.
    pub fn kick(&self) {
        self.0.kick();
    }

    /// There is work that requires everything to be durable first.
    pub fn kick_durable(&self) {
        self.0.kick_durable();
    }

    /// Writers wait for memory.
    pub fn press(&self) {
        self.0.press();
    }

    /// Waits for a durable cycle that begins after this call.
    ///
    /// # Errors
    /// The committer has stopped.
    pub fn run(&self) -> Result<(), Error> {
        self.0.run()
    }

    /// Asks the committer to end.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// The committer waits for a reason to run a cycle; `None` to end.
    pub fn next(&self) -> Option<CommitReason> {
        let reason = self.0.next()?;
        Some(CommitReason {
            durable: reason.durable,
        })
    }

    /// The committer has ended a cycle.
    pub fn end(&self) {
        self.0.end();
    }

    /// The committer runs no further cycle.
    pub fn stopped(&self) {
        self.0.stopped();
    }
}

/// Counts the pins that keep packs.
#[derive(Clone, Debug, Default)]
pub struct PackPins(pub(crate) Arc<crate::pack::PackPins>);

/// Keeps a pack while it exists.
#[derive(Debug)]
pub struct PackPin(Pin);

impl PackPins {
    /// Pins a pack.
    #[must_use]
    pub fn pin(&self, pack: PackId) -> PackPin {
        PackPin(self.0.pin(pack))
    }

    /// Whether a pin keeps a pack.
    #[must_use]
    pub fn is_pinned(&self, pack: PackId) -> bool {
        self.0.is_pinned(pack)
    }
}

impl PackPin {
    /// The pack that it keeps.
    #[must_use]
    pub fn pack(&self) -> PackId {
        self.0.pack()
    }
}

/// The cache of decoded frames.
#[derive(Debug)]
pub struct FrameCache(frame::FrameCache);

impl FrameCache {
    /// Holds up to `limit` bytes.
    #[must_use]
    pub fn new(limit: u64) -> Self {
        Self(frame::FrameCache::new(limit))
    }

    /// The frame at an offset of a pack, decoded by `load` unless it is cached.
    ///
    /// # Errors
    /// What `load` returns.
    pub fn get(
        &self,
        frame: FrameAt,
        load: impl FnOnce() -> Result<Vec<u8>, Error>,
    ) -> Result<Arc<Vec<u8>>, Error> {
        self.0.get(frame, load)
    }

    /// Adds a frame that was just written.
    pub fn put(&self, frame: FrameAt, data: Arc<Vec<u8>>) {
        self.0.put(frame, data);
    }

    /// Drops a frame.
    pub fn forget(&self, frame: FrameAt) {
        self.0.forget(frame);
    }

    /// A buffer of an evicted frame.
    #[must_use]
    pub fn memory(&self, len: usize) -> Option<Vec<u8>> {
        self.0.memory(len)
    }

    /// Bytes held, and the limit.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.0.used()
    }
}
