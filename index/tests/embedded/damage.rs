//! Damaged files: everything is served, or an error names the place. Never wrong, never less.

use std::path::{Path, PathBuf};

use shale_index::engine::{Embedded, Options};
use shale_index::{Error, Kv};
use tempfile::TempDir;

use crate::support::*;

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = std::fs::read_dir(dir.join("index"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| {
            let name = path.file_name().unwrap().to_str().unwrap();
            name.starts_with("journal-") && name != "journal-spare"
        })
        .collect();
    paths.sort();
    paths
}

/// Five commits, the first three synced; returns the segment and the states.
fn five() -> (TempDir, PathBuf, Model) {
    let dir = TempDir::new().unwrap();
    let mut model = Model::new();
    let (kv, _) = open(dir.path(), QUIET);
    for number in 1..=5u8 {
        let mut txn = shale_index::kv::Txn::new();
        txn.put(
            format!("key{number}").into_bytes(),
            vec![number; usize::from(number) * 3],
        );
        kv.commit(&txn).unwrap();
        model.commit(&txn);
        if number == 3 {
            kv.sync(3).unwrap();
        }
    }
    drop(kv);
    let mut paths = segments(dir.path());
    assert_eq!(paths.len(), 1);
    let path = paths.remove(0);
    (dir, path, model)
}

/// Opens a copy of a store whose segment has other bytes.
fn open_with(dir: &Path, segment: &Path, bytes: &[u8]) -> (TempDir, Result<Embedded, Error>) {
    let copy = TempDir::new().unwrap();
    copy_dir(dir, copy.path());
    std::fs::write(copy.path().join(segment.strip_prefix(dir).unwrap()), bytes).unwrap();
    let opened = Embedded::open(posix(copy.path()), QUIET).map(|(kv, _)| kv);
    (copy, opened)
}

/// Where the records begin, and where the last one ends.
fn records(bytes: &[u8]) -> Vec<usize> {
    let mut at: Vec<usize> = (0..bytes.len() - 4)
        .filter(|at| &bytes[*at..at + 4] == b"SJR1")
        .collect();
    at.push(bytes.len());
    at
}

