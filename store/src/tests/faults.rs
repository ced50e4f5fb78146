//! A store on a device that fails, and one that changes while somebody looks.

use std::io;

use shale_backing::faults::{FaultDisk, Step};
use shale_index::extent::{Extent, Place};

use super::*;

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
