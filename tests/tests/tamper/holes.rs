//! The index is lost, and one frame of the catalog cannot be read: each in turn.
//!
//! The commits in it are then unknown. Every file must be there all the same, complete, under its
//! name or another, or fsck must say which one may have changed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use shale_backing::faults::copy_dir;
use shale_codec::parse_header;
use shale_index::schema::S_IFDIR;
use shale_index::{NewNode, ROOT, RenameMode};
use shale_store::fsck::{FsckOptions, FsckReport, fsck};
use shale_store::{Error, Store};
use shale_tests::{Case, Failure, Outcome, Rng, ensure, note, small_chunks, store_options, tally};

use crate::REBUILD;
use crate::classes::{Class, classes};

/// Contents by inode, with the paths that lead there.
type Tree = BTreeMap<u64, (BTreeSet<String>, Option<Vec<u8>>)>;

fn failed(error: Error) -> Failure {
    Failure::new(error.to_string())
}

/// Everything in a directory and below; contents that cannot be read are `None`.
fn walk(store: &Store, dir: u64, path: &str, tree: &mut Tree) -> Result<(), Error> {
    for entry in store.committed().readdir(dir, 0, usize::MAX)? {
        let path = format!("{path}/{}", String::from_utf8_lossy(&entry.name));
        if entry.kind == S_IFDIR {
            walk(store, entry.ino, &path, tree)?;
            continue;
        }
        let file = store.file(entry.ino)?;
        let mut bytes = Vec::new();
        let read = store.read(&file, 0, file.size() as usize, &mut bytes);
        let (paths, contents) = tree.entry(entry.ino).or_default();
        paths.insert(path);
        *contents = read.is_ok().then_some(bytes);
        store.close(file);
    }
    Ok(())
}

fn tree(dir: &Path) -> Outcome<Tree> {
    let store = Store::open(dir, &store_options(16 << 20)).map_err(failed)?;
    let mut tree = Tree::new();
    walk(&store, ROOT, "", &mut tree).map_err(failed)?;
    store.shut_down().map_err(failed)?;
    Ok(tree)
}

/// Directories, files, changes of both; each in a frame of its own in the catalog.
fn live(dir: &Path) -> Result<(), Error> {
    let mut rng = Rng::new(21);
    let mut write = |store: &Store, ino: u64, offset: u64, len: usize| -> Result<(), Error> {
        let file = store.file(ino)?;
        store.write(&file, offset, &rng.bytes(len))?;
        store.sync(&file)?;
        store.close(file);
        Ok(())
    };
    let make = |store: &Store, dir: u64, name: &str, node: &NewNode| -> Result<u64, Error> {
        let made = store.committed().create(dir, name.as_bytes(), node)?;
        store.sync_metadata()?;
        Ok(made.ino)
    };
    let directory = NewNode {
        mode: S_IFDIR | 0o755,
        ..small_chunks()
    };
    let store = Store::open(dir, &store_options(16 << 20))?;
    let a = make(&store, ROOT, "a", &directory)?;
    let b = make(&store, a, "b", &directory)?;
    let one = make(&store, a, "one", &small_chunks())?;
    write(&store, one, 0, 20_000)?;
    let two = make(&store, b, "two", &small_chunks())?;
    write(&store, two, 0, 9000)?;
    write(&store, two, 9000, 9000)?;
    let three = make(&store, ROOT, "three", &small_chunks())?;
    write(&store, three, 0, 30_000)?;
    write(&store, one, 4096, 5000)?;
    let names = store.committed();
    names.rename(a, b"b", ROOT, b"c", RenameMode::NoReplace)?;
    store.sync_metadata()?;
    write(&store, three, 60_000, 10_000)?;
    names.rename(ROOT, b"three", b, b"four", RenameMode::NoReplace)?;
    store.sync_metadata()?;
    write(&store, two, 0, 4096)?;
    store.shut_down()
}

pub(crate) fn anywhere(case: &Case) -> Outcome {
    let (sound, harmed) = (case.work().join("sound"), case.work().join("harmed"));
    fs::create_dir_all(&sound)?;
    live(&sound).map_err(failed)?;
    let places = classes(&sound)?.remove(&Class::Catalog);
    let kept = case.work().join("kept");
    copy_dir(&sound, &kept)?;
    let expected = tree(&sound)?;
    let (mut holes, mut told) = (0, 0);
    for place in places.unwrap_or_default() {
        let bytes = fs::read(kept.join(&place.file))?;
        let mut at = 0;
        while let Ok(header) = parse_header(&bytes[at..]) {
            let end = at + header.frame_len as usize;
            if harmed.exists() {
                fs::remove_dir_all(&harmed)?;
            }
            copy_dir(&kept, &harmed)?;
            fs::remove_dir_all(harmed.join("index"))?;
            let mut spoiled = bytes.clone();
            spoiled[end - 1] ^= 0xff;
            fs::write(harmed.join(&place.file), spoiled)?;
            let report = fsck(&harmed, &REBUILD, &mut |_, _| {}).map_err(failed)?;
            told += hides_nothing(&harmed, &report, &expected).map_err(|e| {
                let problems = &report.problems;
                Failure::new(format!(
                    "{} at {at}: {e}, {problems:?}",
                    place.file.display()
                ))
            })?;
            holes += 1;
            at = end;
        }
    }
    ensure!(holes > 12, "only {holes} holes");
    ensure!(told > 0, "no hole had an effect");
    note(format!(
        "{holes} holes; {told} times a file was said to be perhaps not what it was"
    ));
    tally("holes in a catalog", holes, holes, 0);
    Ok(())
}

/// Returns how many files have changed. The report must name all of them.
fn hides_nothing(store: &Path, report: &FsckReport, expected: &Tree) -> Outcome<u64> {
    let check = fsck(store, &FsckOptions::default(), &mut |_, _| {}).map_err(failed)?;
    ensure!(check.problems.is_empty(), "left: {:?}", check.problems);
    let found = tree(store)?;
    let mut different = 0;
    for (ino, (paths, contents)) in expected {
        let now = found.get(ino);
        if now.is_some_and(|(_, now)| now == contents) {
            continue;
        }
        different += 1;
        let known = now.map_or(paths, |(paths, _)| paths);
        let mut accused = report.problems.iter().filter_map(|p| p.file.as_ref());
        ensure!(
            accused.any(|path| known.contains(path)),
            "{paths:?}, now {known:?}, is not what it was"
        );
    }
    Ok(different)
}
