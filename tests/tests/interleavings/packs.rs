//! Appending to packs while others sync and seal them, on a disk that keeps what was synced.

#[allow(dead_code, unused_imports, unreachable_pub)]
#[path = "../../../store/src/pack/format.rs"]
mod format;
#[allow(dead_code)]
#[path = "../../../store/src/pack/writer.rs"]
mod writer;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};

use shale_backing::{Access, Backing};
use shale_codec::{Effort, Encoder, FrameKind, FrameMeta, Hint, parse_header};
use shale_tests::{Case, Outcome};
use shuttle::thread;

use crate::disk::{Disk, PACKS, Step};
use crate::explore_part;
use crate::pins::Pins;
use format::{DirectoryEntry, HEADER_LEN, PackId, read_directory};
use writer::{Lane, Writer};

/// What the files of the product call it.
const DIR: &str = PACKS;
const SESSION: u64 = 1;
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

/// Two write and sync into packs with room for so many frames each; one of the syncs may fail,
/// after so many others.
fn lives(frames: usize, failing: Option<u64>) {
    let disk = Disk::new();
    if let Some(after) = failing {
        disk.fail(Step::Sync, after);
    }
    let room = HEADER_LEN + frames * APPENDED[0].len();
    let backing = Arc::new(disk.clone());
    let writer = Arc::new(Writer::new(backing, [7; 16], SESSION, room as u64));
    let pins = Arc::new(Pins::default());
    let threads: Vec<_> = (0..WRITERS)
        .map(|mine| {
            let (disk, writer, pins) = (disk.clone(), Arc::clone(&writer), Arc::clone(&pins));
            thread::spawn(move || -> Vec<(u64, u64, u64)> {
                let append = |number: u64| {
                    let frame = &APPENDED[number as usize];
                    let placed = writer
                        .append(Lane::FOREGROUND, frame, &pins)
                        .expect("appending does not fail");
                    let (pack, at) = (placed.appended.pack, placed.appended.at);
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
    let mut placed: BTreeMap<u64, Vec<DirectoryEntry>> = BTreeMap::new();
    for thread in threads {
        for (pack, at, number) in thread.join().expect("a writer panicked") {
            let header = parse_header(&APPENDED[number as usize]).expect("it is whole");
            placed
                .entry(pack)
                .or_default()
                .push(DirectoryEntry::new(at, &header));
        }
    }
    writer.roll();
    writer.sync();
    for (pack, mut entries) in placed {
        assert!(!writer.is_active(pack), "not sealed");
        if writer.abandoned().contains(&pack) {
            continue;
        }
        let path = PackId(pack).path();
        let (now, durable) = disk.contents(&path);
        assert_eq!(Some(now), durable);
        let file = disk.open(&path, Access::Read).expect("it is there");
        let directory = read_directory(&*file, pack).expect("it can be read");
        entries.sort_unstable_by_key(|entry| entry.at);
        assert_eq!(directory.expect("it is sealed").entries, entries);
    }
}

fn assert_durable(disk: &Disk, pack: u64, at: u64, frame: &[u8]) {
    let (_, durable) = disk.contents(&PackId(pack).path());
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
