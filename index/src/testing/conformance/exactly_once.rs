//! Lost answers.

use std::sync::Mutex;

use super::{Fixture, commit, in_threads, numbered, put, sum, try_commit, value};
use crate::kv::{Compare, Counter, Kv, Outcome};

const SESSIONS: usize = 4;
const THREADS: usize = 16;

/// Every transaction is counted three times: by a counter, by a key of its own that must not exist
/// before, and by a chain in which each link compares the one before. Others compare nothing, and
/// would do harm if they happened once more, or later than they were answered.
pub(super) fn transactions_happen_once_when_answers_are_lost(fixture: &dyn Fixture) {
    let sessions: Vec<_> = (0..SESSIONS).map(|_| fixture.session()).collect();
    for (number, kv) in sessions.iter().enumerate() {
        put(&**kv, &numbered("chain", number), b"");
    }
    let lossy = sessions
        .iter()
        .all(|kv| fixture.lose_answers(kv.lease(), 100));
    let each = if lossy { fixture.transactions() } else { 320 } / THREADS;
    let versions = Mutex::new(Vec::new());
    in_threads(THREADS, |thread| {
        let kv = &*sessions[thread % SESSIONS];
        let mut chain = Chain::new(kv, numbered("own chain", thread));
        for number in 0..each {
            let unique = numbered(&format!("u{thread:02}-"), number);
            let version = chain.extend(kv, number, |txn| {
                txn.compare(Compare::Absent(unique.clone()))
                    .put(unique.clone(), vec![])
                    .add(b"count".to_vec(), Counter::of(1));
            });
            versions.lock().expect("no panic").push(version);
            let other = &*sessions[(thread + 1) % SESSIONS];
            blind(kv, other, thread, number);
        }
    });
    for kv in &sessions {
        fixture.lose_answers(kv.lease(), 0);
    }
    let kv = &*sessions[0];
    let total = each * THREADS;
    assert_eq!(sum(kv, b"count"), Some(total as i64));
    let keys = kv.range(b"u", b"v", usize::MAX).expect("the engine reads");
    assert_eq!(keys.len(), total, "a key of its own for each");
    let mut shown: Vec<_> = keys.iter().map(|(_, value)| value.version).collect();
    let mut told = versions.into_inner().expect("no panic");
    shown.sort_unstable();
    told.sort_unstable();
    assert_eq!(shown, told, "each happened as it was answered");
    for thread in 0..THREADS {
        let end = kv.get(&numbered("own chain", thread));
        let end = end.expect("the engine reads").expect("a value");
        assert_eq!(&end.value[..], (each as u64).to_be_bytes());
    }
    let ghosts = kv.range(b"ghost", b"ghosu", 1).expect("the engine reads");
    assert_eq!(ghosts, [], "it happened after it was refused");
}

/// Puts a key that only this thread puts, and from time to time something that must be refused,
/// although another session makes its compare hold soon.
fn blind(kv: &dyn Kv, other: &dyn Kv, thread: usize, number: usize) {
    let key = numbered("blind", thread);
    let bytes = number.to_be_bytes();
    put(kv, &key, &bytes);
    let (gate, ghost) = (numbered("gate", thread), numbered("ghost", thread));
    match number % 4 {
        0 => {
            let outcome = try_commit(kv, |txn| {
                txn.compare(Compare::Exists(gate.clone()))
                    .put(ghost, vec![]);
            });
            assert_eq!(outcome, Outcome::Conflict);
            put(other, &gate, b"");
        }
        3 => {
            commit(other, |txn| {
                txn.delete(gate);
            });
        }
        _ => {}
    }
    assert_eq!(
        value(kv, &key),
        Some(bytes.to_vec()),
        "an old put came back"
    );
}

/// A key that only one thread changes.
struct Chain {
    key: Vec<u8>,
    version: u64,
}

impl Chain {
    fn new(kv: &dyn Kv, key: Vec<u8>) -> Self {
        let version = put(kv, &key, &0u64.to_be_bytes());
        Self { key, version }
    }

    /// Commits with a compare of what the last commit was answered with.
    fn extend(
        &mut self,
        kv: &dyn Kv,
        number: usize,
        build: impl FnOnce(&mut crate::kv::Txn),
    ) -> u64 {
        let outcome = try_commit(kv, |txn| {
            txn.compare(Compare::VersionIs(self.key.clone(), self.version));
            txn.put(self.key.clone(), (number as u64 + 1).to_be_bytes().to_vec());
            build(txn);
        });
        let Outcome::Committed(version) = outcome else {
            panic!("link {number} of a chain was not as its commit was answered");
        };
        assert!(version > self.version);
        self.version = version;
        version
    }
}
