//! Leases.
//!
//! All requests can be repeated: a grant names the lease itself, so a second one finds it there.

use std::time::Duration;

use etcd_client::LeaseGrantOptions;
use tokio::time::Instant;

use super::endpoints::{Attempt, Endpoints, Kind, random};
use super::errors::{Judgement, is_lease_exists, judge};
use crate::engine::replicated::server::{LeaseId, ServerError};

pub(super) async fn grant(
    endpoints: &Endpoints,
    ttl: Duration,
    deadline: Instant,
) -> Result<LeaseId, ServerError> {
    // etcd counts in seconds; a longer lease does no harm.
    let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    let seconds = i64::try_from(seconds.max(1)).unwrap_or(i64::MAX);
    let mut id = new_id();
    endpoints
        .call(deadline, Kind::Lease, |attempt| {
            if !attempt.is_doubtful {
                id = new_id();
            }
            grant_once(attempt, id, seconds)
        })
        .await
}

async fn grant_once(
    mut attempt: Attempt,
    id: LeaseId,
    seconds: i64,
) -> Result<LeaseId, etcd_client::Error> {
    let options = LeaseGrantOptions::new().with_id(id);
    match attempt.client.lease_grant(seconds, Some(options)).await {
        Ok(granted) => Ok(granted.id()),
        // By an earlier try, whose answer was lost.
        Err(error) if attempt.is_doubtful && is_lease_exists(&error) => Ok(id),
        Err(error) => Err(error),
    }
}

/// A positive number that no other client has.
fn new_id() -> LeaseId {
    LeaseId::try_from(random() >> 1).unwrap_or(1).max(1)
}

pub(super) async fn keep_alive(
    endpoints: &Endpoints,
    lease: LeaseId,
    deadline: Instant,
) -> Result<Duration, ServerError> {
    let seconds = endpoints
        .call(deadline, Kind::Lease, |attempt| {
            keep_alive_once(attempt, lease)
        })
        .await?;
    match u64::try_from(seconds) {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(ServerError::LeaseGone),
    }
}

/// The library keeps the answer to the first message for itself, so a second one is sent. The
/// lease then lasts longer than the caller counts, never shorter.
async fn keep_alive_once(mut attempt: Attempt, lease: LeaseId) -> Result<i64, etcd_client::Error> {
    let (mut keeper, mut answers) = attempt.client.lease_keep_alive(lease).await?;
    keeper.keep_alive().await?;
    match answers.message().await? {
        Some(answer) => Ok(answer.ttl()),
        None => Err(etcd_client::Error::LeaseKeepAliveError(
            "the member ended the stream".into(),
        )),
    }
}

pub(super) async fn revoke(
    endpoints: &Endpoints,
    lease: LeaseId,
    deadline: Instant,
) -> Result<(), ServerError> {
    endpoints
        .call(deadline, Kind::Lease, |mut attempt| async move {
            match attempt.client.lease_revoke(lease).await {
                Ok(_) => Ok(()),
                // Ended by an earlier try, whose answer was lost.
                Err(error) if attempt.is_doubtful && is_gone(&error) => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await
}

fn is_gone(error: &etcd_client::Error) -> bool {
    judge(error) == Judgement::Final(ServerError::LeaseGone)
}
