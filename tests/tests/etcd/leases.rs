//! Leases and the keys under them.

use std::time::{Duration, Instant};

use shale_index::engine::replicated::server::{Server, ServerError};
use shale_tests::{Case, Failure, Outcome, ensure, ensure_eq};

use crate::{PATIENCE, change, get, put, put_leased, single};

/// The shortest that etcd grants: one and a half times its election timeout, in whole seconds.
const TTL: Duration = Duration::from_secs(2);

pub(crate) fn end(case: &Case) -> Outcome {
    let (_cluster, server) = single(case)?;
    let begun = Instant::now();
    let lease = server.grant(TTL, PATIENCE)?;
    let answer = server.txn(
        &change(vec![put_leased("a", "1", lease), put("b", "1")]),
        PATIENCE,
    )?;
    ensure!(answer.held, "a put under a lease");
    while get(&server, "a")?.is_some() {
        ensure!(begun.elapsed() < PATIENCE, "a key outlives its lease");
        std::thread::sleep(Duration::from_millis(50));
    }
    ensure!(
        begun.elapsed() >= TTL,
        "a lease of {TTL:?} ended after {:?}",
        begun.elapsed()
    );
    ensure_eq!(get(&server, "b")?.as_deref(), Some("1"));
    ensure_eq!(
        server.keep_alive(lease, PATIENCE),
        Err(ServerError::LeaseGone)
    );
    Ok(())
}

pub(crate) fn stays(case: &Case) -> Outcome {
    let (_cluster, server) = single(case)?;
    let lease = server.grant(TTL, PATIENCE)?;
    server.txn(&change(vec![put_leased("a", "1", lease)]), PATIENCE)?;
    let begun = Instant::now();
    while begun.elapsed() < 2 * TTL {
        let lasts = server.keep_alive(lease, PATIENCE)?;
        ensure_eq!(lasts, TTL);
        std::thread::sleep(TTL / 4);
    }
    ensure_eq!(get(&server, "a")?.as_deref(), Some("1"));
    server.revoke(lease, PATIENCE)?;
    ensure_eq!(get(&server, "a")?, None);
    Ok(())
}

pub(crate) fn revoked(case: &Case) -> Outcome {
    let (_cluster, server) = single(case)?;
    let lease = server.grant(Duration::from_millis(1500), PATIENCE)?;
    ensure_eq!(server.keep_alive(lease, PATIENCE)?, TTL);
    server.revoke(lease, PATIENCE)?;
    ensure_eq!(
        server.keep_alive(lease, PATIENCE),
        Err(ServerError::LeaseGone)
    );
    ensure_eq!(server.revoke(lease, PATIENCE), Err(ServerError::LeaseGone));
    let txn = change(vec![put("b", "1"), put_leased("a", "1", lease)]);
    match server.txn(&txn, PATIENCE) {
        Err(ServerError::LeaseGone) => {}
        other => return Err(Failure::new(format!("a put under a dead lease: {other:?}"))),
    }
    ensure_eq!(get(&server, "b")?, None);
    Ok(())
}