#[test]
fn torn_tail_at_every_byte_of_the_last_record_is_dropped() {
    let (dir, path, model) = five();
    let good = std::fs::read(&path).unwrap();
    let at = records(&good);
    let (start, end) = (at[4], at[5]);
    let body_end = end - 4;
    for cut in start..end {
        for fill in [None, Some(0u8), Some(0xa5)] {
            let mut bytes = good[..cut].to_vec();
            if let Some(fill) = fill {
                bytes.resize(end + 64, fill);
            }
            let (_copy, kv) = open_with(dir.path(), &path, &bytes);
            let kv = kv.unwrap();
            let version = kv.version();
            // Only the padding may be missing from a whole record.
            assert!(
                version == 4 || cut >= body_end && version == 5,
                "cut at {cut}: {version}"
            );
            assert_eq!(state_of(&kv), model.history[&version], "cut at {cut}");
            assert_eq!(put(&kv, "next", b"x"), version + 1);
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_in_the_journal_is_found_or_harmless() {
    let (dir, path, model) = five();
    let good = std::fs::read(&path).unwrap();
    let at = records(&good);
    for position in 0..good.len() {
        let mut bytes = good.clone();
        bytes[position] ^= 0x20;
        let (_copy, kv) = open_with(dir.path(), &path, &bytes);
        let record = at.iter().take_while(|start| **start <= position).count();
        match kv {
            Err(Error::Corrupt { what, .. }) => {
                assert!(
                    record <= 3,
                    "byte {position}: only a lost tail was to be expected"
                );
                assert!(what.contains("journal-"), "{what}");
            }
            Err(Error::Format { .. }) => assert_eq!(record, 0),
            Err(other) => panic!("byte {position}: {other}"),
            Ok(kv) => {
                let version = kv.version();
                assert!(
                    version == 5 || version + 1 == record as u64,
                    "byte {position}"
                );
                assert!(version >= 3, "byte {position}: a synced commit is gone");
                assert_eq!(state_of(&kv), model.history[&version], "byte {position}");
            }
        }
    }
}

#[test]
fn the_last_commit_of_a_clean_close_is_missed() {
    let (dir, path, _) = five();
    open(dir.path(), QUIET).0.close().unwrap();
    // Without the base nothing else has the commit.
    std::fs::remove_dir_all(dir.path().join("index/sled")).unwrap();
    std::fs::remove_file(dir.path().join("index/checkpoint")).unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    let last = records(&bytes)[4];
    bytes[last + 33] ^= 1;
    let (_copy, kv) = open_with(dir.path(), &path, &bytes);
    assert!(matches!(kv, Err(Error::Corrupt { .. })), "{kv:?}");
}

/// A store with several segments, a snapshot, a checkpoint, and more keys than fit a block.
fn rich(close: bool) -> (TempDir, State) {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path(), QUIET);
    for number in 0..400u32 {
        let len = if number % 50 == 7 {
            6000
        } else {
            20 + number as usize % 90
        };
        put(
            &kv,
            &format!("dir{:02}/name{number:04}", number % 7),
            &vec![number as u8; len],
        );
        if number == 200 {
            kv.checkpoint().unwrap();
            kv.snapshot().unwrap();
        }
        if number == 320 {
            kv.checkpoint().unwrap();
        }
    }
    let state = state_of(&kv);
    if close {
        kv.close().unwrap();
    }
    (dir, state)
}

#[test]
fn a_missing_segment_is_an_error_that_names_it() {
    let (dir, _) = rich(false);
    std::fs::remove_dir_all(dir.path().join("index/sled")).unwrap();
    let all = segments(dir.path());
    assert!(all.len() > 3);
    for victim in &all[1..all.len() - 1] {
        let copy = TempDir::new().unwrap();
        copy_dir(dir.path(), copy.path());
        std::fs::remove_file(copy.path().join(victim.strip_prefix(dir.path()).unwrap())).unwrap();
        let opened = Embedded::open(posix(copy.path()), QUIET);
        assert!(
            matches!(opened, Err(Error::Corrupt { .. })),
            "{}",
            victim.display()
        );
    }
}

#[test]
fn damage_in_a_part_of_the_journal_that_nobody_needs_is_cured_by_a_snapshot() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path(), QUIET);
    for number in 0..6 {
        put(&kv, &format!("k{number}"), b"value");
    }
    kv.checkpoint().unwrap();
    put(&kv, "k6", b"value");
    let state = state_of(&kv);
    drop(kv);
    let path = segments(dir.path()).remove(0);
    let mut bytes = std::fs::read(&path).unwrap();
    let second = records(&bytes)[1];
    bytes[second + 9] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let (kv, recovery) = open(dir.path(), QUIET);
    assert!(recovery.damaged_history.is_some());
    assert_eq!(state_of(&kv), state);
    kv.snapshot().unwrap();
    kv.close().unwrap();
    drop(kv);
    std::fs::remove_dir_all(dir.path().join("index/sled")).unwrap();
    assert_eq!(state_of(&open(dir.path(), QUIET).0), state);
}

fn files_below(path: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(&path, found)
        } else {
            found.push(path)
        }
    }
}

/// Damages every file of sled in many ways; the damaged store must serve the same state.
fn harm_sled(harm: impl Fn(&Path, Vec<u8>) -> Vec<(String, Option<Vec<u8>>)>) {
    let (dir, state) = rich(true);
    let mut paths = Vec::new();
    files_below(&dir.path().join("index/sled"), &mut paths);
    assert!(!paths.is_empty());
    for path in paths {
        for (what, bytes) in harm(&path, std::fs::read(&path).unwrap()) {
            let copy = TempDir::new().unwrap();
            copy_dir(dir.path(), copy.path());
            let victim = copy.path().join(path.strip_prefix(dir.path()).unwrap());
            match bytes {
                Some(bytes) => std::fs::write(&victim, bytes).unwrap(),
                None => std::fs::remove_file(&victim).unwrap(),
            }
            let (kv, _) = open(copy.path(), QUIET);
            assert_eq!(state_of(&kv), state, "{} {what}", path.display());
            for (key, value) in &state {
                assert_eq!(kv.get(key).unwrap().as_ref(), Some(value), "{what}");
            }
            put(&kv, "after", b"works");
            kv.checkpoint().unwrap();
        }
    }
}

