//! A small store in which every class of bytes occurs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use shale_backing::PosixBacking;
use shale_backing::faults::copy_dir;
use shale_index::engine::{Embedded, Options, Tuning};
use shale_index::{Kv, Namespace, ROOT};
use shale_store::{Block, ByteOrder, Effort, ElementKind, Error, Region, SettleOptions, Store};
use shale_tests::{Failure, Outcome, Rng, ensure, small_chunks, store_options};

/// Names and contents.
pub(crate) type Contents = BTreeMap<String, Vec<u8>>;

/// The state of a file afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Found {
    Same,
    /// Reading it fails.
    Unreadable,
    /// Its name is gone.
    Missing,
    /// Reading it returns wrong bytes.
    Different,
}

pub(crate) struct Specimen {
    now: PathBuf,
    older: PathBuf,
    stranger: PathBuf,
    contents: Contents,
}

fn failed(what: &str) -> impl Fn(Error) -> Failure {
    let what = what.to_owned();
    move |error| Failure::new(format!("{what}: {error}"))
}

fn put(store: &Store, name: &str, data: &[u8]) -> Result<(), Error> {
    let names = store.committed();
    let ino = match names.lookup(ROOT, name.as_bytes()) {
        Ok(inode) => inode.ino,
        Err(_) => names.create(ROOT, name.as_bytes(), &small_chunks())?.ino,
    };
    let file = store.file(ino)?;
    // Many commits, so that the map is folded.
    for (number, piece) in data.chunks(4096).enumerate() {
        store.write(&file, number as u64 * 4096, piece)?;
        if number < 140 {
            store.sync(&file)?;
        }
    }
    store.sync(&file)?;
    store.close(file);
    Ok(())
}

/// Smooth numbers: they compress.
fn smooth(len: usize) -> Vec<u8> {
    (0..len / 4)
        .flat_map(|n| ((n as f32 / 50.0).sin() * 100.0).to_le_bytes())
        .collect()
}

fn session(dir: &Path, work: impl Fn(&Store) -> Result<(), Error>) -> Outcome {
    std::fs::create_dir_all(dir)?;
    let store = Store::open(dir, &store_options(16 << 20)).map_err(failed("open"))?;
    work(&store).map_err(failed("write"))?;
    store.shut_down().map_err(failed("shut down"))
}

/// Lets the index write a snapshot, which it does for larger ones only.
fn snapshot(dir: &Path) -> Outcome {
    let backing = Arc::new(PosixBacking::new(dir));
    let wrong = |e: shale_index::Error| Failure::new(format!("write a snapshot: {e}"));
    let options = Options {
        // Short segments, so that the commits before the snapshot are in none that stays.
        tuning: Tuning::TinyQuiet,
        ..Options::default()
    };
    let (engine, _) = Embedded::open(backing, options).map_err(wrong)?;
    let engine = Arc::new(engine);
    let session = Namespace::open(engine.clone(), 0, (0, 0)).map_err(wrong)?;
    session.kv().sync(session.kv().version()).map_err(wrong)?;
    engine.snapshot().map_err(wrong)?;
    engine.close().map_err(wrong)
}

/// Stores a file of 4 MiB as tiles.
fn settle(store: &Store, name: &str) -> Result<(), Error> {
    let inode = store.committed().lookup(ROOT, name.as_bytes())?;
    let file = store.file(inode.ino)?;
    let region = Region {
        offset: 0,
        records: 1,
        record: 4 << 20,
        blocks: vec![Block {
            at: 0,
            width: 4,
            kind: ElementKind::Float,
            order: ByteOrder::Little,
            dims: vec![64, 128, 128],
        }],
    };
    let options = SettleOptions {
        workers: 1,
        effort: Effort::Dense,
        force: true,
        rewrite: false,
        pace: &|_| true,
    };
    store.settle(&file, &[region], &options)?;
    store.close(file);
    Ok(())
}

