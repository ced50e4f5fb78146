//! Random transactions of several sessions, compared with the naive engine.
//!
//! Versions order the transactions of all sessions. Executed one after the other in that order by
//! [`ReferenceKv`], they must come to the same: each transaction that was committed holds, each
//! snapshot shows the state of its version, and a transaction that was refused did not hold in
//! some state between its beginning and its end.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::{Fixture, in_threads};
use crate::engine::ReferenceKv;
use crate::kv::{Compare, Counter, Found, Kv, Limits, Op, Outcome, Snapshot, Txn, Version, Want};

const SESSIONS: usize = 3;

/// A transaction of a session. Versions in its compares are numbers of transactions that were
/// committed before, in any session.
#[derive(Clone, Debug)]
pub struct Step {
    /// The number of the session.
    pub session: usize,
    /// The transaction.
    pub txn: Txn,
}

/// What became of a transaction.
struct Event {
    txn: Txn,
    outcome: Outcome,
    /// A version that had been reached when it began, and one that had not been exceeded yet
    /// when it ended.
    window: (Version, Version),
}

/// Executes transactions one after the other in several sessions, and compares the outcomes and
/// all states.
///
/// # Panics
/// If one is different.
pub fn run_serially(fixture: &dyn Fixture, steps: &[Step]) {
    let sessions: Vec<_> = (0..SESSIONS).map(|_| fixture.session()).collect();
    let (mut versions, mut events, mut snapshots) = (Vec::new(), Vec::new(), Vec::new());
    for step in steps {
        let kv = &*sessions[step.session % SESSIONS];
        let event = execute(kv, resolve(&step.txn, &versions));
        if let Outcome::Committed(version) = event.outcome {
            versions.push(version);
        }
        events.push(event);
        let reader = &*sessions[(step.session + 1) % SESSIONS];
        snapshots.push(whole(reader));
    }
    Replay::new(&events, fixture.shared()).check(&events, &snapshots);
}

/// The same at random and at the same time.
pub(super) fn random_transactions_are_serial(fixture: &dyn Fixture) {
    let sessions: Vec<_> = (0..SESSIONS).map(|_| fixture.session()).collect();
    let versions = Mutex::new(Vec::new());
    let log = Mutex::new((Vec::new(), Vec::new()));
    in_threads(2 * SESSIONS, |thread| {
        let kv = &*sessions[thread % SESSIONS];
        let mut dice = Dice(thread as u64 + 1);
        for _ in 0..60 {
            let txn = dice.txn();
            let txn = resolve(&txn, &versions.lock().expect("no panic"));
            let event = execute(kv, txn);
            if let Outcome::Committed(version) = event.outcome {
                versions.lock().expect("no panic").push(version);
            }
            let snapshot = dice.one_of(3).then(|| whole(kv));
            let mut log = log.lock().expect("no panic");
            log.0.push(event);
            log.1.extend(snapshot);
        }
    });
    let (events, mut snapshots) = log.into_inner().expect("no panic");
    snapshots.push(whole(&*sessions[0]));
    Replay::new(&events, fixture.shared()).check(&events, &snapshots);
}

fn execute(kv: &dyn Kv, txn: Txn) -> Event {
    let now = || kv.get_many(&[]).expect("the engine reads").version;
    let before = now();
    let outcome = kv.commit(&txn).expect("the engine commits");
    let window = (before, now());
    Event {
        txn,
        outcome,
        window,
    }
}

/// The whole state.
fn whole(kv: &dyn Kv) -> Snapshot {
    let want = Want::Range {
        start: vec![],
        end: b"z".to_vec(),
        limit: usize::MAX,
    };
    kv.get_many(&[want]).expect("the engine reads")
}

/// Makes numbers of transactions versions.
fn resolve(txn: &Txn, versions: &[Version]) -> Txn {
    let pick = |number: u64| {
        let at = usize::try_from(number)
            .unwrap_or(0)
            .checked_rem(versions.len());
        at.map_or(0, |at| versions[at])
    };
    with_versions(txn, pick, pick)
}

