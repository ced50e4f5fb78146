//! Upgrading a store of format 2, from the golden one.

use std::path::Path;
use std::sync::Arc;

use shale_backing::PosixBacking;
use shale_backing::faults::{FaultDisk, Left};
use shale_index::engine::{Embedded, Options};
use shale_index::schema::keys;
use shale_index::{Kv, ROOT};

use super::golden::{assert_contents, copy, golden};
use super::{node, options};
use crate::Store;
use crate::disk::{Format, Superblock};
use crate::fsck::{FsckOptions, fsck};

fn format(path: &Path) -> Format {
    let superblock = Superblock::read(&PosixBacking::new(path)).unwrap();
    superblock.unwrap().format
}

fn assert_sound(path: &Path) {
    let report = fsck(path, &FsckOptions::default(), &mut |_, _| {}).unwrap();
    assert_eq!(report.problems, []);
    assert_contents(path);
}

/// Asserts that no key of format 2 is left.
fn assert_moved(path: &Path) {
    let options = Options {
        read_only: true,
        ..Options::default()
    };
    let (kv, _) = Embedded::open(Arc::new(PosixBacking::new(path)), options).unwrap();
    kv.dump(&mut |key, _| {
        assert!(keys::old::record_of(key).is_none());
        assert!(keys::old::totals_of(key).is_none());
        assert!(keys::old::pack_of(key).is_none());
        Ok(())
    })
    .unwrap();
}

#[test]
fn the_first_mount_upgrades_and_the_next_one_finds_nothing_to_do() {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden(), dir.path());
    assert_eq!(format(dir.path()), Format::Old);
    assert_sound(dir.path());
    for _ in 0..2 {
        let store = Store::open(dir.path(), &options()).unwrap();
        store.shut_down().unwrap();
        drop(store);
        assert_eq!(format(dir.path()), Format::Current);
        assert_moved(dir.path());
        assert_sound(dir.path());
    }
}

/// Also for a rebuild that has nothing else to go by.
#[test]
fn frames_and_inodes_of_an_upgraded_store_are_newer_than_before() {
    let dir = tempfile::tempdir().unwrap();
    copy(&golden(), dir.path());
    let store = Store::open(dir.path(), &options()).unwrap();
    let old = store.look_up(ROOT, b"array.npy").unwrap().inode.ino;
    let file = store.file(old).unwrap();
    store.write(&file, 0, &[7; 128]).unwrap();
    store.sync(&file).unwrap();
    store.close(file);
    let made = store.create(ROOT, b"new", |_| node()).unwrap().ino;
    assert!(made > old);
    store.shut_down().unwrap();
    drop(store);
    for gone in ["index", "packs/catalog"] {
        std::fs::remove_dir_all(dir.path().join(gone)).unwrap();
    }
    let rebuild = FsckOptions {
        rebuild: true,
        ..FsckOptions::default()
    };
    fsck(dir.path(), &rebuild, &mut |_, _| {}).unwrap();
    let store = Store::open(dir.path(), &options()).unwrap();
    let lost = store.look_up(ROOT, b"lost+found").unwrap().inode.ino;
    let name = format!("#{old}");
    let found = store.look_up(lost, name.as_bytes()).unwrap().inode.ino;
    let file = store.file(found).unwrap();
    let mut out = Vec::new();
    store.read(&file, 0, 128, &mut out).unwrap();
    assert_eq!(out, [7; 128]);
    store.close(file);
    let made = store.create(ROOT, b"after", |_| node()).unwrap().ino;
    assert!(made > lost && made > old);
    store.shut_down().unwrap();
}

#[test]
fn an_upgrade_survives_a_loss_of_power_at_every_step() {
    let changes = {
        let dir = tempfile::tempdir().unwrap();
        copy(&golden(), dir.path());
        let disk = FaultDisk::new(dir.path()).unwrap();
        let store = Store::open_on(disk.backing(), &options()).unwrap();
        let opened = disk.changes();
        store.shut_down().unwrap();
        opened
    };
    let mut seen = [0; 3];
    for at in 0..=changes {
        for left in [Left::Nothing, Left::Some(at), Left::Everything] {
            let dir = tempfile::tempdir().unwrap();
            copy(&golden(), dir.path());
            let disk = FaultDisk::new(dir.path()).unwrap();
            disk.cut_power_at(at);
            if let Ok(store) = Store::open_on(disk.backing(), &options()) {
                let _ = store.shut_down();
            }
            let after = tempfile::tempdir().unwrap();
            disk.after_power_loss(after.path(), left).unwrap();
            seen[match format(after.path()) {
                Format::Old => 0,
                Format::Upgrading => 1,
                Format::Current => 2,
            }] += 1;
            let store = Store::open(after.path(), &options()).unwrap();
            store.shut_down().unwrap();
            drop(store);
            assert_eq!(format(after.path()), Format::Current);
            assert_moved(after.path());
            assert_sound(after.path());
        }
    }
    assert!(seen.iter().all(|&times| times > 0), "{seen:?}");
}
