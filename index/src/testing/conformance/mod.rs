//! What every engine must do, as cases that any crate can run over any engine.
//!
//! A case gets a [`Fixture`] of its own, with an empty volume. Cases that need more than an engine
//! or a fixture has do nothing: several sessions, lost answers, frozen clients.

mod compares;
mod counters;
mod exactly_once;
mod groups;
mod imports;
mod limits;
pub mod model;
mod scans;
mod sessions;
mod snapshots;
mod watches;

use std::sync::Arc;

use crate::Error;
use crate::kv::{Compare, Counter, Import, Kv, Lease, Outcome, Txn, Version, Want};
use crate::primitives::thread;

/// An empty volume and what can be done to it.
pub trait Fixture: Sync {
    /// Begins a session, or returns the only one if the engine is not shared.
    fn session(&self) -> Arc<dyn Kv>;

    /// Whether there can be several sessions.
    fn shared(&self) -> bool;

    /// How many transactions a long case should execute.
    fn transactions(&self) -> usize {
        10_000
    }

    /// Holds all requests of a session until it is thawed, and lets its lease end meanwhile. False
    /// if that cannot be done.
    fn freeze_past_lease(&self, _session: Lease) -> bool {
        false
    }

    /// Releases what was held.
    fn thaw(&self, _session: Lease) {}

    /// From now on, `per_mille` of a session's requests are lost, delayed, executed twice, or have
    /// their answers lost. False if that cannot be done.
    fn lose_answers(&self, _session: Lease, _per_mille: u32) -> bool {
        false
    }

    /// Makes the server forget old versions. False if that cannot be done.
    fn compact(&self) -> bool {
        false
    }

    /// Kills the server that leads, and starts it again. False if that cannot be done.
    fn kill_leader(&self) -> bool {
        false
    }

    /// Holds what watches say, until this is called with `false`. False if that cannot be done.
    fn lag_watches(&self, _lag: bool) -> bool {
        false
    }

    /// Loses what watches say, until this is called with `false`. False if that cannot be done.
    fn break_watches(&self, _broken: bool) -> bool {
        false
    }

    /// Makes the volume, in which there was no session yet, of some pairs. `None` if that cannot
    /// be done.
    fn import(&self, _pairs: Vec<Import>) -> Option<Result<(), Error>> {
        None
    }
}

/// One thing that every engine must do.
#[derive(Clone, Copy)]
pub struct Case {
    /// The promise.
    pub name: &'static str,
    /// Panics if it is broken.
    pub run: fn(&dyn Fixture),
}

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

macro_rules! cases {
    ($($module:ident::$name:ident,)*) => {
        /// Everything that an engine must do.
        pub static CASES: &[Case] = &[$(Case {
            name: stringify!($name),
            run: $module::$name,
        }),*];
    };
}

cases! {
    snapshots::a_snapshot_shows_what_was_answered_before_it,
    snapshots::a_snapshot_shows_one_state_and_its_version,
    snapshots::more_wants_than_a_request_takes_are_one_snapshot,
    snapshots::ranges_are_limited_ordered_and_may_be_empty,
    snapshots::a_put_keeps_the_creation_and_a_delete_ends_it,
    compares::every_compare_holds_when_it_should,
    compares::a_transaction_that_does_not_hold_changes_nothing,
    compares::one_of_two_conflicting_transactions_wins,
    limits::a_key_that_is_changed_twice_is_refused,
    limits::a_transaction_at_the_limits_works_and_beyond_is_refused,
    counters::additions_add_up,
    counters::additions_of_many_sessions_add_up,
    counters::additions_and_drops_are_serial,
    counters::counters_are_shown_in_ranges_with_their_sums,
    counters::a_counter_is_compared_as_a_range,
    sessions::leased_keys_go_with_their_session,
    sessions::a_foreign_lease_is_refused,
    sessions::an_ended_session_commits_nothing,
    sessions::a_closed_session_refuses_work,
    sessions::a_session_survives_the_death_of_a_leader,
    scans::a_long_scan_shows_one_version_while_others_write,
    scans::a_scan_begins_again_when_its_version_is_forgotten,
    scans::a_dump_shows_every_key_once,
    watches::every_change_is_hinted_at,
    watches::a_watch_that_misses_something_reports_a_gap,
    watches::a_late_watch_makes_no_read_stale,
    exactly_once::transactions_happen_once_when_answers_are_lost,
    groups::transactions_of_many_threads_are_each_answered,
    groups::a_conflict_does_not_spread_to_others,
    model::random_transactions_are_serial,
    imports::an_import_keeps_the_order_of_versions,
    imports::an_import_into_a_volume_with_keys_is_refused,
}

/// The case with a name.
///
/// # Panics
/// If there is none.
#[must_use]
pub fn case(name: &str) -> Case {
    let found = CASES.iter().find(|case| case.name == name);
    *found.expect("a case with that name")
}

/// Commits something that must happen.
fn commit(kv: &dyn Kv, build: impl FnOnce(&mut Txn)) -> Version {
    match try_commit(kv, build) {
        Outcome::Committed(version) => version,
        Outcome::Conflict => panic!("a conflict"),
    }
}

fn try_commit(kv: &dyn Kv, build: impl FnOnce(&mut Txn)) -> Outcome {
    let mut txn = Txn::new();
    build(&mut txn);
    kv.commit(&txn).expect("the engine commits")
}

fn put(kv: &dyn Kv, key: &[u8], value: &[u8]) -> Version {
    commit(kv, |txn| {
        txn.put(key.to_vec(), value.to_vec());
    })
}

fn add(kv: &dyn Kv, key: &[u8], sum: i64) -> Version {
    commit(kv, |txn| {
        txn.add(key.to_vec(), Counter::of(sum));
    })
}

/// Whether a compare holds.
fn holds(kv: &dyn Kv, compare: Compare) -> bool {
    try_commit(kv, |txn| {
        txn.compare(compare);
    }) != Outcome::Conflict
}

/// The first sum of a counter; `None` if it does not exist.
fn sum(kv: &dyn Kv, key: &[u8]) -> Option<i64> {
    let found = kv.get_many(&[Want::Counter(key.to_vec())]);
    let found = found.expect("the engine reads").found;
    let (_, value) = found.first().and_then(|pairs| pairs.first())?;
    let counter = Counter::decode(&value.value).expect("a counter");
    Some(counter.sums[0])
}

fn value(kv: &dyn Kv, key: &[u8]) -> Option<Vec<u8>> {
    let found = kv.get(key).expect("the engine reads");
    found.map(|found| found.value.to_vec())
}

/// A key with a number.
fn numbered(prefix: &str, number: usize) -> Vec<u8> {
    format!("{prefix}{number:06}").into_bytes()
}

/// Calls `body` in some threads at the same time, with their numbers.
fn in_threads(threads: usize, body: impl Fn(usize) + Sync) {
    thread::scope(|scope| {
        for number in 0..threads {
            let body = &body;
            scope.spawn(move || body(number));
        }
    });
}

/// Tries until something is true, for a while.
fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if is_true() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    panic!("not within 20 seconds: {what}");
}
