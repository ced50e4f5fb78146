//! Damaged and hostile files: any bytes give a valid layout.
#![allow(missing_docs, clippy::unwrap_used)]

mod fuzzing;

use std::time::{Duration, Instant};

use fuzzing::{check, samples};
use shale_layout::{Error, ParseBudget, ParseOptions, ReadAt, parse};

/// Reproducible pseudo-random numbers.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % sides.max(1)
    }
}

/// How often to damage a file: large ones take longer.
fn rounds(file: &[u8], most: usize) -> usize {
    (1_500_000 / file.len()).clamp(10, most)
}

/// Bytes that parsers read; damage elsewhere goes unnoticed.
fn parsed_places(file: &[u8]) -> Vec<usize> {
    let layout = parse(&file, &ParseOptions::default());
    layout
        .parsed()
        .iter()
        .flat_map(|range| range.start as usize..range.end as usize)
        .collect()
}

#[test]
fn flipped_bits() {
    for (name, file) in samples() {
        let places = parsed_places(&file);
        let mut dice = Dice(1);
        for _ in 0..rounds(&file, 100) {
            let mut damaged = file.clone();
            for _ in 0..=dice.roll(3) {
                let at = places[dice.roll(places.len())];
                damaged[at] ^= 1 << dice.roll(8);
            }
            check(&name, &damaged);
        }
    }
}

#[test]
fn hostile_numbers() {
    const NUMBERS: [u64; 10] = [
        0,
        1,
        0xff,
        0xffff,
        0x7fff_ffff,
        0xffff_ffff,
        0x7fff_ffff_ffff_ffff,
        0xffff_ffff_ffff_ffff,
        0x0100_0000_0000_0000,
        0x8000_0000,
    ];
    for (name, file) in samples() {
        let places = parsed_places(&file);
        let mut dice = Dice(2);
        for _ in 0..rounds(&file, 120) {
            let mut damaged = file.clone();
            for _ in 0..=dice.roll(2) {
                let at = places[dice.roll(places.len())];
                let width = 1 << dice.roll(4);
                let number = NUMBERS[dice.roll(NUMBERS.len())].to_le_bytes();
                for (to, from) in damaged.iter_mut().skip(at).zip(&number[..width]) {
                    *to = *from;
                }
            }
            check(&name, &damaged);
        }
    }
}

#[test]
fn parts_of_the_file_in_the_wrong_place() {
    for (name, file) in samples() {
        let mut dice = Dice(3);
        for _ in 0..rounds(&file, 40) {
            let mut damaged = file.clone();
            let len = 1 + dice.roll(64.min(file.len()));
            let from = dice.roll(file.len() - len + 1);
            let to = dice.roll(file.len() - len + 1);
            damaged.copy_within(from..from + len, to);
            check(&name, &damaged);
        }
    }
}

#[test]
fn a_change_that_leaves_a_layout_fresh_leaves_it_the_same() {
    for (name, file) in samples() {
        let len = file.len() as u64;
        let layout = parse(&file, &ParseOptions::default());
        let mut dice = Dice(6);
        for _ in 0..rounds(&file, 60) {
            let mut changed = file.clone();
            for _ in 0..200 {
                let start = dice.roll(file.len());
                let end = (start + 1 + dice.roll(40)).min(file.len());
                if !layout.is_stale_after(&(start as u64..end as u64), len) {
                    changed[start..end].fill(dice.roll(256) as u8);
                }
            }
            assert_eq!(parse(&changed, &ParseOptions::default()), layout, "{name}");
        }
    }
}

#[test]
fn truncated_files() {
    for (name, file) in samples() {
        let mut dice = Dice(4);
        for len in (0..file.len().min(300)).step_by(3) {
            check(&name, &file[..len]);
        }
        for _ in 0..rounds(&file, 40) {
            check(&name, &file[..dice.roll(file.len())]);
        }
    }
}

#[test]
fn noise_behind_every_magic() {
    let mut dice = Dice(5);
    for magic in [
        &b"CDF\x01"[..],
        b"CDF\x02",
        b"CDF\x05",
        b"\x89HDF\r\n\x1a\n\0",
        b"\x89HDF\r\n\x1a\n\x02\x08\x08",
        b"\x93NUMPY\x01\0",
        b"SIMPLE  =                    T",
    ] {
        for _ in 0..300 {
            let mut file = magic.to_vec();
            file.extend((0..dice.roll(600)).map(|_| dice.0.to_le_bytes()[5]));
            for byte in file.iter_mut().skip(magic.len()) {
                *byte = dice.roll(256) as u8 & dice.roll(256) as u8;
            }
            check("noise", &file);
        }
    }
}

/// A file of a petabyte that repeats itself behind its start.
struct Endless {
    head: Vec<u8>,
    period: Vec<u8>,
}

