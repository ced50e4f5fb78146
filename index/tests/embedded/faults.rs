//! A disk that refuses, threads that race, and the smaller guarantees.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};

use parking_lot::{Condvar, Mutex};
use shale_backing::Backing;
use shale_index::encoding::{decode_commit, encode_commit};
use shale_index::engine::{Embedded, Options};
use shale_index::kv::{Commit, Compare, Op, Outcome, Txn, Want};
use shale_index::{Error, Kv};
use tempfile::TempDir;

use crate::support::*;

const EIO: i32 = 5;
const ENOSPC: i32 = 28;

fn faulty(dir: &TempDir, options: Options) -> (Arc<FaultDisk>, Embedded) {
    let disk = disk(dir.path());
    let backing: Arc<dyn Backing> = disk.backing();
    let (kv, _) = Embedded::open(backing, options).unwrap();
    (disk, kv)
}

fn put_txn(key: &str, len: usize) -> Txn {
    let mut txn = Txn::new();
    txn.put(key.into(), vec![1; len]);
    txn
}

fn delete_txn(key: &str) -> Txn {
    let mut txn = Txn::new();
    txn.delete(key.into());
    txn
}

fn on_journal(path: &std::path::Path) -> bool {
    path.to_str().unwrap().contains("journal-")
}

#[test]
fn a_full_disk_refuses_new_files_and_lets_old_ones_go() {
    let dir = TempDir::new().unwrap();
    let (disk, kv) = faulty(&dir, QUIET);
    for number in 0..12 {
        put(&kv, &format!("k{number:02}"), &[1; 100]);
    }
    // Nothing can be reserved or created; writes fit only where space was reserved before.
    let written = Arc::new(AtomicU64::new(0));
    let count = written.clone();
    disk.rule(move |step, path, _| {
        let spare = path.ends_with("journal-spare") || count.load(Ordering::SeqCst) > 0;
        match step {
            Step::Reserve | Step::Create => Some(errno(ENOSPC)),
            Step::Write if !spare => Some(errno(ENOSPC)),
            Step::Rename => {
                count.fetch_add(1, Ordering::SeqCst);
                None
            }
            _ => None,
        }
    });
    let before = state_of(&kv);
    let refused = kv.commit(&put_txn("new", 300)).unwrap_err();
    assert_eq!(os_error(&refused), Some(ENOSPC));
    assert_eq!(state_of(&kv), before);
    for number in 0..12 {
        kv.commit(&delete_txn(&format!("k{number:02}"))).unwrap();
    }
    assert_eq!(
        written.load(Ordering::SeqCst),
        1,
        "the spare segment was needed"
    );
    disk.heal();
    put(&kv, "new", b"again");
    let state = state_of(&kv);
    drop(kv);
    assert_eq!(state_of(&open(dir.path(), QUIET).0), state);
}

#[test]
fn a_full_disk_keeps_sled_untouched() {
    let dir = TempDir::new().unwrap();
    let disk = disk(dir.path());
    let backing: Arc<dyn Backing> = disk.backing();
    let (kv, _) = Embedded::open(backing, Options::default()).unwrap();
    put(&kv, "a", b"1");
    disk.set_space(1 << 20);
    kv.checkpoint().unwrap();
    let path = dir.path().join("index/checkpoint");
    let before = std::fs::read(&path).unwrap();
    put(&kv, "b", b"2");
    kv.checkpoint().unwrap();
    assert_eq!(
        std::fs::read(&path).unwrap(),
        before,
        "there was no space for a checkpoint"
    );
    disk.set_space(u64::MAX);
    kv.checkpoint().unwrap();
    assert_ne!(std::fs::read(&path).unwrap(), before);
    assert_eq!(state_of(&kv).len(), 2);
}

