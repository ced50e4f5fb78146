//! The directory of an array: its geometry and how long each tile is.
//!
//! ```text
//! 'T', then varints: records, record, number of fields, for each field
//!      number of dims, the dims, the tile's extents
//! for each tile in stored order: its length as stored
//! ```

use shale_index::encoding::{Reader, put_varint};
use shale_index::extent::{FramePart, TilePart};

use super::{Field, Geometry};

/// An array and where its tiles are.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TileDirectory {
    geometry: Geometry,
    tiles: Vec<Tile>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Tile {
    /// Where it begins in the body.
    begin: u64,
    /// Its length as stored.
    len: u32,
    /// Its decoded length.
    raw_len: u32,
}

impl TileDirectory {
    /// Encodes a directory; `lengths` are those of the tiles in stored order.
    pub(crate) fn encode(geometry: &Geometry, lengths: &[u32]) -> Vec<u8> {
        let mut out = vec![b'T'];
        put_varint(&mut out, geometry.records());
        put_varint(&mut out, geometry.record());
        put_varint(&mut out, geometry.fields().len() as u64);
        for field in geometry.fields() {
            put_varint(&mut out, field.dims.len() as u64);
            for &n in field.dims.iter().chain(&field.tile) {
                put_varint(&mut out, n);
            }
        }
        for &len in lengths {
            put_varint(&mut out, u64::from(len));
        }
        out
    }

    /// `None` when the bytes are not the directory of an array with a body of that length.
    pub(crate) fn decode(bytes: &[u8], body: u64) -> Option<Self> {
        let (directory, found) = Self::decode_unbound(bytes)?;
        (found == body).then_some(directory)
    }

    /// The directory and the length of the body that it describes.
    pub(crate) fn decode_unbound(bytes: &[u8]) -> Option<(Self, u64)> {
        let mut reader = Reader::new(bytes.strip_prefix(b"T")?);
        let (records, record) = (reader.varint()?, reader.varint()?);
        let count = reader.varint()?;
        let mut fields = Vec::new();
        let mut at = 0u64;
        for _ in 0..count {
            let dims = reader.varint()?;
            let mut take = |n: u64| (0..n).map(|_| reader.varint()).collect::<Option<Vec<_>>>();
            let dims = take(dims)?;
            let tile = take(dims.len() as u64 + 1)?;
            let len = dims.iter().try_fold(1u64, |all, &n| all.checked_mul(n))?;
            fields.push(Field { at, dims, tile });
            at = at.checked_add(len)?;
        }
        let geometry = Geometry::new(records, record, fields)?;
        let mut tiles = vec![Tile::default(); geometry.tiles()];
        let mut begin = 0u64;
        for number in geometry.order() {
            let len = reader.varint32()?;
            tiles[number as usize] = Tile {
                begin,
                len,
                raw_len: geometry.tile_len(number as usize) as u32,
            };
            begin = begin.checked_add(u64::from(len))?;
        }
        reader
            .is_empty()
            .then_some((Self { geometry, tiles }, begin))
    }

    pub(crate) fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    /// The frame of a tile of the array at `part`.
    pub(crate) fn frame(&self, part: &TilePart, number: usize) -> FramePart {
        let tile = self.tiles[number];
        FramePart {
            pack: part.pack,
            at: part.at - part.body + tile.begin,
            frame_len: tile.len,
            raw_len: tile.raw_len,
            skip: 0,
        }
    }

    /// The frames of all tiles.
    pub(crate) fn frames(&self, part: &TilePart) -> impl Iterator<Item = FramePart> {
        (0..self.tiles.len()).map(|number| self.frame(part, number))
    }
}

#[cfg(test)]
mod tests {
    use shale_index::extent::PackId;

    use super::*;
    use proptest::prelude::*;

    fn sample() -> (Geometry, Vec<u32>) {
        let fields = vec![
            Field {
                at: 0,
                dims: vec![3, 8],
                tile: vec![2, 2, 8],
            },
            Field {
                at: 24,
                dims: vec![5],
                tile: vec![4, 5],
            },
        ];
        let geometry = Geometry::new(4, 29, fields).unwrap();
        let lengths = (0..geometry.tiles() as u32).map(|i| 10 + i).collect();
        (geometry, lengths)
    }

    #[test]
    fn a_directory_knows_its_tiles_again() {
        let (geometry, lengths) = sample();
        let body = lengths.iter().map(|&len| u64::from(len)).sum();
        let bytes = TileDirectory::encode(&geometry, &lengths);
        let directory = TileDirectory::decode(&bytes, body).unwrap();
        assert_eq!(directory.geometry(), &geometry);
        let part = TilePart {
            pack: PackId(3),
            at: 1000,
            frame_len: 50,
            directory_len: bytes.len() as u32,
            body,
            raw_len: geometry.len(),
            skip: 0,
        };
        let mut at = 1000 - body;
        for (number, len) in geometry.order().into_iter().zip(lengths) {
            let frame = directory.frame(&part, number as usize);
            assert_eq!((frame.at, frame.frame_len), (at, len));
            at += u64::from(len);
        }
        assert_eq!(TileDirectory::decode(&bytes, body + 1), None);
    }

    proptest! {
        #[test]
        fn mutated_directories_never_panic(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
            cut in any::<prop::sample::Index>(),
        ) {
            let (geometry, lengths) = sample();
            let body = lengths.iter().map(|&len| u64::from(len)).sum();
            let mut bytes = TileDirectory::encode(&geometry, &lengths);
            for (index, value) in flips {
                let at = index.index(bytes.len());
                bytes[at] ^= value;
            }
            bytes.truncate(cut.index(bytes.len() + 1));
            let _ = TileDirectory::decode(&bytes, body);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes: Vec<u8>, body: u64) {
            let _ = TileDirectory::decode(&bytes, body);
        }
    }
}