impl ReadAt for Endless {
    fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
        for (to, at) in buf.iter_mut().zip(offset..) {
            *to = match self.head.get(at as usize) {
                Some(&byte) => byte,
                None => {
                    let at = at as usize - self.head.len();
                    self.period[at % self.period.len()]
                }
            };
        }
        Ok(buf.len())
    }

    fn len(&self) -> u64 {
        1 << 50
    }
}

#[test]
fn a_header_without_end_is_given_up() {
    let mut head = b"CDF\x05".to_vec();
    head.extend(0u64.to_be_bytes());
    head.extend([0; 12]);
    head.extend([0; 12]);
    head.extend(0x0bu32.to_be_bytes());
    head.extend((1u64 << 46).to_be_bytes());
    let mut period = Vec::new();
    // A scalar without a name, without attributes, of type int.
    period.extend(0u64.to_be_bytes());
    period.extend(0u64.to_be_bytes());
    period.extend([0; 12]);
    period.extend(4u32.to_be_bytes());
    period.extend(4u64.to_be_bytes());
    period.extend((1u64 << 40).to_be_bytes());
    let started = Instant::now();
    let layout = parse(&Endless { head, period }, &ParseOptions::default());
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(matches!(
        layout.problem(),
        Some(Error::StructureBudget { .. } | Error::TimeBudget { .. } | Error::ReadBudget { .. })
    ));
    assert_eq!(layout.extents(), []);
}

#[test]
fn budgets_are_kept() {
    for (name, file) in samples() {
        for budget in [
            ParseBudget {
                read_bytes: 6000,
                ..ParseBudget::default()
            },
            ParseBudget {
                structure_bytes: 1500,
                ..ParseBudget::default()
            },
            ParseBudget {
                time: Duration::ZERO,
                ..ParseBudget::default()
            },
        ] {
            let options = ParseOptions {
                budget,
                growing: false,
            };
            let layout = parse(&file, &options);
            if budget.time.is_zero() {
                assert_eq!(
                    layout.problem(),
                    Some(&Error::TimeBudget { limit_ms: 0 }),
                    "{name}"
                );
            }
            fuzzing::keeps(&name, &file, &layout, false);
        }
    }
}

#[test]
fn a_source_that_fails_is_no_panic() {
    struct Failing(Vec<u8>, u64);
    impl ReadAt for Failing {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
            if offset + buf.len() as u64 > self.1 {
                return Err(std::io::Error::other("the disk is on fire"));
            }
            self.0.read_at(offset, buf)
        }
        fn len(&self) -> u64 {
            self.0.len() as u64
        }
    }
    for (name, file) in samples() {
        let source = Failing(file, 4096);
        let layout = parse(&source, &ParseOptions::default());
        fuzzing::keeps(&name, &source.0, &layout, false);
    }
    struct Shrunk;
    impl ReadAt for Shrunk {
        fn read_at(&self, _: u64, _: &mut [u8]) -> std::io::Result<usize> {
            Ok(0)
        }
        fn len(&self) -> u64 {
            1 << 20
        }
    }
    let layout = parse(&Shrunk, &ParseOptions::default());
    assert!(matches!(layout.problem(), Some(Error::OutOfFile { .. })));
}

#[test]
fn a_tree_whose_nodes_share_their_children_is_given_up() {
    // Sixteen levels of nodes, each of whose 64 children is the one node of the level below.
    let file = samples().into_iter().find(|(name, _)| name == "v18.h5");
    let (_, mut file) = file.unwrap();
    let root = file
        .windows(6)
        .position(|part| part == b"TREE\x01\0")
        .unwrap();
    let key_len = 8 + 8 * 3;
    let entries = 64 * (key_len + 8);
    let base = file.len();
    for level in 0..=15u8 {
        let own = base + usize::from(level) * (24 + entries);
        let child = (own - if level == 0 { 0 } else { 24 + entries }) as u64;
        file.extend(b"TREE\x01");
        file.extend([level, 64, 0]);
        file.extend([0xff; 16]);
        for _ in 0..64 {
            file.extend([0; 32]);
            file.extend(child.to_le_bytes());
        }
        assert_eq!(file.len(), own + 24 + entries);
    }
    let top = (base + 15 * (24 + entries)) as u64;
    // The first tree of the file now has one child: the top of that.
    file[root + 5] = 16;
    file[root + 6..root + 8].copy_from_slice(&[1, 0]);
    file[root + 24 + key_len..root + 32 + key_len].copy_from_slice(&top.to_le_bytes());
    let started = Instant::now();
    let layout = parse(&file, &ParseOptions::default());
    assert!(started.elapsed() < Duration::from_secs(5));
    assert!(matches!(
        layout.problem(),
        Some(Error::ReadBudget { .. } | Error::TimeBudget { .. } | Error::StructureBudget { .. })
    ));
    fuzzing::keeps("shared children", &file, &layout, false);
}
