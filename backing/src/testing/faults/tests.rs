use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

use super::shadow::SECTOR;
use super::*;
use crate::backing::Access;

struct Lab {
    dir: tempfile::TempDir,
    disk: Arc<FaultDisk>,
}

impl Lab {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("live")).unwrap();
        let disk = FaultDisk::new(&dir.path().join("live")).unwrap();
        Self { dir, disk }
    }

    fn found(&self, left: Left, name: &str) -> Option<Vec<u8>> {
        let to = self.dir.path().join("after");
        let _ = fs::remove_dir_all(&to);
        self.disk.after_power_loss(&to, left).unwrap();
        fs::read(to.join(name)).ok()
    }
}

#[test]
fn what_is_not_synced_may_be_gone() {
    let lab = Lab::new();
    let backing = lab.disk.backing();
    backing.create_dir_all(Path::new("d")).unwrap();
    let file = backing.open(Path::new("d/f"), Access::CreateNew).unwrap();
    file.write_all_at(b"one", 0).unwrap();
    file.sync_data().unwrap();
    assert_eq!(lab.found(Left::Nothing, "d/f"), None);
    backing.sync_dir(Path::new("d")).unwrap();
    assert_eq!(lab.found(Left::Nothing, "d/f"), None, "d was not synced");
    backing.sync_dir(Path::new("")).unwrap();
    file.write_all_at(b"two", 0).unwrap();
    assert_eq!(lab.found(Left::Nothing, "d/f").unwrap(), b"one");
    assert_eq!(lab.found(Left::Everything, "d/f").unwrap(), b"two");
    backing.rename(Path::new("d/f"), Path::new("d/g")).unwrap();
    assert_eq!(lab.found(Left::Nothing, "d/f").unwrap(), b"one");
    backing.sync_dir(Path::new("d")).unwrap();
    assert_eq!(lab.found(Left::Nothing, "d/f"), None);
    assert_eq!(lab.found(Left::Nothing, "d/g").unwrap(), b"one");
}

#[test]
fn what_is_in_a_directory_goes_with_it() {
    let lab = Lab::new();
    let backing = lab.disk.backing();
    backing.create_dir_all(Path::new("d")).unwrap();
    let file = backing.open(Path::new("d/f"), Access::CreateNew).unwrap();
    file.write_all_at(b"one", 0).unwrap();
    file.sync_data().unwrap();
    backing.sync_dir(Path::new("d")).unwrap();
    backing.sync_dir(Path::new(".")).unwrap();
    backing.rename(Path::new("d"), Path::new("e")).unwrap();
    assert_eq!(lab.found(Left::Nothing, "d/f").unwrap(), b"one");
    assert_eq!(lab.found(Left::Everything, "d/f"), None);
    backing.sync_dir(Path::new("")).unwrap();
    assert_eq!(lab.found(Left::Nothing, "e/f").unwrap(), b"one");
    assert_eq!(lab.found(Left::Nothing, "d/f"), None);
}

#[test]
fn sectors_survive_one_by_one() {
    let lab = Lab::new();
    let backing = lab.disk.backing();
    let file = backing.open(Path::new("f"), Access::CreateNew).unwrap();
    file.write_all_at(&[1; 8 * SECTOR], 0).unwrap();
    file.sync_data().unwrap();
    backing.sync_dir(Path::new("")).unwrap();
    file.write_all_at(&[2; 8 * SECTOR], 0).unwrap();
    let mut mixtures = BTreeSet::new();
    for seed in 0..40 {
        let found = lab.found(Left::Some(seed), "f").unwrap();
        for sector in found.chunks(SECTOR) {
            assert!(sector.iter().all(|b| *b == sector[0] && matches!(b, 1 | 2)));
        }
        mixtures.insert(found.iter().step_by(SECTOR).copied().collect::<Vec<_>>());
    }
    assert!(mixtures.len() > 20, "{}", mixtures.len());
}

#[test]
fn what_a_failed_sync_has_dropped_is_there_only_when_it_is_written_again() {
    let lab = Lab::new();
    let backing = lab.disk.backing();
    let file = backing.open(Path::new("f"), Access::CreateNew).unwrap();
    file.write_all_at(&[1; 4 * SECTOR], 0).unwrap();
    file.sync_data().unwrap();
    backing.sync_dir(Path::new("")).unwrap();
    file.write_all_at(&[2; 4 * SECTOR], SECTOR as u64).unwrap();
    lab.disk
        .rule(|step, _, _| (step == Step::Sync).then(|| io::ErrorKind::Other.into()));
    assert!(file.sync_data().is_err());
    lab.disk.heal();
    file.write_all_at(b"again", 2 * SECTOR as u64).unwrap();
    file.sync_data().unwrap();
    let mut seen = vec![0; 5 * SECTOR];
    file.read_at(&mut seen, 0).unwrap();
    assert_eq!(seen[SECTOR], 2, "the page cache shows it all the same");
    for left in [Left::Nothing, Left::Everything, Left::Some(7)] {
        let found = lab.found(left, "f").unwrap();
        let first: Vec<u8> = found.iter().step_by(SECTOR).copied().collect();
        assert_eq!(first, [1, 1, b'a', 1, 0], "{left:?}");
    }
}

#[test]
fn a_disk_without_power_changes_nothing() {
    let lab = Lab::new();
    let backing = lab.disk.backing();
    let file = backing.open(Path::new("f"), Access::CreateNew).unwrap();
    file.write_all_at(b"before", 0).unwrap();
    lab.disk.cut_power_at(lab.disk.changes());
    assert!(file.write_all_at(b"later!", 0).is_err());
    assert!(file.sync_data().is_err());
    assert!(backing.remove_file(Path::new("f")).is_err());
    assert_eq!(lab.found(Left::Everything, "f").unwrap(), b"before");
}
