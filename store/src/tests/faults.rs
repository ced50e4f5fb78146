//! A store on a device that fails, and frames that move while they are read.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::Ordering;

use shale_backing::faults::{Step, Tear};
use shale_codec::{Effort, FrameKind, Hint};
use shale_index::extent::{Extent, PackBytes, Place};

use super::{CHUNKS, LIMIT, bytes, fold, moved_when_read, on_faults, os_error};
use crate::Error;
use crate::frame::{FrameEncoder, FrameSpec};

/// Otherwise later writes would subtract bytes from a pack that were never added, and it would be
/// deleted with live frames in it.
#[test]
fn an_unreadable_leaf_leaves_nothing_uncommitted_in_the_map() {
    let (mut fixture, disk) = on_faults();
    fold(&mut fixture);
    let mut encoder = FrameEncoder::new();

    let volume = &*fixture.store().volume;
    let file = fixture.file();
    let mut put = |offset| {
        let raw = [7; 4096];
        let spec = FrameSpec {
            kind: FrameKind::Data,
            ino: fixture.ino,
            offset,
            hint: Hint::Unknown,
            effort: Effort::Fast,
        };
        let (part, pin) = volume.frames.append(&mut encoder, &spec, &raw).unwrap();
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
    let mut locked = file.lock(volume);
    let before = locked.extents(0..4096).unwrap();
    disk.rule(|step, _, _| (step == Step::Read).then(|| io::Error::from_raw_os_error(libc::EIO)));
    let replaced = locked.replace(&[first, last], None);
    disk.heal();
    assert_eq!(os_error(&replaced.unwrap_err()), Some(libc::EIO));
    let after = locked.extents(0..4096).unwrap();
    assert_eq!(after, before);
    drop(locked);

    fixture.store().write(&file, 0, &[8; 4096]).unwrap();
    fixture.store().sync(&file).unwrap();
    fixture.check_usage();
}

#[test]
fn new_bytes_are_stored_over_older_ones_that_are_damaged() {
    let (mut fixture, _disk) = on_faults();
    drop(fixture.written());
    fixture.reopen();
    let PackBytes { pack, bytes: len } =
        crate::pack::list(&*fixture.store().volume.backing).unwrap()[0];
    let path = fixture.dir.path().join(pack.path());
    let damaged = std::fs::File::options().write(true).open(path).unwrap();
    let header = crate::pack::HEADER_LEN as u64;
    damaged
        .write_all_at(&vec![0x55; (len - header) as usize], header)
        .unwrap();
    let file = fixture.file();
    fixture.store().write(&file, 0, &[9; 3000]).unwrap();
    fixture.store().sync(&file).unwrap();
    let mut found = Vec::new();
    fixture.store().read(&file, 0, 3000, &mut found).unwrap();
    assert_eq!(found, [9; 3000]);
    let rest = fixture.store().read(&file, 3000, 1000, &mut found);
    assert!(matches!(rest.unwrap_err(), Error::Damaged { .. }));
}

#[test]
fn a_missing_directory_of_packs_is_not_a_missing_file() {
    let (fixture, disk) = on_faults();
    let file = fixture.file();
    disk.rule(|step, path, _| {
        let is_pack = path.extension().is_some_and(|e| e == "pack");
        (step == Step::Write && is_pack).then(|| io::Error::from_raw_os_error(libc::ENOENT))
    });
    fixture.store().write(&file, 0, &[9; 3000]).unwrap();
    let refused = fixture.store().sync(&file).unwrap_err();
    assert_eq!(os_error(&refused), None, "{refused}");
    disk.heal();
    while fixture.store().sync(&file).is_err() {}
}

#[test]
fn a_pack_that_cannot_be_begun_leaves_no_file() {
    let (fixture, disk) = on_faults();
    let file = fixture.file();
    disk.rule(|step, path, _| {
        let is_pack = path.extension().is_some_and(|e| e == "pack");
        (step == Step::Write && is_pack).then(|| io::Error::from_raw_os_error(libc::EDQUOT))
    });
    fixture.store().write(&file, 0, &[9; 3000]).unwrap();
    let refused = fixture.store().sync(&file).unwrap_err();
    assert_eq!(os_error(&refused), Some(libc::EDQUOT));
    disk.heal();
    // The committer may be retrying on its own.
    while fixture.store().sync(&file).is_err() {}
    let packs = crate::pack::list(&*fixture.store().volume.backing).unwrap();
    assert_eq!(packs.len(), 1);
}

#[test]
fn frames_that_move_while_a_chunk_is_merged_do_not_fail_a_sync() {
    let (mut fixture, disk) = on_faults();
    drop(fixture.written());
    fixture.reopen();
    let mut contents = bytes(LIMIT, 1, true);
    contents[..3000].fill(9);
    let moved = moved_when_read(&fixture, &disk);
    let file = fixture.file();
    fixture.store().write(&file, 0, &contents[..3000]).unwrap();
    let synced = fixture.store().sync(&file);
    disk.heal();
    synced.unwrap();
    assert!(moved.load(Ordering::SeqCst));
    assert!(fixture.contents() == contents, "contents differ");
    fixture.check_usage();
}

#[test]
fn frames_that_move_while_a_file_is_described_are_found_again() {
    let (mut fixture, disk) = on_faults();
    drop(fixture.written());
    fixture.reopen();
    let moved = moved_when_read(&fixture, &disk);
    let codecs = fixture.store().codecs(fixture.ino);
    disk.heal();
    assert!(!codecs.unwrap().is_empty());
    assert!(moved.load(Ordering::SeqCst));
}

/// The directory of a pack is found from its end: no part of a frame that did not fit may be left
/// after it.
#[test]
fn half_a_frame_that_found_no_room_does_not_hide_the_directory() {
    let (fixture, disk) = on_faults();
    let file = fixture.file();
    let store = fixture.store();
    store.write(&file, 0, b"before").unwrap();
    store.sync(&file).unwrap();
    disk.tear(Tear::Half);
    disk.rule(|step, path, _| {
        let is_pack = path.extension().is_some_and(|e| e == "pack");
        (step == Step::Write && is_pack).then(|| io::Error::from_raw_os_error(libc::ENOSPC))
    });
    store.write(&file, 0, &bytes(100_000, 3, true)).unwrap();
    let refused = store.sync(&file).unwrap_err();
    assert_eq!(os_error(&refused), Some(libc::ENOSPC));
    disk.heal();
    // Some bytes stay live, or gc could delete the pack as soon as it is sealed.
    store.truncate(&file, 3).unwrap();
    store.sync_all().unwrap();
    store.volume.frames.packs.roll();
    assert!(store.volume.frames.packs.sync().is_empty());
    let PackBytes { pack, .. } = crate::pack::list(&*store.volume.backing).unwrap()[0];
    let packed = store.volume.frames.packs.open_pack(pack).unwrap();
    assert!(
        crate::pack::read_directory(&*packed, pack)
            .unwrap()
            .is_some()
    );
    store.close(file);
}
