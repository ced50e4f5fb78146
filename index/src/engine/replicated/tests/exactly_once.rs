//! Lost answers, and requests that arrive late.

use std::sync::Arc;
use std::time::Duration;

use super::super::Replicated;
use super::super::memory::{Fault, MemoryServer};
use super::{Hooked, adding, open, options, put, sum};
use crate::Error;
use crate::engine::replicated::Options;
use crate::kv::{Compare, Kv, Outcome, SessionState, Txn, Want};

#[test]
fn a_transaction_happens_once_whatever_its_request_suffers() {
    let server = MemoryServer::new();
    let kv = open(&server);
    let faults = [
        vec![Fault::LoseRequest],
        vec![Fault::LoseAnswer],
        vec![Fault::Delay(1)],
        vec![Fault::Delay(100)],
        vec![Fault::Twice(1)],
        vec![Fault::Unavailable, Fault::LoseAnswer],
        vec![
            Fault::Delay(1),
            Fault::Delay(2),
            Fault::LoseAnswer,
            Fault::Twice(2),
        ],
    ];
    let mut last = 0;
    for (number, faults) in faults.into_iter().enumerate() {
        server.inject(faults.clone());
        let Outcome::Committed(version) = kv.commit(&adding(b"n", 1)).unwrap() else {
            panic!("{faults:?}");
        };
        server.deliver();
        assert!(version > last);
        last = version;
        let shown = kv.get_many(&[Want::Counter(b"n".to_vec())]).unwrap();
        assert_eq!(shown.found[0][0].1.version, version, "{faults:?}");
        assert_eq!(sum(&kv, b"n"), number as i64 + 1, "{faults:?}");
    }
}

#[test]
fn a_lost_request_cannot_take_effect_after_its_transaction_was_refused() {
    let server = MemoryServer::new();
    let (kv, other) = (open(&server), open(&server.client()));
    let mut txn = put(b"ghost");
    txn.compare(Compare::Exists(b"gate".to_vec()));
    for faults in [
        vec![Fault::Twice(1000)],
        vec![Fault::Delay(1000)],
        vec![Fault::Delay(1000), Fault::Unavailable, Fault::Delay(1000)],
        // Ruling it out gets no answer either.
        vec![Fault::Delay(1000), Fault::Twice(0), Fault::LoseAnswer],
        vec![Fault::Delay(1000), Fault::Twice(0), Fault::Delay(1000)],
    ] {
        server.inject(faults);
        assert_eq!(kv.commit(&txn).unwrap(), Outcome::Conflict);
        other.commit(&put(b"gate")).unwrap();
        server.deliver();
        assert_eq!(kv.get(b"ghost").unwrap(), None);
        let mut txn = Txn::new();
        txn.delete(b"gate".to_vec());
        other.commit(&txn).unwrap();
    }
}

/// Commits with a fault, upon which the lease ends and other things happen.
fn commit_and_end(fault: Fault, also: fn(&MemoryServer)) -> (MemoryServer, Result<Outcome, Error>) {
    let server = MemoryServer::new();
    let hook = move |server: &MemoryServer| {
        // Some history, so that the commit has to be searched for.
        let other = open(&server.client());
        for _ in 0..20 {
            other.commit(&put(b"other")).unwrap();
        }
        server.pass(Duration::from_secs(60));
        also(server);
    };
    let hooked = Hooked {
        server: server.client(),
        hook: Arc::new(hook),
    };
    let kv = open(&hooked);
    kv.commit(&put(b"before")).unwrap();
    hooked.server.inject([fault]);
    let outcome = kv.commit(&put(b"key"));
    assert!(matches!(kv.session(), SessionState::Ended(_)));
    server.deliver();
    (server, outcome)
}

#[test]
fn the_end_of_the_session_does_not_hide_what_happened() {
    let (server, outcome) = commit_and_end(Fault::LoseAnswer, |_| {});
    let Ok(Outcome::Committed(version)) = outcome else {
        panic!("{outcome:?}");
    };
    let found = open(&server).get(b"key").unwrap().unwrap();
    assert_eq!(found.version, version);

    for fault in [Fault::LoseRequest, Fault::Delay(10_000)] {
        let (server, outcome) = commit_and_end(fault, |_| {});
        assert!(
            matches!(outcome, Err(Error::SessionEnded(_))),
            "{outcome:?}"
        );
        assert_eq!(open(&server).get(b"key").unwrap(), None);
    }
}

#[test]
fn an_outcome_that_no_server_knows_any_more_is_called_unknown() {
    for fault in [Fault::LoseAnswer, Fault::LoseRequest] {
        let (_, outcome) = commit_and_end(fault, MemoryServer::compact);
        assert!(
            matches!(outcome, Err(Error::OutcomeUnknown(_))),
            "{outcome:?}"
        );
    }
}

#[test]
fn a_lane_that_was_left_in_doubt_is_used_only_when_that_is_over() {
    let server = MemoryServer::new();
    let hooked = Hooked {
        server: server.clone(),
        hook: Arc::new(|server| server.disconnect(true)),
    };
    let options = Options {
        deadline: Some(Duration::from_millis(50)),
        ..options()
    };
    let kv = Replicated::open(hooked, options).unwrap();
    for (fault, happened) in [(Fault::Delay(10_000), false), (Fault::LoseAnswer, true)] {
        let before = sum(&kv, b"n");
        server.inject([fault]);
        let unknown = kv.commit(&adding(b"n", 1));
        assert!(
            matches!(unknown, Err(Error::OutcomeUnknown(_))),
            "{unknown:?}"
        );
        server.disconnect(false);
        kv.commit(&adding(b"n", 10)).unwrap();
        server.deliver();
        let expected = before + 10 + i64::from(happened);
        assert_eq!(sum(&kv, b"n"), expected, "{fault:?}");
    }
}