#[test]
fn a_missing_or_cut_file_of_sled_costs_nothing() {
    harm_sled(|_, bytes| {
        let cuts = [
            0,
            1,
            bytes.len() / 3,
            bytes.len() / 2,
            bytes.len().saturating_sub(1),
        ];
        let cut = |len: usize| (format!("cut to {len}"), Some(bytes[..len].to_vec()));
        let mut harms: Vec<_> = cuts.into_iter().map(cut).collect();
        harms.push(("removed".into(), None));
        harms
    });
}

#[test]
fn flipped_bits_in_the_files_of_sled_cost_nothing() {
    harm_sled(|_, bytes| {
        // Where there are bytes, and spread over the file.
        let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
        let count = used.len().min(60);
        let positions = (0..count).map(|n| used[n * used.len() / count]);
        let flip = |at: usize| {
            let mut bytes = bytes.clone();
            bytes[at] ^= 0x41;
            (format!("flipped at {at}"), Some(bytes))
        };
        positions.map(flip).collect()
    });
}

#[test]
fn an_old_copy_of_the_view_is_not_believed() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path(), QUIET);
    put(&kv, "a", b"old");
    kv.close().unwrap();
    drop(kv);
    let old = TempDir::new().unwrap();
    copy_dir(&dir.path().join("index/sled"), old.path());
    let (kv, _) = open(dir.path(), QUIET);
    put(&kv, "a", b"new");
    let state = state_of(&kv);
    kv.close().unwrap();
    drop(kv);
    std::fs::remove_dir_all(dir.path().join("index/sled")).unwrap();
    copy_dir(old.path(), &dir.path().join("index/sled"));
    let (kv, recovery) = open(dir.path(), QUIET);
    assert!(recovery.rebuilt.is_some());
    assert_eq!(state_of(&kv), state);
}

#[test]
fn a_view_that_breaks_while_open_is_made_again_and_nobody_notices() {
    let (dir, state) = rich(true);
    let (kv, recovery) = open(dir.path(), QUIET);
    assert_eq!(recovery.rebuilt, None);
    let mut paths = Vec::new();
    files_below(&dir.path().join("index/sled"), &mut paths);
    for path in paths.iter().filter(|path| path.ends_with("db")) {
        let len = std::fs::metadata(path).unwrap().len();
        std::fs::write(path, vec![0xee; usize::try_from(len).unwrap()]).unwrap();
    }
    for (key, value) in &state {
        assert_eq!(kv.get(key).unwrap().as_ref(), Some(value));
    }
    assert_eq!(state_of(&kv), state);
    put(&kv, "after", b"works");
    kv.checkpoint().unwrap();
    let state = state_of(&kv);
    kv.close().unwrap();
    drop(kv);
    let (kv, recovery) = open(dir.path(), QUIET);
    assert_eq!((state_of(&kv), recovery.rebuilt), (state, None));
}

#[test]
fn a_damaged_snapshot_is_an_error_when_nothing_else_has_its_commits() {
    let (dir, state) = rich(true);
    let snapshot = std::fs::read_dir(dir.path().join("index"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.to_str().unwrap().contains("snapshot-"))
        .unwrap();
    let good = std::fs::read(&snapshot).unwrap();
    for at in (0..good.len()).step_by(good.len() / 40) {
        let mut bytes = good.clone();
        bytes[at] ^= 1;
        std::fs::write(&snapshot, &bytes).unwrap();
        // The base does not need it.
        assert_eq!(state_of(&open(dir.path(), QUIET).0), state, "byte {at}");
        let read_only = Options {
            read_only: true,
            ..QUIET
        };
        let opened = Embedded::open(posix(dir.path()), read_only);
        let named = matches!(&opened, Err(Error::Corrupt { .. } | Error::Format { .. }));
        assert!(named, "byte {at}: {opened:?}");
    }
}
