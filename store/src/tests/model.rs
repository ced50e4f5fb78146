//! A store against a plain array of bytes.

use proptest::prelude::*;
use shale_backing::Device;
use shale_codec::Effort;
use shale_index::schema::Phase;

use super::{Fixture, LIMIT, SIZES, bytes};
use crate::frame::FrameEncoder;
use crate::gc::Rewriter;
use crate::{Block, ByteOrder, ElementKind, Region, Seek, SettleOptions};

#[derive(Clone, Debug)]
enum Step {
    Write {
        offset: usize,
        len: usize,
        seed: u8,
        noise: bool,
    },
    Truncate(usize),
    Punch {
        offset: usize,
        len: usize,
    },
    Sync,
    Read {
        offset: usize,
        len: usize,
    },
    Fold,
    Collect,
    /// Two regions at some place with records of some length.
    Settle {
        offset: usize,
        record: usize,
        records: usize,
        workers: usize,
    },
    Reopen,
}

fn regions(offset: usize, record: usize, records: usize) -> Vec<Region> {
    let block = |at: usize, width: u32, dims: &[u64]| Block {
        at: at as u64,
        width,
        kind: ElementKind::Float,
        order: ByteOrder::Little,
        dims: dims.to_vec(),
    };
    let quarter = record / 4;
    let first = Region {
        offset: offset as u64,
        records: records as u64,
        record: record as u64,
        blocks: vec![
            block(quarter % 3, 4, &[2, (quarter / 8) as u64]),
            block(2 * quarter + 3, 8, &[(quarter / 8) as u64]),
        ],
    };
    let second = Region {
        offset: (offset + record * records) as u64 + 5,
        records: 4000,
        record: 4,
        blocks: vec![block(0, 4, &[])],
    };
    vec![first, second]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..LIMIT, 1usize..9000, any::<u8>(), any::<bool>()).prop_map(
            |(offset, len, seed, noise)| Step::Write { offset, len, seed, noise }
        ),
        4 => (0..16usize, any::<u8>()).prop_map(
            |(chunk, seed)| Step::Write { offset: chunk * 4096, len: 4096, seed, noise: true }
        ),
        2 => (0..LIMIT).prop_map(Step::Truncate),
        2 => (0..LIMIT, 1usize..20_000).prop_map(|(offset, len)| Step::Punch { offset, len }),
        3 => Just(Step::Sync),
        4 => (0..LIMIT, 1usize..9000).prop_map(|(offset, len)| Step::Read { offset, len }),
        1 => Just(Step::Fold),
        1 => Just(Step::Collect),
        2 => (0..LIMIT, 100usize..5000, 1usize..40, 1usize..3).prop_map(
            |(offset, record, records, workers)| Step::Settle { offset, record, records, workers }
        ),
        1 => Just(Step::Reopen),
    ]
}

fn run(device: Device, steps: &[Step]) {
    let mut fixture = Fixture::new(device);
    let mut model: Vec<u8> = Vec::new();
    for step in steps {
        let file = fixture.file();
        let store = fixture.store();
        match *step {
            Step::Write {
                offset,
                len,
                seed,
                noise,
            } => {
                let data = bytes(len, seed, noise);
                store.write(&file, offset as u64, &data).unwrap();
                if model.len() < offset + len {
                    model.resize(offset + len, 0);
                }
                model[offset..offset + len].copy_from_slice(&data);
            }
            Step::Truncate(size) => {
                store.truncate(&file, size as u64).unwrap();
                model.resize(size, 0);
            }
            Step::Punch { offset, len } => {
                let range = offset as u64..(offset + len) as u64;
                store.punch(&file, range).unwrap();
                let end = model.len().min(offset + len);
                if offset < end {
                    model[offset..end].fill(0);
                }
            }
            Step::Sync => store.sync(&file).unwrap(),
            Step::Read { offset, len } => {
                // Remains of an earlier read in the buffer.
                let mut out = vec![0xa5; 2 * LIMIT];
                store.read(&file, offset as u64, len, &mut out).unwrap();
                let end = model.len().min(offset + len);
                assert_eq!(out, model.get(offset..end).unwrap_or(&[]));
                if let Some(data) = store.seek(&file, offset as u64, Seek::Data).unwrap() {
                    assert!(model[offset..data as usize].iter().all(|&b| b == 0));
                } else if offset < model.len() {
                    assert!(model[offset..].iter().all(|&b| b == 0));
                }
                if let Some(hole) = store.seek(&file, offset as u64, Seek::Hole).unwrap() {
                    assert!(hole as usize <= model.len() && hole as usize >= offset);
                }
            }
            Step::Fold => {
                store.sync(&file).unwrap();
                let mut encoder = FrameEncoder::new();
                let mut locked = file.lock(&store.volume);
                locked.fold(&mut encoder, &[]).unwrap();
            }
            Step::Collect => {
                store.sync(&file).unwrap();
                let packs = &store.volume.frames.packs;
                packs.roll();
                assert!(packs.sync().is_empty());
                let mut rewriter = Rewriter::new(&store.volume, &store.files);
                for (pack, live) in packs.live() {
                    if live == 0 || !packs.is_quiet(pack) {
                        continue;
                    }
                    match rewriter.rewrite(pack) {
                        Ok(()) => {}
                        // The gc thread was faster.
                        Err(e) => assert!(
                            matches!(e, crate::Error::PackGone { .. }) && packs.is_dead(pack),
                            "{e}"
                        ),
                    }
                    let left = packs.live().get(&pack).copied();
                    assert_eq!(left.unwrap_or(0), 0, "something stayed in the pack");
                }
            }
            Step::Settle {
                offset,
                record,
                records,
                workers,
            } => {
                store.sync(&file).unwrap();
                let options = SettleOptions {
                    workers,
                    effort: Effort::Dense,
                    force: true,
                    rewrite: workers == 1,
                    pace: &|_| true,
                };
                let regions = regions(offset, record, records);
                // gc may move a part of it meanwhile; then the test retries.
                let settled =
                    (0..8).any(
                        |_| match store.settler.settle(&file, &regions, &options, &SIZES) {
                            Ok(outcome) => outcome.void == 0 && !outcome.changed,
                            Err(crate::Error::PackGone { .. }) => false,
                            Err(e) => panic!("{e}"),
                        },
                    );
                assert!(settled, "moved again and again");
                let phase = store.namespace().inode(fixture.ino).unwrap().phase;
                assert_eq!(phase, Phase::Settled);
            }
            Step::Reopen => {
                drop(file);
                fixture.reopen();
                fixture.check_usage();
            }
        }
        assert_eq!(
            fixture.store().stat(fixture.ino).unwrap().inode.size,
            model.len() as u64
        );
    }
    assert!(fixture.contents() == model, "contents differ");
    fixture.reopen();
    fixture.check_usage();
    assert!(
        fixture.contents() == model,
        "contents differ after the last session"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn a_file_is_an_array_of_bytes_on_posix(steps in prop::collection::vec(step(), 1..50)) {
        run(Device::Posix, &steps);
    }

    #[test]
    fn a_file_is_an_array_of_bytes_on_pmem(steps in prop::collection::vec(step(), 1..50)) {
        run(Device::Pmem, &steps);
    }
}