/// Appends fail in several ways; a failed one never happened and the next ones are safe.
fn failing_appends(tear: bool, stubborn: bool) {
    let dir = TempDir::new().unwrap();
    let (disk, kv) = faulty(&dir, QUIET);
    let mut model = Model::new();
    if tear {
        disk.tear(Tear::Half);
    }
    for number in 0..30 {
        let txn = put_txn(
            &format!("k{number}"),
            if number % 3 == 0 { 400 } else { 10 },
        );
        if number % 3 == 0 {
            let used = AtomicBool::new(false);
            disk.rule(move |step, path, _| {
                let hit =
                    step == Step::Write && on_journal(path) && !path.ends_with("journal-spare");
                (hit && (stubborn || !used.swap(true, Ordering::SeqCst))).then(|| errno(EIO))
            });
            assert_eq!(os_error(&kv.commit(&txn).unwrap_err()), Some(EIO));
            disk.heal();
            assert_eq!(kv.get(format!("k{number}").as_bytes()).unwrap(), None);
        }
        if number % 3 != 1 {
            let outcome = kv.commit(&txn).unwrap();
            assert_eq!(model.commit(&txn), outcome);
        }
        if number % 10 == 9 {
            // The files of a killed process.
            let copy = TempDir::new().unwrap();
            copy_dir(dir.path(), copy.path());
            assert_eq!(state_of(&open(copy.path(), QUIET).0), state_of(&model.kv));
        }
    }
}

#[test]
fn a_failed_append_never_happened() {
    failing_appends(false, false);
}

#[test]
fn a_torn_append_does_not_poison_the_next_ones() {
    failing_appends(true, false);
    failing_appends(true, true);
}

#[test]
fn a_commit_that_is_in_the_journal_after_all_stays_refused() {
    let dir = TempDir::new().unwrap();
    let (disk, kv) = faulty(&dir, QUIET);
    put(&kv, "a", b"1");
    // The write arrives as a whole and is reported as failed; so is the attempt to blank it.
    disk.tear(Tear::AllOnce);
    let path = dir.path().join("index/journal-0000000000000001");
    disk.rule(|step, path, _| (step == Step::Write && on_journal(path)).then(|| errno(EIO)));
    kv.commit(&put_txn("ghost", 20)).unwrap_err();
    disk.heal();
    put(&kv, "b", b"2");
    assert!(path.exists());
    let state = state_of(&kv);
    drop(kv);
    assert_eq!(state_of(&open(dir.path(), QUIET).0), state);
}

#[test]
fn commits_survive_a_failed_fdatasync_through_a_new_segment() {
    let dir = TempDir::new().unwrap();
    let (disk, kv) = faulty(&dir, QUIET);
    put(&kv, "a", b"1");
    kv.sync(1).unwrap();
    for number in 0..20 {
        put(&kv, &format!("k{number}"), &[3; 150]);
    }
    // The old segments never sync again; a new one does.
    let files: Vec<_> = std::fs::read_dir(dir.path().join("index"))
        .unwrap()
        .map(|entry| std::path::Path::new("index").join(entry.unwrap().file_name()))
        .filter(|path| on_journal(path) && !path.ends_with("journal-spare"))
        .collect();
    assert!(files.len() > 1);
    disk.rule(move |step, path, _| {
        (step == Step::Sync && files.iter().any(|file| file == path)).then(|| errno(EIO))
    });
    kv.sync(kv.version()).unwrap();
    let after = TempDir::new().unwrap();
    disk.after_power_loss(after.path(), Left::Nothing).unwrap();
    assert_eq!(state_of(&open(after.path(), QUIET).0), state_of(&kv));
    put(&kv, "later", b"2");
    kv.sync(kv.version()).unwrap();
    let state = state_of(&kv);
    drop(kv);
    assert_eq!(state_of(&open(dir.path(), QUIET).0), state);
}

