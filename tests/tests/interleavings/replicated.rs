//! Sessions of a replicated index, whose server loses, delays and repeats requests.

use std::sync::Arc;
use std::time::Duration;

use shale_index::engine::replicated::memory::{Fault, MemoryServer};
use shale_index::engine::replicated::{Options, Replicated};
use shale_index::kv::{Compare, Counter, Outcome as Committed, Txn, Want};
use shale_index::{Error, Kv};
use shale_tests::{Case, Outcome};
use shuttle::thread;

use crate::{Happened, explore};

type Session = Arc<Replicated<MemoryServer>>;

/// A session with so few lanes that transactions wait and are merged.
fn open(server: &MemoryServer) -> Session {
    let options = Options {
        prefix: b"/v/".to_vec(),
        pause: Duration::from_nanos(1),
        lanes: 1,
        ..Options::default()
    };
    Arc::new(Replicated::open(server.clone(), options).expect("a session"))
}

/// Adds to a counter that all share, and puts a key of its own.
fn work(key: &[u8]) -> Txn {
    let mut txn = Txn::new();
    txn.compare(Compare::Absent(key.to_vec()))
        .put(key.to_vec(), vec![])
        .add(b"n".to_vec(), Counter::of(1));
    txn
}

fn sum(kv: &Session) -> i64 {
    let wants = [Want::Counter(b"n".to_vec())];
    let found = kv.get_many(&wants).expect("it reads").found.remove(0);
    let counter = |value: &[u8]| Counter::decode(value).expect("a counter").sums[0];
    found.first().map_or(0, |(_, value)| counter(&value.value))
}

fn keys(kv: &Session) -> usize {
    kv.range(b"k", b"l", 100).expect("it reads").len()
}

/// Every transaction happens once and as it is answered, however threads and faults meet.
pub(crate) fn exactly_once(_case: &Case) -> Outcome {
    static MERGED: Happened = Happened::new();
    explore(|| {
        let server = MemoryServer::new();
        let clients = [server.client(), server.client()];
        let sessions = clients.clone().map(|client| open(&client));
        clients[0].inject([Fault::LoseAnswer, Fault::Delay(3), Fault::Twice(2)]);
        clients[1].inject([Fault::Delay(2), Fault::LoseRequest, Fault::Twice(4)]);
        let threads: Vec<_> = (0..5u8)
            .map(|number| {
                let kv = Arc::clone(&sessions[usize::from(number % 2)]);
                thread::spawn(move || {
                    let outcome = kv.commit(&work(&[b'k', number])).expect("it commits");
                    let Committed::Committed(version) = outcome else {
                        panic!("a conflict");
                    };
                    let mut ghost = work(b"k ghost");
                    ghost.compare(Compare::Exists(vec![b'g', number]));
                    let refused = kv.commit(&ghost).expect("it commits");
                    assert_eq!(refused, Committed::Conflict);
                    let mut gate = Txn::new();
                    gate.put(vec![b'g', number], vec![]);
                    kv.commit(&gate).expect("it commits");
                    version
                })
            })
            .collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        let mut versions: Vec<_> = joined.map(|version| version.expect("no panic")).collect();
        server.deliver();
        assert_eq!((sum(&sessions[0]), keys(&sessions[1])), (5, 5));
        versions.sort_unstable();
        MERGED.note(versions.windows(2).any(|pair| pair[0] == pair[1]));
        for kv in &sessions {
            kv.close().expect("it closes");
        }
    })?;
    MERGED.report("transactions were merged")
}

/// A session that is evicted while it commits is told the truth about every transaction.
pub(crate) fn evicted(_case: &Case) -> Outcome {
    static BOTH: Happened = Happened::new();
    explore(|| {
        let server = MemoryServer::new();
        let client = server.client();
        let (kv, other) = (open(&client), open(&server));
        client.inject([Fault::LoseAnswer, Fault::Delay(2), Fault::LoseAnswer]);
        let threads: Vec<_> = (0..3u8)
            .map(|number| {
                let kv = Arc::clone(&kv);
                thread::spawn(move || match kv.commit(&work(&[b'k', number])) {
                    Ok(Committed::Committed(_)) => true,
                    Err(Error::SessionEnded(_)) => false,
                    outcome => panic!("{outcome:?}"),
                })
            })
            .collect();
        let lease = kv.lease().0.cast_signed();
        let evicting = server.client();
        let evictor = thread::spawn(move || evicting.expire(lease));
        let joined = threads.into_iter().map(|thread| thread.join());
        let told: Vec<bool> = joined.map(|told| told.expect("no panic")).collect();
        evictor.join().expect("no panic");
        server.deliver();
        let happened = told.iter().filter(|told| **told).count();
        assert_eq!((sum(&other), keys(&other)), (happened as i64, happened));
        BOTH.note(happened > 0 && happened < 3);
        let mut late = Txn::new();
        late.put(b"k late".to_vec(), vec![]);
        assert!(matches!(kv.commit(&late), Err(Error::SessionEnded(_))));
        kv.close().expect("it closes");
        other.close().expect("it closes");
    })?;
    BOTH.report("some transactions happened and some did not")
}
