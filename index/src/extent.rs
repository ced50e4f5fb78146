//! Extents: which bytes of a file live where.
//!
//! ```text
//! encoded extent: a byte for its kind, then varints: offset, len, and for
//!     kind 0, a hole:  nothing
//!     kind 1, a frame: pack, at, frame_len, raw_len, skip
//!     kind 2, tiles:   pack, at, frame_len, directory_len, body, raw_len, skip
//! ```

use std::ops::Range;
use std::path::{Path, PathBuf};

use crate::encoding::{Reader, put_varint};

/// The directory of all packs, relative to the store.
pub const PACKS_DIR: &str = "packs";

/// Bits of a pack's id that number the packs of one session.
const NUMBER_BITS: u32 = 24;

/// A pack: the session that wrote it and a number within that session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackId(pub u64);

impl PackId {
    /// A pack of a session.
    #[must_use]
    pub fn new(session: u64, number: u64) -> Self {
        Self(session << NUMBER_BITS | number)
    }

    /// The session that wrote it.
    #[must_use]
    pub fn session(self) -> u64 {
        self.0 >> NUMBER_BITS
    }

    /// The directory of a session's packs, relative to the store.
    #[must_use]
    pub fn session_dir(session: u64) -> PathBuf {
        Path::new(PACKS_DIR).join(format!("s{session:08x}"))
    }

    /// Its file, relative to the store.
    #[must_use]
    pub fn path(self) -> PathBuf {
        let number = self.0 & ((1 << NUMBER_BITS) - 1);
        Self::session_dir(self.session()).join(format!("{number:06x}.pack"))
    }

    /// The session in the name that [`PackId::session_dir`] made.
    #[must_use]
    pub fn session_of(dir: &Path) -> Option<u64> {
        u64::from_str_radix(dir.to_str()?.strip_prefix('s')?, 16).ok()
    }

    /// The pack of a session whose file has this name.
    #[must_use]
    pub fn parse(session: u64, file: &Path) -> Option<Self> {
        let number = u64::from_str_radix(file.to_str()?.strip_suffix(".pack")?, 16).ok()?;
        (number >> NUMBER_BITS == 0).then(|| Self::new(session, number))
    }
}

impl std::fmt::LowerHex for PackId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::LowerHex::fmt(&self.0, f)
    }
}

/// A pack and a number of bytes: those that are live, or all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PackBytes {
    /// The pack.
    pub pack: PackId,
    /// The bytes.
    pub bytes: u64,
}

/// A pack that is complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SealedPack {
    /// The pack.
    pub pack: PackId,
    /// Where its directory begins.
    pub directory: u64,
}

/// Where a frame begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FrameAt {
    /// The pack.
    pub pack: PackId,
    /// The offset in the pack.
    pub at: u64,
}

/// A part of a frame in a pack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FramePart {
    /// The pack.
    pub pack: PackId,
    /// Where the frame begins in the pack.
    pub at: u64,
    /// Length of the whole frame as stored.
    pub frame_len: u32,
    /// Length of the whole frame decoded.
    pub raw_len: u32,
    /// Decoded bytes of the frame before the part.
    pub skip: u32,
}

impl FramePart {
    /// Where the frame begins.
    #[must_use]
    pub fn frame_at(&self) -> FrameAt {
        FrameAt {
            pack: self.pack,
            at: self.at,
        }
    }

    /// Stored bytes that `len` decoded bytes of this part account for. Additive: the shares of the
    /// pieces of a frame add up to its stored length, however it is cut.
    #[must_use]
    pub fn share(&self, len: u64) -> u64 {
        let (frame_len, raw_len) = (u64::from(self.frame_len), u64::from(self.raw_len));
        share(frame_len, raw_len, u64::from(self.skip), len)
    }
}

/// The share of `len` of `raw_len` bytes from `skip` on in `stored` bytes.
fn share(stored: u64, raw_len: u64, skip: u64, len: u64) -> u64 {
    if raw_len == 0 {
        return 0;
    }
    let scale = |raw: u64| u128::from(raw) * u128::from(stored) / u128::from(raw_len);
    (scale(skip + len) - scale(skip)) as u64
}

/// A part of an array that is stored as tiles: contiguous frames in a pack, followed by the frame
/// of their directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TilePart {
    /// The pack.
    pub pack: PackId,
    /// Where the frame of the directory begins in the pack.
    pub at: u64,
    /// Length of the directory's frame as stored.
    pub frame_len: u32,
    /// Length of the directory decoded.
    pub directory_len: u32,
    /// Stored length of the tiles, which end where the directory begins.
    pub body: u64,
    /// Length of the whole array in the file.
    pub raw_len: u64,
    /// Bytes of the array before the part.
    pub skip: u64,
}

