//! The beginning of a session: a lease, a number, and its lanes.
//!
//! One transaction puts the key of the session and all lanes, so that either all of them exist or
//! none. The name of the key has the lease in it, so only this session puts it: if it exists when
//! an answer was lost, the transaction happened. The commit that created it is the number of the
//! session; a commit creates one session, so no two have the same.

use std::sync::Arc;

use super::batch::Queue;
use super::keys::SlotOwner;
use super::lanes::Lane;
use super::link::{Failure, Link};
use super::options::{MOST_LANES, Options};
use super::server::{
    LeaseId, RawCompare, RawOp, RawRange, RawTxn, Revision, Server, ServerError, Test,
};
use super::session::{Keeper, Session, uptime};
use super::{Replicated, work};
use crate::Error;
use crate::primitives::{Mutex, thread};

pub(super) fn open<S: Server>(server: S, options: Options) -> Result<Replicated<S>, Error> {
    let mut link = Link::new(server, options);
    link.options.lanes = link.options.lanes.clamp(1, MOST_LANES);
    let sent = uptime();
    let lease = grant(&link)?;
    let number = match register(&link, lease) {
        Ok(number) => number,
        Err(error) => {
            // Then a lost request can take effect no more. If this fails too, the lease runs out.
            let _ = link.server.revoke(lease, link.options.patience);
            return Err(error);
        }
    };
    let session = Arc::new(Session::new(lease, number, sent + link.options.ttl));
    let lane = |lane| {
        let owner = SlotOwner {
            session: number,
            lane,
        };
        Lane::new(link.space.lane(lease, lane), lease, owner, number)
    };
    // The last one is used first.
    let queue = Arc::new(Queue::new(
        (0..link.options.lanes).rev().map(lane).collect(),
    ));
    let refusing = Arc::clone(&queue);
    session.on_end(Box::new(move |reason| {
        refusing.refuse(&Failure::Ended(reason.to_owned()));
    }));
    link.session = Some(Arc::clone(&session));
    let link = Arc::new(link);
    let keeper = Keeper {
        link: Arc::clone(&link),
        session: Arc::clone(&session),
    };
    let keeper = thread::Builder::new()
        .name("shale-lease".into())
        .spawn(move || keeper.run())
        .map_err(|error| Error::Refused(format!("no thread to keep a lease alive: {error}")))?;
    Ok(Replicated {
        limits: work::limits(&link.server.limits(), &link.space),
        link,
        session,
        queue,
        keeper: Mutex::new(Some(keeper)),
    })
}

/// A lease whose answer was lost runs out by itself.
fn grant<S: Server>(link: &Link<S>) -> Result<LeaseId, Error> {
    let mut retry = link.retry();
    loop {
        match link.server.grant(link.options.ttl, link.options.patience) {
            Ok(lease) => return Ok(lease),
            Err(ServerError::Unknown(why) | ServerError::Unavailable(why)) => {
                if retry.again().is_err() {
                    return Err(Error::Unavailable(why));
                }
            }
            Err(other) => return Err(Error::Refused(other.to_string())),
        }
    }
}

/// Puts the session and its lanes, and returns its number.
fn register<S: Server>(link: &Link<S>, lease: LeaseId) -> Result<Revision, Error> {
    let (session, import) = (link.space.session(lease), link.space.import());
    let absent = |key: &Vec<u8>| RawCompare {
        key: key.clone(),
        end: None,
        test: Test::Absent,
    };
    let look = |key: &Vec<u8>| RawRange {
        key: key.clone(),
        end: None,
        limit: 0,
        revision: 0,
    };
    let put = |key: Vec<u8>, value: &[u8]| RawOp::Put {
        key,
        value: value.to_vec(),
        lease,
    };
    let lanes = (0..link.options.lanes).map(|lane| put(link.space.lane(lease, lane), &[0; 8]));
    let raw = RawTxn {
        compares: vec![absent(&session), absent(&import)],
        ops: [put(session.clone(), &[])]
            .into_iter()
            .chain(lanes)
            .collect(),
        reads: vec![],
        otherwise: vec![look(&session), look(&import)],
    };
    let mut retry = link.retry();
    loop {
        let why = match link.server.txn(&raw, link.options.patience) {
            Ok(answer) if answer.held => {
                link.saw(answer.revision);
                return Ok(answer.revision);
            }
            Ok(answer) => {
                link.saw(answer.revision);
                let mut pages = answer.pages.iter();
                if let Some(mine) = pages.next().and_then(|page| page.pairs.first()) {
                    return Ok(mine.created);
                }
                return Err(Error::Refused(
                    "the volume has an incomplete import: remove its keys and import it again"
                        .into(),
                ));
            }
            Err(ServerError::Unknown(why) | ServerError::Unavailable(why)) => why,
            Err(ServerError::Full) => return Err(Failure::Full.into()),
            Err(other) => return Err(Error::Refused(other.to_string())),
        };
        if retry.again().is_err() {
            return Err(Error::Unavailable(why));
        }
    }
}