#[test]
fn a_dead_disk_fails_every_sync_until_it_is_back() {
    let dir = TempDir::new().unwrap();
    let (disk, kv) = faulty(&dir, QUIET);
    put(&kv, "a", b"1");
    kv.sync(1).unwrap();
    disk.rule(|step, _, _| matches!(step, Step::Sync | Step::SyncDir).then(|| errno(EIO)));
    put(&kv, "b", b"2");
    for _ in 0..5 {
        let refused = kv.sync(kv.version()).unwrap_err();
        assert_eq!(os_error(&refused), Some(EIO));
        assert!(
            kv.get(b"b").unwrap().is_some(),
            "a commit is visible, durable or not"
        );
    }
    let lost = TempDir::new().unwrap();
    disk.after_power_loss(lost.path(), Left::Nothing).unwrap();
    assert_eq!(open(lost.path(), QUIET).0.version(), 1);
    // Commits that cannot become durable are not accepted without limit.
    let mut refused = false;
    for number in 0..200 {
        refused |= kv.commit(&put_txn(&format!("more{number}"), 200)).is_err();
    }
    assert!(refused);
    disk.heal();
    kv.sync(kv.version()).unwrap();
    let saved = TempDir::new().unwrap();
    disk.after_power_loss(saved.path(), Left::Nothing).unwrap();
    assert_eq!(state_of(&open(saved.path(), QUIET).0), state_of(&kv));
}

#[test]
fn syncs_share_one_fdatasync_and_commits_go_on_meanwhile() {
    let dir = TempDir::new().unwrap();
    let (disk, kv) = faulty(
        &dir,
        Options {
            tuning: QUIET.tuning,
            ..Options::default()
        },
    );
    put(&kv, "a", b"1");
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let syncs = Arc::new(AtomicU64::new(0));
    let (entered, wait_entered) = mpsc::channel();
    {
        let (gate, syncs, entered) = (gate.clone(), syncs.clone(), Mutex::new(entered));
        disk.rule(move |step, path, _| {
            let segment = on_journal(path) && !path.ends_with("journal-spare");
            if step == Step::Sync && segment && syncs.fetch_add(1, Ordering::SeqCst) == 0 {
                entered.lock().send(()).unwrap();
                let mut open = gate.0.lock();
                while !*open {
                    gate.1.wait(&mut open);
                }
            }
            None
        });
    }
    std::thread::scope(|scope| {
        let first = scope.spawn(|| kv.sync(1));
        wait_entered.recv().unwrap();
        let (done, committed) = mpsc::channel();
        let rest: Vec<_> = (0..8)
            .map(|number| {
                let (kv, done) = (&kv, done.clone());
                scope.spawn(move || {
                    // Possible although a sync is running.
                    let version = committed_put(kv, number);
                    done.send(()).unwrap();
                    kv.sync(version)
                })
            })
            .collect();
        for _ in 0..8 {
            committed.recv().unwrap();
        }
        *gate.0.lock() = true;
        gate.1.notify_all();
        first.join().unwrap().unwrap();
        for thread in rest {
            thread.join().unwrap().unwrap();
        }
    });
    assert_eq!(
        syncs.load(Ordering::SeqCst),
        2,
        "the first, and one for all others"
    );
}

fn committed_put(kv: &Embedded, number: u64) -> u64 {
    put(kv, &format!("t{number}"), b"x")
}

#[test]
fn a_dead_background_thread_closes_the_engine_instead_of_hanging_it() {
    let dir = TempDir::new().unwrap();
    let (disk, kv) = faulty(&dir, TINY);
    disk.rule(|step, path, _| {
        let own = std::thread::current().name() == Some("shale-index");
        assert!(
            !(own && step == Step::Create && path.ends_with("checkpoint.new")),
            "as ordered"
        );
        None
    });
    let closed = (0u64..).find_map(|number| {
        let txn = put_txn(&format!("k{}", number % 50), 100);
        kv.commit(&txn).err()
    });
    assert!(matches!(closed, Some(Error::Closed(_))), "{closed:?}");
    assert!(matches!(kv.get(b"k1"), Err(Error::Closed(_))));
    assert!(matches!(kv.sync(1), Err(Error::Closed(_))));
    assert!(matches!(kv.close(), Err(Error::Closed(_))));
    disk.heal();
    drop(kv);
    assert!(open(dir.path(), TINY).0.version() > 0);
}

