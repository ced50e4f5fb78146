//! Garbage collection, and the end of deleted files.

use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use shale_backing::Device;
use shale_backing::failpoint::{Stage, panic_at};
use shale_backing::faults::Step;
use shale_codec::{Effort, FrameKind, Hint};
use shale_index::ROOT;
use shale_index::extent::PackBytes;

use super::{Fixture, LIMIT, bytes, collected, fold, moved_when_read, on_faults, upkeep};
use crate::frame::{FrameEncoder, FrameSpec};
use crate::write::Upkeep;
use crate::{File, GcState};

fn a_deleted_file_gives_its_packs_back(device: Device) {
    let fixture = Fixture::new(device);
    let file = fixture.written();
    drop(file);
    fixture.store().namespace().unlink(ROOT, b"f").unwrap();
    fixture.store().release_orphan(fixture.ino);
    fixture.store().volume.frames.packs.roll();
    while !crate::pack::list(&*fixture.store().volume.backing)
        .unwrap()
        .is_empty()
    {
        fixture.store().sync_all().unwrap();
    }
    assert!(fixture.store().namespace().orphans().unwrap().0.is_empty());
}

/// As when everything in it was settled or copied in vain.
fn a_pack_in_which_nothing_is_committed_is_deleted(device: Device) {
    let fixture = Fixture::new(device);
    let volume = &*fixture.store().volume;
    let (_, pin) = volume
        .frames
        .append(
            &mut FrameEncoder::new(),
            &FrameSpec {
                kind: FrameKind::Data,
                ino: fixture.ino,
                offset: 0,
                hint: Hint::Unknown,
                effort: Effort::Fast,
            },
            &bytes(LIMIT, 1, true),
        )
        .unwrap();
    volume.frames.packs.roll();
    let packs = || crate::pack::list(&*volume.backing).unwrap().len();
    for _ in 0..3 {
        fixture.store().sync_all().unwrap();
        assert_eq!(
            packs(),
            1,
            "deleted though something in it waits for a commit"
        );
    }
    drop(pin);
    for _ in 0..3 {
        fixture.store().sync_all().unwrap();
    }
    assert_eq!(packs(), 0);
}

/// Otherwise a store of less than a gigabyte would never shrink.
fn what_is_dead_in_a_pack_that_grows_is_given_back_at_rest(device: Device) {
    let fixture = Fixture::new(device);
    let (store, file) = (fixture.store(), fixture.file());
    let packs = || crate::pack::list(&*store.volume.backing).unwrap();
    let rested = || {
        upkeep(store).rest();
        while store.gc_state() == GcState::Running {
            std::thread::yield_now();
        }
        assert_eq!(store.gc_state(), GcState::Idle);
    };
    let write = |seed| {
        let contents = bytes(2 << 20, seed, true);
        store.write(&file, 0, &contents).unwrap();
        store.sync(&file).unwrap();
        contents
    };
    write(1);
    let first = packs();
    rested();
    assert_eq!(packs(), first, "ended though all of it is alive");
    write(2);
    let contents = write(3);
    rested();
    let left = packs();
    assert!(
        first
            .iter()
            .all(|old| left.iter().all(|other| other.pack != old.pack))
    );
    let mut out = Vec::new();
    store.read(&file, 0, contents.len(), &mut out).unwrap();
    assert!(out == contents, "contents differ");
    fixture.check_usage();
}

#[test]
fn a_panic_while_collecting_is_reported_and_the_store_lives_on() {
    let fixture = Fixture::new(Device::Posix);
    let (store, file) = (fixture.store(), fixture.file());
    let bytes = vec![7; 30_000];
    store.write(&file, 0, &bytes).unwrap();
    store.sync(&file).unwrap();
    let collected = || {
        store.request_gc(90);
        while store.gc_state() == GcState::Running {
            std::thread::yield_now();
        }
        store.gc_state()
    };
    assert_eq!(collected(), GcState::Idle);
    panic_at(Stage::GcBegins, &store.path());
    assert_eq!(collected(), GcState::Failed);
    assert_eq!(store.counters().collections_failed.get(), 1);
    assert_eq!(fixture.contents(), bytes);
    store.write(&file, 0, &[8; 20_000]).unwrap();
    store.sync(&file).unwrap();
    assert_eq!(collected(), GcState::Idle);
    assert_eq!(fixture.contents()[..20_000], [8; 20_000]);
    fixture.check_usage();
}