impl TilePart {
    /// Stored bytes of the whole array.
    #[must_use]
    pub fn stored(&self) -> u64 {
        self.body.saturating_add(u64::from(self.frame_len))
    }

    /// Where the frame of the directory begins.
    #[must_use]
    pub fn frame_at(&self) -> FrameAt {
        FrameAt {
            pack: self.pack,
            at: self.at,
        }
    }

    /// The frame of the directory.
    #[must_use]
    pub fn directory(&self) -> FramePart {
        FramePart {
            pack: self.pack,
            at: self.at,
            frame_len: self.frame_len,
            raw_len: self.directory_len,
            skip: 0,
        }
    }
}

/// The place of an extent's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// Nothing: reads as zeros and hides the extents below.
    Hole,
    /// Part of a frame.
    Frame(FramePart),
    /// Part of an array of tiles.
    Tiles(TilePart),
}

impl Place {
    /// The pack that holds it; `None` for a hole.
    #[must_use]
    pub fn pack(&self) -> Option<PackId> {
        self.origin().map(|frame| frame.pack)
    }

    /// Where the frame or the directory of tiles begins.
    #[must_use]
    pub fn origin(&self) -> Option<FrameAt> {
        match self {
            Self::Hole => None,
            Self::Frame(part) => Some(part.frame_at()),
            Self::Tiles(part) => Some(part.frame_at()),
        }
    }
}

/// A byte range of a file and where it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// First byte in the file.
    pub offset: u64,
    /// Number of bytes, never 0.
    pub len: u64,
    /// Where they are.
    pub place: Place,
}

impl Extent {
    /// First byte after the extent.
    #[must_use]
    pub fn end(&self) -> u64 {
        self.offset + self.len
    }

    /// The bytes of the file that it covers.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.offset..self.end()
    }

    /// Stored bytes the extent accounts for.
    #[must_use]
    pub fn stored(&self) -> u64 {
        match &self.place {
            Place::Hole => 0,
            Place::Frame(part) => part.share(self.len),
            Place::Tiles(part) => share(part.stored(), part.raw_len, part.skip, self.len),
        }
    }

    /// The part of the extent in a range of the file, if any.
    #[must_use]
    pub fn slice(&self, range: Range<u64>) -> Option<Self> {
        let start = range.start.max(self.offset);
        let end = range.end.min(self.end());
        if start >= end {
            return None;
        }
        let place = match self.place {
            Place::Hole => Place::Hole,
            Place::Frame(part) => Place::Frame(FramePart {
                skip: part.skip + (start - self.offset) as u32,
                ..part
            }),
            Place::Tiles(part) => Place::Tiles(TilePart {
                skip: part.skip + (start - self.offset),
                ..part
            }),
        };
        Some(Self {
            offset: start,
            len: end - start,
            place,
        })
    }

    /// Whether `next` continues this extent in the file and in the same frame.
    fn continues(&self, next: &Self) -> bool {
        self.end() == next.offset
            && match (&self.place, &next.place) {
                (Place::Hole, Place::Hole) => true,
                (Place::Frame(a), Place::Frame(b)) => {
                    a.pack == b.pack
                        && a.at == b.at
                        && u64::from(a.skip) + self.len == u64::from(b.skip)
                }
                (Place::Tiles(a), Place::Tiles(b)) => {
                    a.pack == b.pack && a.at == b.at && a.skip + self.len == b.skip
                }
                _ => false,
            }
    }

    /// Appends the encoded extent.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.push(match &self.place {
            Place::Hole => HOLE,
            Place::Frame(_) => FRAME,
            Place::Tiles(_) => TILES,
        });
        put_varint(out, self.offset);
        put_varint(out, self.len);
        match &self.place {
            Place::Hole => {}
            Place::Frame(part) => {
                put_varint(out, part.pack.0);
                put_varint(out, part.at);
                put_varint(out, u64::from(part.frame_len));
                put_varint(out, u64::from(part.raw_len));
                put_varint(out, u64::from(part.skip));
            }
            Place::Tiles(part) => {
                put_varint(out, part.pack.0);
                put_varint(out, part.at);
                put_varint(out, u64::from(part.frame_len));
                put_varint(out, u64::from(part.directory_len));
                put_varint(out, part.body);
                put_varint(out, part.raw_len);
                put_varint(out, part.skip);
            }
        }
    }

    pub(crate) fn decode(reader: &mut Reader<'_>) -> Option<Self> {
        let kind = reader.byte()?;
        let offset = reader.varint()?;
        let len = reader.varint()?;
        let end = offset.checked_add(len)?;
        if len == 0 || end > MAX_FILE_SIZE {
            return None;
        }
        let place = match kind {
            HOLE => Place::Hole,
            FRAME => {
                let part = FramePart {
                    pack: PackId(reader.varint()?),
                    at: reader.varint()?,
                    frame_len: reader.varint32()?,
                    raw_len: reader.varint32()?,
                    skip: reader.varint32()?,
                };
                let within = u64::from(part.skip) + len <= u64::from(part.raw_len);
                Place::Frame(within.then_some(part)?)
            }
            TILES => {
                let part = TilePart {
                    pack: PackId(reader.varint()?),
                    at: reader.varint()?,
                    frame_len: reader.varint32()?,
                    directory_len: reader.varint32()?,
                    body: reader.varint()?,
                    raw_len: reader.varint()?,
                    skip: reader.varint()?,
                };
                let within = part.skip.checked_add(len)? <= part.raw_len && part.body <= part.at;
                Place::Tiles(within.then_some(part)?)
            }
            _ => return None,
        };
        Some(Self { offset, len, place })
    }
}

