//! A catalog that is truncated, exchanged or replaced.

use std::fs;

use shale_backing::faults::{FaultDisk, Left};
use shale_backing::{Access, PosixBacking};
use shale_codec::{Effort, Encoder, FrameMeta, Hint};
use shale_index::engine::Embedded;
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

/// The power fails at each step of rewriting it, before the last commits were written.
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
        let engine: Arc<dyn Kv> = Arc::new(engine);
        let catalog =
            Catalog::open(disk.backing(), [7; 16], Arc::clone(&engine), &recovery).unwrap();
        let namespace = Namespace::open(Arc::clone(&engine), 1, (0, 0)).unwrap();
        for name in 0..200 {
            create(
                &namespace,
                &format!("a name that fills a sector soon {name}"),
            );
        }
        disk.cut_power_at(disk.changes() + step);
        let dumped = catalog.log.dump(&*engine);
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
fn a_catalog_is_durable_in_a_store_without_a_pack() {
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
    let engine: Arc<dyn Kv> = Arc::new(engine);
    let catalog = Catalog::open(backing, [7; 16], Arc::clone(&engine), &recovery).unwrap();
    let namespace = Namespace::open(Arc::clone(&engine), 1, (0, 0)).unwrap();
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
fn sessions_that_end_in_order_need_no_dump_and_go_on_with_one_file() {
    let dir = tempfile::tempdir().unwrap();
    let mut len = 0;
    for name in ["a", "b", "c"] {
        session(dir.path(), name);
        let files = files(dir.path());
        assert_eq!(files, [dir.path().join(path(1))]);
        let grown = fs::metadata(&files[0]).unwrap().len();
        assert!(grown > len);
        len = grown;
    }
    assert_eq!(problems(dir.path(), false), Vec::<String>::new());
}

/// Where the sections of a file begin.
fn sections(file: &Path) -> Vec<(u64, FrameMeta)> {
    let file = PosixBacking::new(file.parent().unwrap())
        .open(Path::new(file.file_name().unwrap()), Access::Read)
        .unwrap();
    let mut found = Vec::new();
    crate::pack::scan_from(&*file, 0, |piece| {
        if let crate::pack::Scanned::Frame { at, header } = piece
            && header.meta.offset == IDENTITY
        {
            found.push((at, header.meta));
        }
    })
    .unwrap();
    found
}

/// Every section in a separate file, as before sessions continued the last one.
fn split(store: &Path) {
    let [file] = &files(store)[..] else {
        panic!("several files")
    };
    let superblock = crate::disk::Superblock::read(&PosixBacking::new(store));
    let store_id = superblock.unwrap().unwrap().id;
    let whole = fs::read(file).unwrap();
    let sections = sections(file);
    let ends = sections.iter().skip(1).map(|(at, _)| *at as usize);
    for (number, ((at, meta), end)) in sections.iter().zip(ends.chain([whole.len()])).enumerate() {
        let (at, number) = (*at as usize, number as u64 + 1);
        let begins = shale_codec::parse_header(&whole[at..]).unwrap().frame_len as usize;
        let mut bytes = Vec::new();
        let identity = read::encode_identity(store_id, number);
        Encoder::new()
            .encode(meta, &Hint::Unknown, Effort::Zstd(1), &identity, &mut bytes)
            .unwrap();
        bytes.extend_from_slice(&whole[at + begins..end]);
        fs::write(store.join(path(number)), bytes).unwrap();
    }
}

#[test]
fn many_files_of_earlier_sessions_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c", "d"] {
        session(dir.path(), name);
    }
    split(dir.path());
    assert_eq!(files(dir.path()).len(), 4);
    assert_eq!(problems(dir.path(), false), Vec::<String>::new());
    let store = Store::open(dir.path(), &options()).unwrap();
    create(store.namespace(), "e");
    while files(dir.path()).len() > 1 {
        std::thread::sleep(Duration::from_millis(5));
    }
    store.shut_down().unwrap();
    drop(store);
    assert_eq!(files(dir.path()).len(), 1);
    assert_eq!(problems(dir.path(), false), Vec::<String>::new());
    assert_eq!(in_catalog(dir.path()), indexed(dir.path()));
}

type Pairs = std::collections::BTreeMap<Vec<u8>, Vec<u8>>;

/// The contents of the catalog of a cleanly closed store, which are complete.
fn in_catalog(store: &Path) -> Pairs {
    let backing = PosixBacking::new(store);
    let expected = Expected {
        store_id: crate::disk::Superblock::read(&backing).unwrap().unwrap().id,
        version: None,
    };
    let recovered = recover(&backing, expected).unwrap();
    assert!(recovered.complete);
    assert_eq!(recovered.damaged, Vec::<String>::new());
    let pairs = recovered.pairs.into_iter();
    pairs
        .map(|(key, value)| (key, value.value.to_vec()))
        .collect()
}

