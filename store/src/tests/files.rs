//! The table of open files.

use shale_backing::Device;
use shale_index::ROOT;

use super::{Fixture, LIMIT, bytes, on_faults};
use crate::{CurrentInode, Error};

/// Otherwise settling or gc could move frames that are being counted as freed.
fn a_file_that_is_going_cannot_be_worked_on(device: Device) {
    let fixture = Fixture::new(device);
    let file = fixture.written();
    fixture.store().close(file);
    fixture.store().namespace().unlink(ROOT, b"f").unwrap();
    // The committer finishes with it a moment after the sync.
    while fixture.store().files.len() > 0 {
        std::thread::yield_now();
    }
    fixture.store().release_orphan(fixture.ino);
    let refused = fixture.store().file(fixture.ino).unwrap_err();
    assert!(matches!(refused, Error::NotFound { .. }), "{refused}");
}

fn a_file_is_forgotten_by_its_last_user(device: Device) {
    let fixture = Fixture::new(device);
    let files = &fixture.store().files;
    fixture.store().close(fixture.written());
    while files.len() > 0 {
        std::thread::yield_now();
    }
    let file = fixture.file();
    let looked_at = files.in_use(fixture.ino).unwrap();
    fixture.store().close(file);
    assert_eq!(files.len(), 1);
    drop(looked_at);
    assert_eq!(files.len(), 0);
}

/// The index is read before, and the file looked up after, its commit.
fn what_is_committed_during_a_look_is_seen(device: Device) {
    let fixture = Fixture::new(device);
    let store = fixture.store();
    let file = fixture.file();
    store.write(&file, 0, &bytes(LIMIT, 1, true)).unwrap();
    let seen = store.files.stat_found(|| {
        let before = store.namespace().inode(fixture.ino)?;
        assert_eq!(before.size, 0);
        store.sync(&file)?;
        store.close(file);
        while store.files.len() > 0 {
            std::thread::yield_now();
        }
        Ok(before)
    });
    let CurrentInode { inode, unwritten } = seen.unwrap();
    assert_eq!((inode.size, unwritten), (LIMIT as u64, 0));
}

/// Counting takes one lock after the other. Holding both, it would deadlock with a thread that
/// forgets a file.
#[test]
fn counting_files_while_others_are_forgotten_comes_to_an_end() {
    let (fixture, _disk) = on_faults();
    let store = fixture.store();
    std::thread::scope(|scope| {
        scope.spawn(|| (0..20_000).for_each(|_| assert!(store.files.discard(u64::MAX))));
        (0..20_000).for_each(|_| assert_eq!(store.gauges().dirty_files, 0));
    });
}

on_every_device! {
    a_file_that_is_going_cannot_be_worked_on,
    a_file_is_forgotten_by_its_last_user,
    what_is_committed_during_a_look_is_seen,
}