/// Otherwise all readable frames in it would be copied again whenever bytes die.
#[test]
fn a_pack_with_an_unreadable_frame_is_copied_once() {
    let mut fixture = Fixture::new(Device::Posix);
    let other = fixture.create(b"g");
    for ino in [fixture.ino, other] {
        let file = fixture.store().file(ino).unwrap();
        let contents = bytes(LIMIT, 1, true);
        fixture.store().write(&file, 0, &contents).unwrap();
        fixture.store().sync(&file).unwrap();
    }
    fixture.reopen();
    let store = fixture.store();
    let packs = &store.volume.frames.packs;
    let pack = *packs.live().first_key_value().unwrap().0;
    let file = store.file(other).unwrap();
    // The last of the frames at the end cannot be read.
    let extents = |file: &Arc<File>| {
        let mut locked = file.lock(&store.volume);
        locked.extents(0..LIMIT as u64).unwrap()
    };
    let last = extents(&file).pop().unwrap();
    let at = last.place.origin().unwrap().at;
    let on_disk = std::fs::File::options()
        .write(true)
        .open(fixture.dir.path().join(pack.path()))
        .unwrap();
    on_disk.write_all_at(&[0; 16], at).unwrap();
    store.truncate(&fixture.file(), LIMIT as u64 / 2).unwrap();
    store.sync(&fixture.file()).unwrap();

    assert_eq!(collected(store), GcState::Failed);
    assert_eq!(packs.live()[&pack], last.stored());
    let readable = extents(&file);
    assert!(readable[..15].iter().all(|e| e.place.pack() != Some(pack)));
    let appended = store.counters().appended.get();
    assert_eq!(collected(store), GcState::Failed);
    assert_eq!(store.counters().appended.get(), appended);

    let now = Instant::now();
    assert!(store.gc.stuck(now).contains(&pack));
    let later = now + Duration::from_secs(300);
    assert!(store.gc.stuck(later).is_empty());
}

/// Settling or deleting may free the rest of a pack that is being examined.
#[test]
fn a_pack_that_dies_while_it_is_collected_is_not_a_failure() {
    let (mut fixture, disk) = on_faults();
    drop(fixture.written());
    fixture.reopen();
    let store = fixture.store();
    let file = fixture.file();
    store.truncate(&file, LIMIT as u64 / 4 * 3).unwrap();
    let moved = moved_when_read(&fixture, &disk);
    let outcome = collected(store);
    disk.heal();
    assert!(moved.load(Ordering::SeqCst));
    assert_eq!(outcome, GcState::Idle);
    fixture.check_usage();
}

#[test]
fn a_missing_pack_does_not_keep_others_from_being_collected() {
    let mut fixture = Fixture::new(Device::Posix);
    drop(fixture.written());
    fixture.reopen();
    let other = fixture.create(b"g");
    let file = fixture.store().file(other).unwrap();
    let contents = bytes(LIMIT, 2, true);
    fixture.store().write(&file, 0, &contents).unwrap();
    fixture.store().sync(&file).unwrap();
    fixture
        .store()
        .truncate(&file, LIMIT as u64 / 4 * 3)
        .unwrap();
    drop(file);
    let packs = crate::pack::list(&*fixture.store().volume.backing).unwrap();
    let [PackBytes { pack: missing, .. }, PackBytes { pack, .. }] = packs[..] else {
        panic!("a pack for each session: {packs:?}");
    };
    fixture.store.take().unwrap().shut_down().unwrap();
    std::fs::remove_file(fixture.dir.path().join(missing.path())).unwrap();
    fixture.kv = Arc::new(fixture.kv.reopen());
    fixture.open();

    let store = fixture.store();
    assert_eq!(collected(store), GcState::Failed);
    assert!(store.volume.frames.packs.live()[&missing] > 0);
    assert!(store.volume.frames.packs.is_dead(pack));
    let file = store.file(other).unwrap();
    let mut out = Vec::new();
    store.read(&file, 0, LIMIT, &mut out).unwrap();
    assert!(out == contents[..LIMIT / 4 * 3], "contents differ");
}

#[test]
fn a_deleted_file_that_cannot_be_read_keeps_no_other_space() {
    let (mut fixture, disk) = on_faults();
    fold(&mut fixture);
    let PackBytes { pack, .. } = crate::pack::list(&*fixture.store().volume.backing).unwrap()[0];
    let other = fixture.create(b"g");
    for (name, ino) in [(b"f", fixture.ino), (b"g", other)] {
        fixture.store().namespace().unlink(ROOT, name).unwrap();
        fixture.store().release_orphan(ino);
    }
    disk.rule(move |step, path, _| {
        let fails = step == Step::Read && path == pack.path();
        fails.then(|| io::Error::from_raw_os_error(libc::EIO))
    });
    while fixture.store().namespace().inode(other).is_ok() {
        assert!(upkeep(fixture.store()).after_durable_cycle().is_err());
    }
    assert!(fixture.store().namespace().inode(fixture.ino).is_ok());
    disk.heal();
    while fixture.store().namespace().inode(fixture.ino).is_ok() {
        fixture.store().sync_all().unwrap();
    }
}

on_every_device! {
    a_deleted_file_gives_its_packs_back,
    a_pack_in_which_nothing_is_committed_is_deleted,
    what_is_dead_in_a_pack_that_grows_is_given_back_at_rest,
}
