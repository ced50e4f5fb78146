//! Appending to packs without a store around it.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use shale_backing::{Backing, BackingFile};
use shale_codec::FrameMeta;

use super::format::{HEADER_LEN, PackId, entries_of, read_directory};
use super::pin::Pin;
use super::writer::{self, Lane};
use crate::Error;
use crate::testing::PackPins;

/// Appends frames to packs of one session.
#[derive(Debug)]
pub struct PackWriter(writer::PackAppender);

/// Where a frame was put. Keeps its pack while it exists.
#[derive(Debug)]
pub struct PlacedFrame {
    /// The pack.
    pub pack: PackId,
    /// Where in the pack.
    pub at: u64,
    _pin: Pin,
}

/// A frame that the directory of a sealed pack lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListedFrame {
    /// Where in the pack.
    pub at: u64,
    /// Length as stored.
    pub frame_len: u32,
    /// Length decoded.
    pub raw_len: u32,
    /// Which part of which file.
    pub meta: FrameMeta,
}

impl PackWriter {
    /// Writes packs that have room for `frame_bytes` bytes of frames.
    #[must_use]
    pub fn new(backing: Arc<dyn Backing>, frame_bytes: usize) -> Self {
        let seal_bytes = (HEADER_LEN + frame_bytes) as u64;
        Self(writer::PackAppender::new(backing, [7; 16], 1, seal_bytes))
    }

    /// Appends a frame, as the foreground does.
    ///
    /// # Errors
    /// What the device says.
    pub fn append(&self, frame: &[u8], pins: &PackPins) -> Result<PlacedFrame, Error> {
        let entries = entries_of(frame)?;
        let placed = self.0.append(Lane::FOREGROUND, frame, &entries, &pins.0)?;
        Ok(PlacedFrame {
            pack: placed.at.pack,
            at: placed.at.at,
            _pin: placed.pin,
        })
    }

    /// Makes everything durable that was appended before.
    pub fn sync(&self) {
        self.0.sync();
    }

    /// Lets no pack grow further.
    pub fn roll(&self) {
        self.0.roll();
    }

    /// Whether a pack may still grow.
    #[must_use]
    pub fn is_active(&self, pack: PackId) -> bool {
        self.0.is_active(pack)
    }

    /// Packs that could not be synced.
    #[must_use]
    pub fn abandoned(&self) -> BTreeSet<PackId> {
        self.0.abandoned().into_iter().collect()
    }
}

/// Frames that the directory of a pack lists; `None` when the pack is not sealed.
///
/// # Errors
/// What the device says, or a damaged directory.
pub fn listed_frames(file: &dyn BackingFile, pack: PackId) -> io::Result<Option<Vec<ListedFrame>>> {
    let directory = read_directory(file, pack)?;
    let listed = |entry: &super::DirectoryEntry| ListedFrame {
        at: entry.at,
        frame_len: entry.frame_len,
        raw_len: entry.raw_len,
        meta: entry.meta,
    };
    Ok(directory.map(|directory| directory.entries.iter().map(listed).collect()))
}