/// The same transaction with other versions in its compares.
fn with_versions(
    txn: &Txn,
    exact: impl Fn(Version) -> Version,
    bound: impl Fn(Version) -> Version,
) -> Txn {
    let mut txn = txn.clone();
    for compare in &mut txn.compares {
        match compare {
            Compare::VersionIs(_, version) | Compare::CreatedAt(_, version) => {
                *version = exact(*version);
            }
            Compare::RangeNotNewer { version, .. } => *version = bound(*version),
            _ => {}
        }
    }
    txn
}

/// All transactions that were committed, executed by the reference.
struct Replay {
    /// The states after each version, and the one before all.
    states: BTreeMap<Version, ReferenceKv>,
    /// Versions, and what they are for the reference.
    versions: BTreeMap<Version, Version>,
}

impl Replay {
    fn new(events: &[Event], shared: bool) -> Self {
        let mut commits: BTreeMap<Version, Vec<&Txn>> = BTreeMap::new();
        for event in events {
            if let Outcome::Committed(version) = event.outcome {
                commits.entry(version).or_default().push(&event.txn);
            }
        }
        let mut replay = Self {
            states: BTreeMap::from([(0, ReferenceKv::new())]),
            versions: BTreeMap::new(),
        };
        let mut state = ReferenceKv::new();
        for (version, txns) in commits {
            let before = state.version();
            state = if shared {
                replay.together(&state, &txns)
            } else {
                replay.first_of(&state, version, &txns)
            };
            if state.version() > before {
                replay.versions.insert(version, state.version());
            }
            replay.states.insert(version, state.reopen());
        }
        replay
    }

    /// Executes transactions that share a commit, which do not touch each other.
    fn together(&self, state: &ReferenceKv, txns: &[&Txn]) -> ReferenceKv {
        let mut joined = Txn::new();
        for txn in txns {
            join(&mut joined, txn);
        }
        let next = state.reopen();
        let outcome = next.commit(&self.translate(&joined));
        let outcome = outcome.expect("the reference commits");
        assert_ne!(outcome, Outcome::Conflict, "it did not hold: {joined:?}");
        next
    }

    /// Executes transactions that were answered with one version: one has made it, and the others
    /// have changed nothing afterwards.
    fn first_of(&mut self, state: &ReferenceKv, version: Version, txns: &[&Txn]) -> ReferenceKv {
        for first in 0..txns.len() {
            let next = state.reopen();
            let executes = |replay: &Self, txn: &Txn| {
                let outcome = next.commit(&replay.translate(txn));
                outcome.expect("the reference commits") != Outcome::Conflict
            };
            let held = executes(self, txns[first]);
            let made = next.version();
            if made > state.version() {
                self.versions.insert(version, made);
            }
            let mut others = (0..txns.len()).filter(|other| *other != first);
            if held && others.all(|other| executes(self, txns[other])) && next.version() == made {
                return next;
            }
            self.versions.remove(&version);
        }
        panic!("none of the transactions can have made version {version}");
    }

    fn translate(&self, txn: &Txn) -> Txn {
        let exact = |version| self.versions.get(&version).copied().unwrap_or(Version::MAX);
        let bound = |version| {
            let known = self.versions.range(..=version).next_back();
            known.map_or(0, |(_, version)| *version)
        };
        with_versions(txn, exact, bound)
    }

    /// The state at a version, as snapshots show it.
    fn state_at(&self, version: Version) -> Found {
        let (_, state) = self.states.range(..=version).next_back().expect("a state");
        let back: BTreeMap<Version, Version> = self
            .versions
            .iter()
            .map(|(ours, theirs)| (*theirs, *ours))
            .collect();
        let mut found = whole(state).found.remove(0);
        for (_, value) in &mut found {
            value.version = back[&value.version];
            value.created = back[&value.created];
        }
        found
    }

