//! A store on a device that fails, and one that changes while somebody looks.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use shale_backing::faults::{FaultDisk, Step};
use shale_index::extent::{Extent, Place};

use super::*;
use crate::pack::PackId;

/// A store on a disk that fails on command.
fn on_faults() -> (Bench, Arc<FaultDisk>) {
    let dir = tempfile::tempdir().unwrap();
    let disk = FaultDisk::new(dir.path()).unwrap();
    let backing = disk.backing();
    (Bench::on(dir, move |_| Arc::clone(&backing)), disk)
}

/// Else later writes would subtract from a pack what was never added, and it would be deleted
/// with live frames in it.
#[test]
fn an_unreadable_leaf_leaves_nothing_uncommitted_in_the_map() {
    const CHUNKS: u64 = 2500;
    let (mut bench, disk) = on_faults();
    let file = bench.file();
    for chunk in 0..CHUNKS {
        let contents = [chunk as u8; 4096];
        bench.store().write(&file, chunk * 4096, &contents).unwrap();
    }
    bench.store().sync(&file).unwrap();
    let inner = &bench.store().inner;
    let mut encoder = FrameEncoder::new();
    let mut state = file.state.lock();
    inner.fold(&file, &mut state, &mut encoder, &[]).unwrap();
    drop(state);
    drop(file);
    bench.reopen();

    let inner = &bench.store().inner;
    let file = bench.file();
    let mut put = |offset| {
        let raw = [7; 4096];
        let kind = FrameKind::Data;
        let put = inner
            .frames
            .put(&mut encoder, kind, bench.ino, offset, Effort::Fast, &raw);
        let (part, pin) = put.unwrap();
        let extent = Extent {
            offset,
            len: 4096,
            place: Place::Frame(part),
        };
        (extent, pin)
    };
    // In the first leaf and in the last one.
    let (first, _first) = put(0);
    let (last, _last) = put((CHUNKS - 1) * 4096);
    let mut state = file.state.lock();
    let before = inner.extents(&file, &mut state, 0, 4096).unwrap();
    disk.rule(|step, _, _| (step == Step::Read).then(|| io::Error::from_raw_os_error(libc::EIO)));
    let replaced = inner.replace(&file, &mut state, &[first, last], None);
    disk.heal();
    assert_eq!(replaced.unwrap_err().errno(), libc::EIO);
    let after = inner.extents(&file, &mut state, 0, 4096).unwrap();
    assert_eq!(after, before);
    drop(state);

    bench.store().write(&file, 0, &[8; 4096]).unwrap();
    bench.store().sync(&file).unwrap();
    bench.check_usage();
}

/// What was written before, in a pack that the collector moves and deletes as soon as somebody
/// reads from it, who then finds it gone.
fn moved_when_read(bench: &Bench, disk: &FaultDisk) -> Arc<AtomicBool> {
    let inner = Arc::clone(&bench.store().inner);
    let (pack, _) = crate::pack::list(&*inner.backing).unwrap()[0];
    let moved = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&moved);
    disk.rule(move |step, path, _| {
        let meant = step == Step::Read && path == PackId(pack).path();
        if !meant || done.swap(true, Ordering::SeqCst) {
            return None;
        }
        inner.rewrite(pack, &mut FrameEncoder::new()).unwrap();
        while inner.frames.packs.live().contains_key(&pack) {
            inner.committer.run().unwrap();
        }
        Some(io::Error::from_raw_os_error(libc::ENOENT))
    });
    moved
}

#[test]
fn frames_that_move_while_a_chunk_is_merged_do_not_fail_a_sync() {
    let (mut bench, disk) = on_faults();
    drop(bench.written());
    bench.reopen();
    let mut contents = bytes(LIMIT, 1, true);
    contents[..3000].fill(9);
    let moved = moved_when_read(&bench, &disk);
    let file = bench.file();
    bench.store().write(&file, 0, &contents[..3000]).unwrap();
    let synced = bench.store().sync(&file);
    disk.heal();
    synced.unwrap();
    assert!(moved.load(Ordering::SeqCst));
    assert!(bench.contents() == contents, "contents differ");
    bench.check_usage();
}

#[test]
fn frames_that_move_while_a_file_is_described_are_found_again() {
    let (mut bench, disk) = on_faults();
    drop(bench.written());
    bench.reopen();
    let moved = moved_when_read(&bench, &disk);
    let codecs = bench.store().codecs(bench.ino);
    disk.heal();
    assert!(!codecs.unwrap().is_empty());
    assert!(moved.load(Ordering::SeqCst));
}
