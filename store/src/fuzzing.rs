//! Invariants of the readers of a store's files, for any bytes. Fuzzing calls this, and so do tests
//! with the seeds of the fuzzer.
//!
//! Every reader gets the bytes unchanged, and once more with corrected checksums, so that the
//! damage reaches the code behind the check.

use shale_backing::static_files::{StaticFile, StaticFiles};
use shale_codec::parse_header;
use shale_index::extent::{Extent, ExtentMap, MAX_FILE_SIZE, Place};

use crate::Error;
use crate::disk::{SUPERBLOCK_FILE, Superblock};
use crate::frame::TileDirectory;
use crate::map::{decode_leaf, decode_root};
use crate::pack::{HEADER_LEN, PackId, Scanned, decode_header, read_directory, scan};

fn sign(bytes: &mut [u8], at: usize) {
    if at + 4 <= bytes.len() {
        let crc = crc32c::crc32c(&bytes[..at]);
        bytes[at..at + 4].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A superblock.
pub fn superblock(bytes: &[u8]) {
    let read =
        |bytes: &[u8]| Superblock::read(&StaticFiles::default().with(SUPERBLOCK_FILE, bytes));
    let mut bytes = bytes.to_vec();
    for _ in 0..2 {
        match read(&bytes) {
            Ok(found) => {
                let found = found.expect("it is there");
                assert_eq!(read(&found.encode()).ok(), Some(Some(found)));
            }
            Err(Error::NotAStore { .. } | Error::UnknownFormat { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        sign(&mut bytes, 60);
    }
}

/// A pack: header, frames, directory and trailer.
pub fn pack(bytes: &[u8]) {
    let mut bytes = bytes.to_vec();
    for _ in 0..2 {
        let mut pack = PackId::default();
        if let Some(header) = bytes.first_chunk::<HEADER_LEN>()
            && let Ok((_, named)) = decode_header(header)
        {
            pack = named;
        }
        let file = StaticFile::new(&bytes);
        let len = bytes.len() as u64;
        let mut at = HEADER_LEN as u64;
        scan(&file, |found| {
            let (begin, more) = match found {
                Scanned::Frame { at, header } => {
                    let frame = &bytes[at as usize..];
                    assert_eq!(parse_header(frame).ok(), Some(header));
                    (at, u64::from(header.frame_len))
                }
                Scanned::Gap { at, len } => (at, len),
            };
            assert_eq!(begin, at, "a part of the pack was left out");
            assert!(more > 0);
            at += more;
        })
        .expect("reading works");
        assert!(at == len || len < HEADER_LEN as u64, "the scan broke off");
        read_directory(&file, pack).expect("reading works");
        repair_pack(&mut bytes);
    }
}

/// Corrects the checksums of header and trailer, and points the trailer at the last frame.
fn repair_pack(bytes: &mut [u8]) {
    sign(bytes, 60);
    let Some(trailer) = bytes.len().checked_sub(32).filter(|at| *at >= HEADER_LEN) else {
        return;
    };
    let mut last = None;
    let file = StaticFile::new(&bytes[..trailer]);
    let _ = scan(&file, |found| {
        if let Scanned::Frame { at, .. } = found {
            last = Some(at);
        }
    });
    let at = last.unwrap_or(trailer as u64);
    let pack: [u8; 8] = std::array::from_fn(|n| bytes[32 + n]);
    let seal = &mut bytes[trailer..];
    seal[..8].copy_from_slice(b"SHALEPE\0");
    seal[8..16].copy_from_slice(&at.to_le_bytes());
    seal[16..20].copy_from_slice(&((trailer as u64 - at) as u32).to_le_bytes());
    seal[20..28].copy_from_slice(&pack);
    sign(seal, 28);
}

/// The contents of the frame of a map segment, or of a directory of tiles.
pub fn map(bytes: &[u8]) {
    if let Some(leaves) = decode_root(bytes) {
        assert_eq!(leaves[0].start, 0, "the leaves do not cover the file");
        assert!(leaves.is_sorted_by(|a, b| a.start < b.start));
    }
    if let Some(extents) = decode_leaf(bytes, 0) {
        let map = ExtentMap::from_extents(extents.iter().copied());
        assert_eq!(map.len(), extents.len(), "extents hide each other");
        // Any cut in two gives the same bytes, and the same stored ones.
        for cut in extents.iter().map(|extent| extent.offset + extent.len / 2) {
            let parts = map.range(0..cut).chain(map.range(cut..MAX_FILE_SIZE));
            let parts: Vec<Extent> = parts.collect();
            assert!(parts.windows(2).all(|two| two[0].end() <= two[1].offset));
            let sum = |extents: &[Extent]| -> (u128, u128) {
                extents.iter().fold((0, 0), |(len, stored), extent| {
                    (
                        len + u128::from(extent.len),
                        stored + u128::from(extent.stored()),
                    )
                })
            };
            assert_eq!(sum(&parts), sum(&extents));
        }
        for extent in &extents {
            if let Place::Tiles(part) = extent.place {
                assert!(part.body <= part.at, "tiles before their pack");
            }
        }
    }
    if let Some((directory, _)) = TileDirectory::decode_unbound(bytes) {
        assert!(directory.geometry().tiles() > 0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shale_backing::mutate::mutate_corpus;

    fn mutate(target: &str, times: usize, check: impl Fn(&[u8])) {
        mutate_corpus(Path::new(env!("CARGO_MANIFEST_DIR")), target, times, check);
    }

    #[test]
    fn any_superblock_is_read_or_refused() {
        mutate("superblock", 20_000, super::superblock);
    }

    #[test]
    fn any_pack_is_scanned_or_refused() {
        mutate("pack", 500, super::pack);
    }

    #[test]
    fn any_map_segment_is_in_order_or_refused() {
        mutate("map", 10_000, super::map);
    }
}
