//! Appending to packs while others sync and seal them, on a disk that keeps what was synced.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use shale_backing::{Access, Backing};
use shale_codec::{Effort, Encoder, FrameKind, FrameMeta, Hint, parse_header};
use shale_index::extent::PackId;
use shale_store::testing::{ListedFrame, PackPins, PackWriter, listed_frames};
use shale_tests::{Case, Outcome};
use shuttle::thread;

use crate::disk::{Disk, Step};
use crate::explore_part;

const WRITERS: u64 = 2;
const FRAMES: u64 = 2;

/// A frame for each that is appended, all of one length.
static APPENDED: LazyLock<Vec<Vec<u8>>> = LazyLock::new(|| {
    let encode = |inode| {
        let meta = FrameMeta {
            kind: FrameKind::Data,
            inode,
            offset: 0,
            sequence: 1,
        };
        let (mut frame, raw) = (Vec::new(), [inode as u8; 32]);
        Encoder::new()
            .encode(&meta, &Hint::Unknown, Effort::None, &raw, &mut frame)
            .expect("it is small");
        frame
    };
    (0..WRITERS * FRAMES).map(encode).collect()
});

/// Two threads write and sync packs with room for `frames` frames each. One of the syncs may fail,
/// after `failing` others.
fn lives(frames: usize, failing: Option<u64>) {
    let disk = Disk::new();
    if let Some(after) = failing {
        disk.fail(Step::Sync, after);
    }
    let room = frames * APPENDED[0].len();
    let backing = Arc::new(disk.clone());
    let writer = Arc::new(PackWriter::new(backing, room));
    let pins = PackPins::default();
    let threads: Vec<_> = (0..WRITERS)
        .map(|mine| {
            let (disk, writer, pins) = (disk.clone(), Arc::clone(&writer), pins.clone());
            thread::spawn(move || -> Vec<(PackId, u64, u64)> {
                let append = |number: u64| {
                    let frame = &APPENDED[number as usize];
                    let placed = writer
                        .append(frame, &pins)
                        .expect("appending does not fail");
                    let (pack, at) = (placed.pack, placed.at);
                    assert!(pins.is_pinned(pack));
                    writer.sync();
                    if !writer.abandoned().contains(&pack) {
                        assert_durable(&disk, pack, at, frame);
                    }
                    (pack, at, number)
                };
                (mine * FRAMES..(mine + 1) * FRAMES).map(append).collect()
            })
        })
        .collect();
    let mut placed: BTreeMap<PackId, Vec<ListedFrame>> = BTreeMap::new();
    for thread in threads {
        for (pack, at, number) in thread.join().expect("a writer panicked") {
            let header = parse_header(&APPENDED[number as usize]).expect("it is whole");
            placed.entry(pack).or_default().push(ListedFrame {
                at,
                frame_len: header.frame_len,
                raw_len: header.raw_len,
                meta: header.meta,
            });
        }
    }
    writer.roll();
    writer.sync();
    for (pack, mut entries) in placed {
        assert!(!writer.is_active(pack), "not sealed");
        if writer.abandoned().contains(&pack) {
            continue;
        }
        let path = pack.path();
        let (now, durable) = disk.contents(&path);
        assert_eq!(Some(now), durable);
        let file = disk.open(&path, Access::Read).expect("it is there");
        let listed = listed_frames(&*file, pack).expect("it can be read");
        entries.sort_unstable_by_key(|entry| entry.at);
        assert_eq!(listed.expect("it is sealed"), entries);
    }
}

fn assert_durable(disk: &Disk, pack: PackId, at: u64, frame: &[u8]) {
    let (_, durable) = disk.contents(&pack.path());
    let durable = durable.expect("a name is not durable");
    let found = durable.get(at as usize..at as usize + frame.len());
    assert_eq!(found, Some(frame), "a frame is not durable");
}

pub(crate) fn appended(_case: &Case) -> Outcome {
    LazyLock::force(&APPENDED);
    explore_part(4, || lives(1, None))?;
    explore_part(4, || lives(2, None))
}

pub(crate) fn lost(_case: &Case) -> Outcome {
    LazyLock::force(&APPENDED);
    explore_part(4, || lives(2, Some(2)))
}