    fn check(&self, events: &[Event], snapshots: &[Snapshot]) {
        for Event {
            txn,
            outcome,
            window: (from, to),
        } in events
        {
            match outcome {
                Outcome::Committed(version) => assert!(from <= version && version <= to),
                Outcome::Conflict => {
                    let mut compares = self.translate(txn);
                    compares.ops.clear();
                    let first = self.states.range(..=from).next_back();
                    let later = self.states.range(from + 1..=(*to).max(from + 1));
                    let failed = |(_, state): (&Version, &ReferenceKv)| {
                        let outcome = state.commit(&compares).expect("the reference commits");
                        outcome == Outcome::Conflict
                    };
                    let failed = first.into_iter().chain(later).any(failed);
                    assert!(failed, "it held all the time: {txn:?}");
                }
            }
        }
        for snapshot in snapshots {
            assert_eq!(snapshot.found[0], self.state_at(snapshot.version));
        }
    }
}

/// Adds a transaction that was committed by the same commit.
fn join(into: &mut Txn, txn: &Txn) {
    into.compares.extend(txn.compares.iter().cloned());
    for op in &txn.ops {
        let same = into.ops.iter_mut().find_map(|other| match (other, op) {
            (Op::Add { key, delta }, Op::Add { key: k, delta: d }) if key == k => Some((delta, d)),
            _ => None,
        });
        match same {
            Some((sum, delta)) => *sum = sum.plus(delta),
            None => into.ops.push(op.clone()),
        }
    }
}

/// Random numbers that a seed determines.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % sides
    }

    fn one_of(&mut self, sides: u64) -> bool {
        self.roll(sides) == 0
    }

    fn key(&mut self) -> Vec<u8> {
        let len = 1 + self.roll(2);
        (0..len).map(|_| b'a' + self.roll(3) as u8).collect()
    }

    fn counter(&mut self) -> Vec<u8> {
        [&b"b+"[..], b"c+"][self.roll(2) as usize].to_vec()
    }

    fn compare(&mut self) -> Compare {
        let (start, end) = (self.key(), self.key());
        let version = self.roll(1000);
        match self.roll(6) {
            0 => Compare::Absent(start),
            1 => Compare::Exists(start),
            2 => Compare::VersionIs(start, version),
            3 => Compare::CreatedAt(start, version),
            4 => Compare::RangeEmpty { start, end },
            _ => Compare::RangeNotNewer {
                start,
                end,
                version,
            },
        }
    }

    fn op(&mut self) -> Op {
        match self.roll(10) {
            0..4 => Op::Put {
                key: self.key(),
                value: vec![self.roll(256) as u8; self.roll(9) as usize],
                lease: None,
            },
            4..6 => Op::Delete(self.key()),
            6 => Op::DeleteRange {
                start: self.key(),
                end: self.key(),
            },
            7..9 => Op::Add {
                key: self.counter(),
                delta: Counter::of(self.roll(100) as i64 - 50),
            },
            _ => Op::DropCounter(self.counter()),
        }
    }

    fn txn(&mut self) -> Txn {
        let mut txn = Txn::new();
        if self.one_of(3) {
            for _ in 0..1 + self.roll(2) {
                let compare = self.compare();
                txn.compare(compare);
            }
        }
        for _ in 0..1 + self.roll(4) {
            txn.ops.push(self.op());
            if txn.check(&Limits::NONE).is_err() {
                txn.ops.pop();
            }
        }
        txn
    }
}

/// A fixture for which one engine is every session.
#[derive(Debug)]
pub struct Alone(pub Arc<dyn Kv>);

impl Fixture for Alone {
    fn session(&self) -> Arc<dyn Kv> {
        Arc::clone(&self.0)
    }

    fn shared(&self) -> bool {
        false
    }
}