impl Specimen {
    pub(crate) fn new(dir: &Path) -> Outcome<Self> {
        let specimen = Self {
            now: dir.join("now"),
            older: dir.join("older"),
            stranger: dir.join("stranger"),
            contents: Contents::from([
                ("noise".to_owned(), Rng::new(1).bytes(600_000)),
                ("smooth".to_owned(), smooth(700_000)),
                ("array".to_owned(), smooth(4 << 20)),
                ("changed".to_owned(), Rng::new(2).bytes(50_000)),
            ]),
        };
        let now = &specimen.now;
        let contents = &specimen.contents;
        session(&specimen.stranger, |store| {
            put(store, "noise", &Rng::new(3).bytes(90_000))?;
            put(store, "other", &smooth(50_000))
        })?;
        snapshot(&specimen.stranger)?;
        session(now, |store| {
            put(store, "noise", &contents["noise"])?;
            put(store, "smooth", &contents["smooth"])?;
            put(store, "changed", &smooth(60_000))
        })?;
        snapshot(now)?;
        copy_dir(now, &specimen.older)?;
        session(now, |store| {
            put(store, "array", &contents["array"])?;
            settle(store, "array")
        })?;
        snapshot(now)?;
        session(now, |store| {
            let inode = store.committed().lookup(ROOT, b"changed")?;
            let file = store.file(inode.ino)?;
            store.truncate(&file, 0)?;
            store.close(file);
            // The end of the session makes the catalog whole: `snapshot` has gone past it.
            put(store, "changed", &contents["changed"])
        })?;
        let whole = read(now, contents)?;
        ensure!(
            whole.is_some_and(|found| found.values().all(|found| *found == Found::Same)),
            "the specimen itself is not right"
        );
        Ok(specimen)
    }

    pub(crate) fn now(&self) -> &Path {
        &self.now
    }

    pub(crate) fn older(&self) -> &Path {
        &self.older
    }

    /// Another store.
    pub(crate) fn stranger(&self) -> &Path {
        &self.stranger
    }

    pub(crate) fn contents(&self) -> &Contents {
        &self.contents
    }
}

/// Names in the root directory of a store.
pub(crate) fn names(store: &Path) -> Outcome<Vec<String>> {
    let store = Store::open(store, &store_options(16 << 20)).map_err(failed("open"))?;
    let entries = store.committed().readdir(ROOT, 0, usize::MAX);
    let entries = entries.map_err(|e| Failure::new(format!("list: {e}")))?;
    Ok(entries
        .iter()
        .map(|entry| String::from_utf8_lossy(&entry.name).into_owned())
        .collect())
}

/// Opens a store and reads what should be there; `None` when it does not open.
pub(crate) fn read(store: &Path, contents: &Contents) -> Outcome<Option<BTreeMap<String, Found>>> {
    let store = match Store::open(store, &store_options(16 << 20)) {
        Ok(store) => store,
        Err(e) => {
            println!("it does not open: {e}");
            return Ok(None);
        }
    };
    let mut all = BTreeMap::new();
    for (name, expected) in contents {
        let found = match store.committed().lookup(ROOT, name.as_bytes()) {
            Err(_) => Found::Missing,
            Ok(inode) => look(&store, inode.ino, expected),
        };
        all.insert(name.clone(), found);
    }
    drop(store);
    Ok(Some(all))
}

/// Reads chunk by chunk: a damaged chunk is an error, any other has the right bytes.
fn look(store: &Store, ino: u64, expected: &[u8]) -> Found {
    let Ok(file) = store.file(ino) else {
        return Found::Unreadable;
    };
    let mut found = if file.size() == expected.len() as u64 {
        Found::Same
    } else {
        Found::Different
    };
    for (number, piece) in expected.chunks(4096).enumerate() {
        let mut out = Vec::new();
        match store.read(&file, number as u64 * 4096, piece.len(), &mut out) {
            Err(_) if found == Found::Same => found = Found::Unreadable,
            Err(_) => {}
            Ok(()) if out == piece => {}
            Ok(()) => found = Found::Different,
        }
    }
    store.close(file);
    found
}