#[test]
fn changes_that_cannot_be_checkpointed_do_not_fill_the_memory() {
    let dir = TempDir::new().unwrap();
    let (disk, kv) = faulty(&dir, QUIET);
    disk.rule(|step, path, _| {
        let checkpoint = step == Step::Create && path.ends_with("checkpoint.new");
        checkpoint.then(|| errno(EIO))
    });
    let refused =
        (0..2000).find_map(|number| kv.commit(&put_txn(&format!("k{number}"), 300)).err());
    let refused = refused.unwrap();
    assert!(matches!(refused, Error::Stalled), "{refused}");
    let state = state_of(&kv);
    disk.heal();
    kv.checkpoint().unwrap();
    put(&kv, "after", b"works");
    assert_eq!(state_of(&kv).len(), state.len() + 1);
}

#[test]
fn readers_never_see_half_a_commit() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path(), TINY);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !stop.load(Ordering::SeqCst) {
                    let wants = [Want::Key(b"a".to_vec()), Want::Key(b"z".to_vec())];
                    let found = kv.get_many(&wants).unwrap().found;
                    let value = |at: usize| found[at].first().map(|(_, v)| v.value.clone());
                    assert_eq!(value(0), value(1));
                }
            });
        }
        for number in 0..3000u32 {
            let mut txn = Txn::new();
            let value = number.to_le_bytes().to_vec();
            txn.put(b"a".to_vec(), value.clone())
                .put(b"z".to_vec(), value);
            txn.put(format!("m{:03}", number % 211).into_bytes(), vec![2; 70]);
            kv.commit(&txn).unwrap();
        }
        stop.store(true, Ordering::SeqCst);
    });
    kv.close().unwrap();
}

#[test]
fn compares_decide_races() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path(), TINY);
    put(&kv, "counter", &0u64.to_le_bytes());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..200 {
                    loop {
                        let old = kv.get(b"counter").unwrap().unwrap();
                        let count = u64::from_le_bytes(old.value[..].try_into().unwrap());
                        let mut txn = Txn::new();
                        txn.compare(Compare::VersionIs(b"counter".to_vec(), old.version));
                        txn.put(b"counter".to_vec(), (count + 1).to_le_bytes().to_vec());
                        if kv.commit(&txn).unwrap() != Outcome::Conflict {
                            break;
                        }
                    }
                }
            });
        }
    });
    let count = kv.get(b"counter").unwrap().unwrap().value;
    assert_eq!(count[..], 800u64.to_le_bytes());
}

#[test]
fn a_follower_sees_every_commit_resolved_and_in_order() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path(), TINY);
    let heard: Arc<Mutex<Vec<Commit>>> = Arc::default();
    let sink = heard.clone();
    kv.follow(Box::new(move |commit| sink.lock().push(commit.clone())))
        .unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let kv = &kv;
            scope.spawn(move || {
                for number in 0..50 {
                    put(kv, &format!("{thread}-{number:02}"), &[thread; 30]);
                }
            });
        }
    });
    let mut txn = Txn::new();
    txn.delete_range(b"1".to_vec(), b"3".to_vec());
    kv.commit(&txn).unwrap();
    let heard = heard.lock();
    let versions: Vec<_> = heard.iter().map(|commit| commit.version).collect();
    assert_eq!(versions, (1..=201).collect::<Vec<_>>());
    assert_eq!(heard[200].changes.len(), 100);
    let mut copy = State::new();
    for commit in heard.iter() {
        let commit = decode_commit(&encode_commit(commit)).unwrap();
        for change in commit.changes {
            match change.value {
                Some(value) => drop(copy.insert(change.key, value)),
                None => drop(copy.remove(&change.key)),
            }
        }
    }
    assert_eq!(copy, state_of(&kv));
}

