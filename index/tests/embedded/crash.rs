//! Death at every single step of commits, checkpoints, snapshots and repairs.

use std::sync::Arc;

use shale_backing::Backing;
use shale_index::Kv;
use shale_index::engine::Embedded;
use shale_index::kv::{Op, Outcome, Txn};
use tempfile::TempDir;

use crate::support::*;

/// A transaction that differs with its number and touches a handful of keys.
fn txn(number: u64) -> Txn {
    let key = |n: u64| format!("k{:02}", n % 13).into_bytes();
    let mut txn = Txn::new();
    txn.put(
        key(number),
        vec![number as u8; 60 + (number % 5) as usize * 40],
    );
    txn.put(key(number * 7 + 1), number.to_le_bytes().to_vec());
    if number % 4 == 3 {
        txn.delete(key(number + 5));
    }
    if number % 11 == 10 {
        txn.delete_range(b"k03".to_vec(), b"k06".to_vec());
    }
    if number % 6 == 5 {
        let lease = Some(shale_index::kv::Lease(0));
        txn.ops.push(Op::Put {
            key: b"session".to_vec(),
            value: vec![1],
            lease,
        });
    }
    if number == 9 {
        txn.put(b"large".to_vec(), vec![9; 5000]);
    }
    txn
}

/// The application's knowledge at the end.
struct Witness {
    model: Model,
    /// Acknowledged by a sync.
    synced: u64,
    /// Acknowledged by a commit.
    committed: u64,
}

/// Runs a short life on a disk that may die, as far as it gets.
fn live(disk: &Arc<FaultDisk>) -> Witness {
    let mut witness = Witness {
        model: Model::new(),
        synced: 0,
        committed: 0,
    };
    let backing: Arc<dyn Backing> = disk.backing();
    for life in 0..2u64 {
        let Ok((kv, _)) = Embedded::open(backing.clone(), QUIET) else {
            return witness;
        };
        if life > 0 {
            witness.model.reopen();
            witness.committed = witness.model.kv.version();
        }
        for number in life * 40..life * 40 + 28 {
            let txn = txn(number);
            match kv.commit(&under(&txn, kv.lease())) {
                Ok(Outcome::Committed(version)) => {
                    assert_eq!(witness.model.commit(&txn), Outcome::Committed(version));
                    witness.committed = version;
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => continue,
            }
            let done = match number % 10 {
                2 | 5 => kv.sync(kv.version()),
                7 => kv.checkpoint(),
                9 => kv.snapshot(),
                _ => continue,
            };
            if done.is_ok() && number % 10 < 6 {
                witness.synced = witness.committed;
            }
        }
        if life == 0 {
            // The second life begins with the files of a killed process.
            drop(kv);
        } else if kv.close().is_ok() {
            witness.model.kv.close().unwrap();
            witness.model.reopen();
            witness.committed = witness.model.kv.version();
            witness.synced = witness.committed;
        }
    }
    witness
}

/// The state must be the one after some commit from the last acknowledged on.
fn check(path: &std::path::Path, witness: &Witness, least: u64, what: &str) {
    let (kv, _) = match Embedded::open(posix(path), QUIET) {
        Ok(opened) => opened,
        Err(error) => panic!("{what}: {error}"),
    };
    let (version, found) = (kv.version(), state_of(&kv));
    // Ending the lease may have been a separate commit.
    let matches = |at: u64| {
        witness.model.history.get(&at).is_some_and(|state| {
            let plain = |state: &State| {
                let keep = |(key, _): &(&Vec<u8>, _)| key.as_slice() != b"session";
                state
                    .iter()
                    .filter(keep)
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .collect::<State>()
            };
            plain(state) == plain(&found)
        })
    };
    let at = [version, version - u64::from(version > 0)]
        .into_iter()
        .find(|at| matches(*at));
    let at = at.unwrap_or_else(|| panic!("{what}: version {version} is no state that ever was"));
    assert!(
        at >= least,
        "{what}: commit {least} was acknowledged, found {at}"
    );
    assert!(
        !found.contains_key(&b"session"[..]),
        "{what}: a dead session lives"
    );
    put(&kv, "after", b"works");
    kv.close().unwrap();
}

fn die_at_every_step(tear: bool) {
    let whole = {
        let dir = TempDir::new().unwrap();
        let disk = disk(dir.path());
        let witness = live(&disk);
        assert_eq!(witness.synced, witness.model.kv.version());
        disk.changes()
    };
    assert!(
        whole > 200,
        "the life is too short to prove anything: {whole}"
    );
    for last in 0..whole {
        let dir = TempDir::new().unwrap();
        let disk = disk(dir.path());
        if tear {
            disk.tear(Tear::Half);
        }
        disk.cut_power_at(last);
        let witness = live(&disk);
        for left in LEFT {
            let after = TempDir::new().unwrap();
            disk.after_power_loss(after.path(), left).unwrap();
            let what = format!("power lost at step {last}, left {left:?}");
            check(after.path(), &witness, witness.synced, &what);
        }
        check(
            dir.path(),
            &witness,
            witness.committed,
            &format!("killed at step {last}"),
        );
    }
}

#[test]
fn death_at_any_step_loses_nothing_acknowledged() {
    die_at_every_step(false);
}

#[test]
fn death_in_the_middle_of_any_write_loses_nothing_acknowledged() {
    die_at_every_step(true);
}

#[test]
fn any_single_failing_step_is_survived() {
    let whole = {
        let dir = TempDir::new().unwrap();
        let disk = disk(dir.path());
        live(&disk);
        disk.changes()
    };
    for bad in 0..whole {
        let dir = TempDir::new().unwrap();
        let disk = disk(dir.path());
        if bad % 2 == 0 {
            disk.tear(Tear::Half);
        }
        disk.rule(move |step, _, number| (step.is_change() && number == bad).then(|| errno(5)));
        let witness = live(&disk);
        for left in LEFT {
            let after = TempDir::new().unwrap();
            disk.after_power_loss(after.path(), left).unwrap();
            let what = format!("power lost after {bad} failed, left {left:?}");
            check(after.path(), &witness, witness.synced, &what);
        }
        check(
            dir.path(),
            &witness,
            witness.committed,
            &format!("killed after {bad} failed"),
        );
    }
}