/// The contents of the index.
fn indexed(store: &Path) -> Pairs {
    let options = shale_index::engine::Options {
        read_only: true,
        ..shale_index::engine::Options::default()
    };
    let backing = Arc::new(PosixBacking::new(store));
    let (engine, _) = Embedded::open(backing, options).unwrap();
    let mut pairs = Pairs::new();
    engine
        .dump(&mut |key, value| {
            pairs.insert(key.to_vec(), value.value.to_vec());
            Ok(())
        })
        .unwrap();
    pairs
}

#[test]
fn a_dump_that_is_given_up_again_and_again_leaves_one_file_more() {
    let dir = tempfile::tempdir().unwrap();
    session(dir.path(), "a");
    for name in ["b", "c", "d"] {
        let store = Store::open(dir.path(), &options()).unwrap();
        create(store.namespace(), name);
        let catalog = store.writer.catalog.as_ref().unwrap();
        catalog.log.stop.store(true, Ordering::SeqCst);
        for _ in 0..3 {
            assert!(catalog.log.dump(&*catalog.engine).is_err());
        }
        store.shut_down().unwrap();
        drop(store);
        assert_eq!(files(dir.path()).len(), 2);
        assert_eq!(problems(dir.path(), false), Vec::<String>::new());
        assert_eq!(in_catalog(dir.path()), indexed(dir.path()));
    }
    let store = Store::open(dir.path(), &options()).unwrap();
    let catalog = store.writer.catalog.as_ref().unwrap();
    catalog.log.dump(&*catalog.engine).unwrap();
    store.shut_down().unwrap();
    drop(store);
    assert_eq!(files(dir.path()).len(), 1);
    assert_eq!(in_catalog(dir.path()), indexed(dir.path()));
}

/// The index has lost a commit that the catalog has, and the other way round; under the same
/// version there is another commit by now.
#[test]
fn what_a_crash_took_from_either_does_not_come_back() {
    use shale_backing::faults::copy_dir;
    let cases = ["index", "packs/catalog"].map(|lost| [(lost, false), (lost, true)]);
    for (lost, given_up) in cases.into_iter().flatten() {
        let work = tempfile::tempdir().unwrap();
        let (live, older) = (work.path().join("live"), work.path().join("older"));
        fs::create_dir(&live).unwrap();
        let store = Store::open(&live, &options()).unwrap();
        if given_up {
            // The next dump continues the file of this one.
            let catalog = store.writer.catalog.as_ref().unwrap();
            catalog.log.stop.store(true, Ordering::SeqCst);
            assert!(catalog.log.dump(&*catalog.engine).is_err());
            catalog.log.stop.store(false, Ordering::SeqCst);
        }
        create(store.namespace(), "a");
        store.sync_metadata().unwrap();
        copy_dir(&live.join(lost), &older).unwrap();
        create(store.namespace(), "b");
        store.namespace().unlink(ROOT, b"a").unwrap();
        store.sync_metadata().unwrap();
        let after = work.path().join("after");
        copy_dir(&live, &after).unwrap();
        store.shut_down().unwrap();
        fs::remove_dir_all(after.join(lost)).unwrap();
        copy_dir(&older, &after.join(lost)).unwrap();
        session(&after, "c");
        assert_eq!(files(&after).len(), 1, "{lost}");
        assert_eq!(in_catalog(&after), indexed(&after), "{lost}");
        assert_eq!(problems(&after, false), Vec::<String>::new(), "{lost}");
    }
}

/// The file has the state of the end of an earlier session, or is damaged in one.
#[test]
fn damage_to_any_session_of_a_file_is_noticed() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        session(dir.path(), name);
    }
    let file = &files(dir.path())[0];
    let whole = fs::read(file).unwrap();
    let sections = sections(file);
    assert_eq!(sections.len(), 3);
    for (at, _) in sections.iter().skip(1) {
        fs::write(file, &whole[..*at as usize]).unwrap();
        assert!(!problems(dir.path(), false).is_empty(), "older: {at}");
    }
    for at in (0..whole.len()).step_by(7) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x10;
        fs::write(file, &bytes).unwrap();
        assert!(!problems(dir.path(), false).is_empty(), "byte {at}");
    }
    fs::write(file, &whole).unwrap();
    assert_eq!(problems(dir.path(), false), Vec::<String>::new());
}

#[test]
fn a_file_that_is_missing_or_older_is_noticed_wherever_it_is() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        session(dir.path(), name);
    }
    split(dir.path());
    for file in files(dir.path()) {
        let whole = fs::read(&file).unwrap();
        let header = shale_codec::parse_header(&whole).unwrap();
        // The state in which only its beginning had been written.
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
