//! A catalogue that is cut short, exchanged or renewed.

use std::fs;

use shale_backing::PosixBacking;
use shale_backing::faults::{FaultDisk, Left};
use shale_index::{Namespace, ROOT};

use super::*;
use crate::Store;
use crate::fsck::{FsckOptions, fsck};
use crate::tests::{node, options};

fn create(namespace: &Namespace, name: &str) {
    namespace.create(ROOT, name.as_bytes(), &node()).unwrap();
}

fn session(store: &Path, name: &str) {
    let store = Store::open(store, &options()).unwrap();
    create(store.namespace(), name);
    store.shut_down().unwrap();
}

fn files(store: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = fs::read_dir(store.join(dir()))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn problems(store: &Path, repair: bool) -> Vec<String> {
    let options = FsckOptions {
        repair,
        ..FsckOptions::default()
    };
    let report = fsck(store, &options, &mut |_, _| {}).unwrap();
    let problems = report.problems.into_iter();
    assert!(problems.clone().all(|problem| problem.repaired == repair));
    problems.map(|problem| problem.what).collect()
}

/// The power goes at each step of writing it anew, while the last commits before that were
/// not written yet.
#[test]
fn a_renewal_that_is_cut_short_is_no_damage() {
    let work = tempfile::tempdir().unwrap();
    let mut renewed = false;
    for step in 1.. {
        let live = work.path().join(format!("live{step}"));
        fs::create_dir(&live).unwrap();
        let disk = FaultDisk::new(&live).unwrap();
        let options = shale_index::engine::Options::default();
        let (engine, recovery) = Embedded::open(disk.backing(), options).unwrap();
        let engine = Arc::new(engine);
        let catalog = Catalog::open(disk.backing(), [7; 16], &engine, &recovery).unwrap();
        let namespace = Namespace::open(Arc::clone(&engine) as Arc<dyn Kv>, 1, (0, 0)).unwrap();
        for name in 0..200 {
            create(
                &namespace,
                &format!("a name that fills a sector soon {name}"),
            );
        }
        disk.cut_power_at(disk.changes() + step);
        let dumped = catalog.shared.dump(&engine);
        for seed in 0..8 {
            let after = work.path().join(format!("after{step}-{seed}"));
            fs::create_dir(&after).unwrap();
            disk.after_power_loss(&after, Left::Some(8 * step + seed))
                .unwrap();
            let expected = Expected {
                store_id: [7; 16],
                version: None,
            };
            let recovered = recover(&PosixBacking::new(&after), expected).unwrap();
            assert!(
                recovered.damaged.is_empty(),
                "{step}: {:?}",
                recovered.damaged
            );
        }
        if dumped.is_ok() {
            renewed = true;
            break;
        }
    }
    assert!(renewed);
}

#[test]
fn a_catalogue_is_durable_in_a_store_without_a_pack() {
    let work = tempfile::tempdir().unwrap();
    let (live, after) = (work.path().join("live"), work.path().join("after"));
    fs::create_dir(&live).unwrap();
    fs::create_dir(&after).unwrap();
    let disk = FaultDisk::new(&live).unwrap();
    let backing = disk.backing();
    backing.create_dir_all(Path::new(DIR)).unwrap();
    backing.sync_dir(Path::new("")).unwrap();
    let options = shale_index::engine::Options::default();
    let (engine, recovery) = Embedded::open(disk.backing(), options).unwrap();
    let engine = Arc::new(engine);
    let catalog = Catalog::open(backing, [7; 16], &engine, &recovery).unwrap();
    let namespace = Namespace::open(Arc::clone(&engine) as Arc<dyn Kv>, 1, (0, 0)).unwrap();
    create(&namespace, "a");
    catalog.close().unwrap();
    disk.after_power_loss(&after, Left::Nothing).unwrap();
    let expected = Expected {
        store_id: [7; 16],
        version: Some(engine.version()),
    };
    let recovered = recover(&PosixBacking::new(&after), expected).unwrap();
    assert_eq!(recovered.damaged, Vec::<String>::new());
}

#[test]
fn sessions_that_end_in_order_need_no_dump() {
    let dir = tempfile::tempdir().unwrap();
    for (count, name) in ["a", "b", "c"].iter().enumerate() {
        session(dir.path(), name);
        assert_eq!(files(dir.path()).len(), count + 1);
    }
    assert_eq!(problems(dir.path(), false), Vec::<String>::new());
}

#[test]
fn a_file_that_is_missing_or_older_is_noticed_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        session(dir.path(), name);
    }
    for file in files(dir.path()) {
        let whole = fs::read(&file).unwrap();
        let header = shale_codec::parse_header(&whole).unwrap();
        // As it was when nothing but its beginning had been written.
        fs::write(&file, &whole[..header.frame_len as usize]).unwrap();
        let older = problems(dir.path(), false);
        assert!(!older.is_empty(), "{} is older", file.display());
        fs::remove_file(&file).unwrap();
        let missing = problems(dir.path(), false);
        assert!(!missing.is_empty(), "{} is missing", file.display());
        fs::write(&file, whole).unwrap();
    }
    fs::remove_file(&files(dir.path())[1]).unwrap();
    assert_eq!(problems(dir.path(), true).len(), 1);
    assert_eq!(problems(dir.path(), false), Vec::<String>::new());
    assert_eq!(files(dir.path()).len(), 1);
}
