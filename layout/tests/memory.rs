//! Measures the memory of a parse. Alone in its process, because the counter sees every thread.
#![allow(missing_docs, clippy::unwrap_used)]

mod counting;
mod fuzzing;

use counting::peak_of;
use shale_layout::{Error, ParseOptions, ReadAt, parse};

/// The budget for structures, the cache, and a structure being read.
const LIMIT: usize = 16 << 20;

/// Millions of variables that a header of a petabyte claims to have.
struct Endless;

const HEAD: &[u8] = b"CDF\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x0b\x7f\xff\xff\xff";
const ENTRY: &[u8] =
    b"\0\0\0\x04name\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x04\0\0\0\x04\0\0\0\x20\0\0\0\0";

impl ReadAt for Endless {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        for (to, at) in buf.iter_mut().zip(offset as usize..) {
            *to = match at.checked_sub(HEAD.len()) {
                None => HEAD[at],
                Some(at) => ENTRY[at % ENTRY.len()],
            };
        }
        Ok(buf.len())
    }

    fn len(&self) -> u64 {
        1 << 50
    }
}

/// An HDF5 file whose first tree of chunks has a million leaves' worth of scattered chunks.
struct Scattered {
    file: Vec<u8>,
}

const NODE: u64 = 1 << 29;
const LEAVES: u64 = 1 << 30;
const LEAF: u64 = 1 << 14;
const FAN: u64 = 20_000;

impl Scattered {
    fn new() -> Self {
        let samples = fuzzing::samples();
        let found = samples.into_iter().find(|(name, _)| name == "v18.h5");
        let (_, mut file) = found.unwrap();
        let tree = file.windows(6).position(|part| part == b"TREE\x01\0");
        let tree = tree.unwrap();
        // One child, on the level above the leaves.
        file[tree + 5..tree + 8].copy_from_slice(&[2, 1, 0]);
        file[tree + 56..tree + 64].copy_from_slice(&NODE.to_le_bytes());
        Self { file }
    }

    /// A node with `FAN` or 64 children.
    fn node(level: u8, children: impl Iterator<Item = u64>, count: u16) -> Vec<u8> {
        let mut node = b"TREE\x01".to_vec();
        node.push(level);
        node.extend(count.to_le_bytes());
        node.extend([0xff; 16]);
        for child in children {
            // Length, filters skipped, place of the chunk.
            node.extend([0xff, 0xff, 0, 0, 0, 0, 0, 0]);
            node.extend([0; 24]);
            node.extend(child.to_le_bytes());
        }
        node
    }
}

impl ReadAt for Scattered {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        let (node, start) = if offset < NODE {
            return self.file.read_at(offset, buf);
        } else if offset < LEAVES {
            let children = (0..FAN).map(|number| LEAVES + number * LEAF);
            (Self::node(1, children, FAN as u16), NODE)
        } else {
            let number = (offset - LEAVES) / LEAF;
            let children = (0..64).map(|child| (1 << 40) + (child * FAN + number) * 1000);
            (Self::node(0, children, 64), LEAVES + number * LEAF)
        };
        let end = if offset < LEAVES {
            LEAVES
        } else {
            start + LEAF
        };
        let len = buf.len().min((end - offset) as usize);
        for (to, at) in buf[..len].iter_mut().zip((offset - start) as usize..) {
            *to = node.get(at).copied().unwrap_or(0);
        }
        Ok(len)
    }

    fn len(&self) -> u64 {
        1 << 50
    }
}

#[test]
fn hostile_files_take_no_more_than_the_budget() {
    let (layout, peak) = peak_of(|| parse(&Endless, &ParseOptions::default()));
    assert!(layout.problem().is_some());
    println!("without end: {peak} bytes, {:?}", layout.problem());
    assert!(peak < LIMIT, "{peak} bytes for a header without end");
    drop(layout);

    let scattered = Scattered::new();
    // Slow because of the source, not the parser.
    let mut options = ParseOptions::default();
    options.budget.time *= 30;
    let (layout, peak) = peak_of(|| parse(&scattered, &options));
    println!("scattered: {peak} bytes, {:?}", layout.problem());
    assert!(matches!(
        layout.problem(),
        Some(Error::StructureBudget { .. })
    ));
    assert!(layout.extents().len() > 10_000);
    assert!(peak < LIMIT, "{peak} bytes for scattered chunks");

    for (name, file) in fuzzing::samples() {
        for at in (0..file.len().min(6000)).step_by(499) {
            let mut damaged = file.clone();
            for byte in damaged.iter_mut().skip(at).take(4) {
                *byte = 0xff;
            }
            let (layout, peak) = peak_of(|| parse(&damaged, &ParseOptions::default()));
            assert!(peak < LIMIT, "{name}: {peak} bytes");
            fuzzing::keeps(&name, &damaged, &layout, false);
        }
    }
}