const HOLE: u8 = 0;
const FRAME: u8 = 1;
const TILES: u8 = 2;

/// Largest size of a file: the largest signed file offset.
pub const MAX_FILE_SIZE: u64 = i64::MAX as u64;

/// Encodes a list of extents.
#[must_use]
pub fn encode_extents(extents: &[Extent]) -> Vec<u8> {
    let mut out = Vec::with_capacity(extents.len() * 24 + 4);
    put_extents(&mut out, extents);
    out
}

pub(crate) fn put_extents(out: &mut Vec<u8>, extents: &[Extent]) {
    put_varint(out, extents.len() as u64);
    for extent in extents {
        extent.encode(out);
    }
}

pub(crate) fn take_extents(reader: &mut Reader<'_>) -> Option<Vec<Extent>> {
    let count = reader.varint()?;
    let mut extents = Vec::new();
    for _ in 0..count {
        extents.push(Extent::decode(reader)?);
    }
    Some(extents)
}

/// Decodes a list of extents; `None` when the bytes are not one.
#[must_use]
pub fn decode_extents(bytes: &[u8]) -> Option<Vec<Extent>> {
    let mut reader = Reader::new(bytes);
    let extents = take_extents(&mut reader)?;
    reader.is_empty().then_some(extents)
}

/// Disjoint extents of a file in order: later insertions win.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExtentMap {
    map: std::collections::BTreeMap<u64, Extent>,
}

impl ExtentMap {
    /// A map without extents.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Builds a map from extents in the order in which they were committed.
    #[must_use]
    pub fn from_extents(extents: impl IntoIterator<Item = Extent>) -> Self {
        let mut map = Self::new();
        for extent in extents {
            map.insert(extent);
        }
        map
    }

