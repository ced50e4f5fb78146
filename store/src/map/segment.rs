//! The segments of a folded map, as frames of kind Map hold them.
//!
//! ```text
//! root: 'R', then a list of extents: per leaf one of length 1 at the leaf's start, which points
//!       at the leaf's frame
//! leaf: 'L', then the list of its extents
//! ```

use shale_codec::{Effort, FrameKind, Hint};
use shale_index::Ino;
use shale_index::extent::{Extent, FramePart, Place, decode_extents, encode_extents};

use crate::Error;
use crate::frame::{FrameEncoder, FrameSpec, Frames};
use crate::pack::Pin;

/// The root segment: where the leaves are.
#[derive(Clone, Debug)]
pub(super) struct Root {
    pub(super) part: FramePart,
    pub(super) leaves: Vec<Leaf>,
}

/// A leaf segment: the extents from `start` to where the next leaf begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Leaf {
    pub(crate) start: u64,
    pub(crate) part: FramePart,
}

/// The frame of a segment whose range of the file begins at `offset`.
fn segment(ino: Ino, offset: u64) -> FrameSpec<'static> {
    FrameSpec {
        kind: FrameKind::Map,
        ino,
        offset,
        hint: Hint::Unknown,
        effort: Effort::Zstd(3),
    }
}

fn malformed(ino: Ino, part: &FramePart) -> Error {
    Error::Damaged {
        ino,
        offset: 0,
        pack: part.pack,
        at: part.at,
        detail: "the map segment does not decode".to_owned(),
    }
}

/// The extents of a leaf that begins at `start`: in order and without an overlap.
pub(crate) fn decode_leaf(raw: &[u8], start: u64) -> Option<Vec<Extent>> {
    let extents = decode_extents(raw.strip_prefix(b"L")?)?;
    let ordered = extents
        .windows(2)
        .all(|pair| pair[0].end() <= pair[1].offset);
    let inside = extents.first().is_none_or(|first| first.offset >= start);
    (ordered && inside).then_some(extents)
}

/// The leaves of a root.
pub(crate) fn decode_root(raw: &[u8]) -> Option<Vec<Leaf>> {
    // A leaf is written like an extent that begins where the leaf does.
    let extents = decode_extents(raw.strip_prefix(b"R")?)?;
    let leaves: Option<Vec<Leaf>> = extents
        .iter()
        .map(|extent| match extent.place {
            Place::Frame(part) => Some(Leaf {
                start: extent.offset,
                part,
            }),
            Place::Hole | Place::Tiles(_) => None,
        })
        .collect();
    let leaves = leaves?;
    let sorted = leaves.windows(2).all(|pair| pair[0].start < pair[1].start);
    (leaves.first().is_some_and(|leaf| leaf.start == 0) && sorted).then_some(leaves)
}

impl Leaf {
    pub(super) fn read(&self, frames: &Frames, ino: Ino) -> Result<Vec<Extent>, Error> {
        let raw = frames.get(&self.part, ino, self.start)?;
        decode_leaf(&raw, self.start).ok_or_else(|| malformed(ino, &self.part))
    }

    pub(super) fn write(
        frames: &Frames,
        encoder: &mut FrameEncoder,
        ino: Ino,
        start: u64,
        extents: &[Extent],
    ) -> Result<(Self, Pin), Error> {
        let mut raw = vec![b'L'];
        raw.extend_from_slice(&encode_extents(extents));
        let (part, pin) = frames.append(encoder, &segment(ino, start), &raw)?;
        Ok((Self { start, part }, pin))
    }
}

impl Root {
    pub(super) fn read(frames: &Frames, ino: Ino, part: &FramePart) -> Result<Self, Error> {
        let raw = frames.get(part, ino, 0)?;
        let leaves = decode_root(&raw).ok_or_else(|| malformed(ino, part))?;
        Ok(Self {
            part: *part,
            leaves,
        })
    }

    pub(super) fn write(
        frames: &Frames,
        encoder: &mut FrameEncoder,
        ino: Ino,
        leaves: Vec<Leaf>,
    ) -> Result<(Self, Pin), Error> {
        let list: Vec<Extent> = leaves
            .iter()
            .map(|leaf| Extent {
                offset: leaf.start,
                len: 1,
                place: Place::Frame(leaf.part),
            })
            .collect();
        let mut raw = vec![b'R'];
        raw.extend_from_slice(&encode_extents(&list));
        let (part, pin) = frames.append(encoder, &segment(ino, 0), &raw)?;
        Ok((Self { part, leaves }, pin))
    }
}