#[test]
fn an_index_can_be_made_again_from_a_dump() {
    let (first, second) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    let (kv, _) = open(first.path(), TINY);
    for number in 0..700 {
        put(&kv, &format!("k{number}"), &vec![5; number % 200]);
    }
    let mut pairs = Vec::new();
    kv.dump(&mut |key, value| {
        pairs.push((key.to_vec(), value.clone()));
        Ok(())
    })
    .unwrap();
    let backing = posix(second.path());
    Embedded::import(&*backing, Vec::new(), 1).unwrap();
    Embedded::import(&*backing, pairs, kv.version() + 1).unwrap();
    assert!(second.path().join("index.old-1").is_dir(), "the one before");
    let (copy, _) = open(second.path(), TINY);
    assert_eq!(
        (copy.version(), state_of(&copy)),
        (kv.version(), state_of(&kv))
    );
    assert_eq!(put(&copy, "next", b"x"), kv.version() + 1);
    let state = state_of(&copy);
    drop(copy);
    assert_eq!(state_of(&open(second.path(), TINY).0), state);
}

#[test]
fn leased_keys_end_with_their_process_however_it_ends() {
    for (close, checkpoint, lose_view) in [
        (true, true, false),
        (false, false, false),
        (false, true, false),
        (false, true, true),
    ] {
        let dir = TempDir::new().unwrap();
        let (kv, _) = open(dir.path(), QUIET);
        let put = |key: &str, lease| {
            let op = Op::Put {
                key: key.into(),
                value: vec![1],
                lease,
            };
            kv.commit(&Txn {
                compares: vec![],
                ops: vec![op],
            })
            .unwrap();
        };
        put("session", Some(kv.lease()));
        put("was leased", Some(kv.lease()));
        put("was leased", None);
        if checkpoint {
            kv.checkpoint().unwrap();
            kv.snapshot().unwrap();
        }
        if close {
            kv.close().unwrap();
            assert!(matches!(kv.get(b"session"), Err(Error::Closed(_))));
        }
        let lease = kv.lease();
        drop(kv);
        if lose_view {
            std::fs::remove_dir_all(dir.path().join("index/sled")).unwrap();
        }
        let (kv, recovery) = open(dir.path(), QUIET);
        assert_eq!(recovery.leases_ended, usize::from(!close));
        assert_ne!(kv.lease(), lease);
        let keys: Vec<_> = state_of(&kv).into_keys().collect();
        assert_eq!(keys, [b"was leased".to_vec()]);
    }
}

#[test]
fn a_commit_larger_than_a_segment_works_and_one_beyond_the_limit_is_refused() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path(), QUIET);
    put(&kv, "small", b"1");
    put(&kv, "huge", &vec![7; 40_000]);
    put(&kv, "small", b"2");
    let refused = kv.commit(&put_txn("more", 70_000)).unwrap_err();
    assert!(matches!(refused, Error::CommitTooLarge { .. }), "{refused}");
    let state = state_of(&kv);
    drop(kv);
    let (kv, _) = open(dir.path(), QUIET);
    assert_eq!(state_of(&kv), state);
    kv.checkpoint().unwrap();
    assert_eq!(state_of(&kv), state);
}

#[test]
fn a_read_only_engine_refuses_changes() {
    let dir = TempDir::new().unwrap();
    let (kv, _) = open(dir.path(), QUIET);
    put(&kv, "a", b"1");
    drop(kv);
    let (kv, _) = open(
        dir.path(),
        Options {
            read_only: true,
            ..QUIET
        },
    );
    let refused = kv.commit(&put_txn("b", 1)).unwrap_err();
    assert!(matches!(refused, Error::ReadOnly), "{refused}");
    assert_eq!(kv.range(b"", b"z", 10).unwrap().len(), 1);
    kv.close().unwrap();
    let nothing = TempDir::new().unwrap();
    let (kv, _) = open(
        nothing.path(),
        Options {
            read_only: true,
            ..QUIET
        },
    );
    assert_eq!(kv.version(), 0);
    assert!(
        std::fs::read_dir(nothing.path()).unwrap().next().is_none(),
        "a file was made"
    );
}