    /// Number of extents.
    #[must_use]
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// All extents in order.
    pub fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.map.values()
    }

    /// The extents in a range, cut to it, in order; gaps are left out.
    pub fn range(&self, range: Range<u64>) -> impl Iterator<Item = Extent> {
        self.near(&range)
            .filter_map(move |(_, extent)| extent.slice(range.clone()))
    }

    /// Every extent that overlaps a range, by its offset, and perhaps one before it.
    fn near(&self, range: &Range<u64>) -> std::collections::btree_map::Range<'_, u64, Extent> {
        let first = self
            .map
            .range(..=range.start)
            .next_back()
            .map_or(range.start, |(&offset, _)| offset);
        // A range with start > end panics, and first <= start may exceed an empty end.
        self.map.range(first..range.end.max(first))
    }

    /// Removes everything in a range and returns it, cut to the range.
    pub fn remove(&mut self, range: Range<u64>) -> Vec<Extent> {
        let overlapping: Vec<u64> = self
            .near(&range)
            .filter(|(_, extent)| extent.slice(range.clone()).is_some())
            .map(|(&offset, _)| offset)
            .collect();
        let mut removed = Vec::with_capacity(overlapping.len());
        for offset in overlapping {
            let Some(extent) = self.map.remove(&offset) else {
                continue;
            };
            if let Some(head) = extent.slice(0..range.start) {
                self.map.insert(head.offset, head);
            }
            if let Some(tail) = extent.slice(range.end..u64::MAX) {
                self.map.insert(tail.offset, tail);
            }
            removed.extend(extent.slice(range.clone()));
        }
        removed
    }

    /// Lays an extent over the map and returns the hidden parts.
    pub fn insert(&mut self, extent: Extent) -> Vec<Extent> {
        let hidden = self.remove(extent.range());
        let mut merged = extent;
        if let Some((&offset, before)) = self.map.range(..extent.offset).next_back()
            && before.continues(&merged)
        {
            merged = Extent {
                len: before.len + merged.len,
                ..*before
            };
            self.map.remove(&offset);
        }
        if let Some((&offset, after)) = self.map.range(merged.end()..).next()
            && merged.continues(after)
        {
            merged.len += after.len;
            self.map.remove(&offset);
        }
        self.map.insert(merged.offset, merged);
        hidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn frame(offset: u64, len: u64, at: u64) -> Extent {
        let part = FramePart {
            pack: PackId(1),
            at,
            frame_len: 1000,
            raw_len: 4096,
            skip: 0,
        };
        Extent {
            offset,
            len,
            place: Place::Frame(part),
        }
    }

    #[test]
    fn a_path_leads_back_to_its_pack() {
        let pack = PackId::new(0x1234, 0x56);
        let path = pack.path();
        assert_eq!(path, Path::new("packs/s00001234/000056.pack"));
        let session = PackId::session_of(Path::new("s00001234")).unwrap();
        assert_eq!(PackId::parse(session, Path::new("000056.pack")), Some(pack));
        assert_eq!(PackId::parse(session, Path::new("1000000.pack")), None);
        assert_eq!(PackId::session_of(Path::new("catalog")), None);
    }

    #[test]
    fn shares_of_the_pieces_sum_up_to_the_frame() {
        let whole = frame(0, 4096, 0);
        let cuts = [0, 1, 77, 1000, 1001, 4095, 4096];
        let sum: u64 = cuts
            .windows(2)
            .filter_map(|w| whole.slice(w[0]..w[1]))
            .map(|e| e.stored())
            .sum();
        assert_eq!(sum, 1000);
    }

    #[test]
    fn pieces_that_meet_again_become_one_extent() {
        let whole = frame(0, 4096, 0);
        let mut map = ExtentMap::new();
        map.insert(whole.slice(2048..4096).unwrap());
        map.insert(whole.slice(0..2048).unwrap());
        assert_eq!(map.iter().copied().collect::<Vec<_>>(), vec![whole]);
    }

    proptest! {
        /// The map behaves like an array of bytes in which every byte remembers its writer.
        #[test]
        fn later_extents_win_for_every_byte(
            writes in prop::collection::vec((0u64..300, 1u64..100, any::<bool>()), 1..40)
        ) {
            let mut map = ExtentMap::new();
            let mut model: Vec<Option<(u64, u64)>> = vec![None; 400];
            let mut live = 0i64;
            for (i, &(offset, len, hole)) in writes.iter().enumerate() {
                let extent = if hole {
                    Extent { offset, len, place: Place::Hole }
                } else {
                    frame(offset, len, i as u64 * 10_000)
                };
                live += extent.stored() as i64;
                live -= map.insert(extent).iter().map(|e| e.stored() as i64).sum::<i64>();
                for byte in offset..offset + len {
                    model[byte as usize] =
                        (!hole).then_some((i as u64 * 10_000, byte - offset));
                }
            }
            let mut seen: Vec<Option<(u64, u64)>> = vec![None; 400];
            let mut last_end = 0;
            for extent in map.iter() {
                prop_assert!(extent.offset >= last_end);
                last_end = extent.end();
                if let Place::Frame(part) = extent.place {
                    for byte in extent.offset..extent.end() {
                        let skip = u64::from(part.skip) + byte - extent.offset;
                        seen[byte as usize] = Some((part.at, skip));
                    }
                }
            }
            prop_assert_eq!(seen, model);
            let sum: u64 = map.iter().map(Extent::stored).sum();
            prop_assert_eq!(live, sum as i64);
            let all: Vec<Extent> = map.range(0..400).collect();
            prop_assert_eq!(decode_extents(&encode_extents(&all)), Some(all));
        }

        #[test]
        fn arbitrary_bytes_are_refused_or_decoded(bytes: Vec<u8>) {
            if let Some(extents) = decode_extents(&bytes) {
                prop_assert!(extents.iter().all(|e| e.len > 0 && e.end() <= MAX_FILE_SIZE));
            }
        }
    }
}
