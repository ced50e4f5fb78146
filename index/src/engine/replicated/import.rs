//! A new volume from a list of pairs.
//!
//! The order of versions survives, their numbers do not: pairs are put in the order of their
//! versions, and only those of one version share a transaction. `created` becomes the version.
//!
//! A key marks the import as incomplete from the first transaction to the last; no session can be
//! opened while it exists. It also serves as the lane of the import, without a lease: each
//! transaction happens exactly once, and an import that was cut off cannot go on by itself.

use super::keys::SlotOwner;
use super::lanes::{Lane, Sent};
use super::link::{Failure, Link, LookError};
use super::options::Options;
use super::server::{RawCompare, RawOp, RawRange, RawTxn, Revision, Server, ServerError, Test};
use super::session::uptime;
use super::work::{self, MAX_KEY};
use super::{keys::KeySpace, slots};
use crate::Error;
use crate::kv::{Counter, Import, Limits, Version};

/// Makes a volume of some pairs, which are kept in memory meanwhile. The prefix of `options` must
/// hold no key. Every version of the new volume is larger than `above`.
///
/// # Errors
/// [`Error::Refused`] when the prefix holds keys, or when the server's revision is below `above`,
/// which only its operator can change. After any error the volume cannot be opened until all its
/// keys have been removed.
pub fn import<S: Server>(
    server: S,
    options: Options,
    pairs: impl IntoIterator<Item = Import>,
    above: Version,
) -> Result<(), Error> {
    let link = Link::new(server, options);
    let limits = work::limits(&link.server.limits(), &link.space);
    let (mut lane, number) = begin(&link, above)?;
    let owner = SlotOwner {
        session: number,
        lane: 0,
    };
    let mut pairs: Vec<Import> = pairs.into_iter().collect();
    pairs.sort_by_key(|pair| pair.value.version);
    let mut batch = Batch::default();
    for pair in &pairs {
        let (op, len) = raw_put(pair, &link.space, owner, &limits)?;
        if !batch.takes(pair.value.version, len, &limits) {
            batch.send(&link, &mut lane)?;
        }
        batch.ops.push(op);
        batch.bytes += len;
        batch.version = pair.value.version;
    }
    batch.send(&link, &mut lane)?;
    finish(&link, &lane)
}

/// Puts that share a transaction.
#[derive(Default)]
struct Batch {
    ops: Vec<RawOp>,
    bytes: usize,
    version: Version,
}

impl Batch {
    fn takes(&self, version: Version, len: usize, limits: &Limits) -> bool {
        self.ops.is_empty()
            || (self.version == version
                && self.ops.len() < limits.ops
                && self.bytes + len <= limits.bytes)
    }

    fn send<S: Server>(&mut self, link: &Link<S>, lane: &mut Lane) -> Result<(), Error> {
        let Self { ops, .. } = std::mem::take(self);
        if ops.is_empty() {
            return Ok(());
        }
        let raw = RawTxn {
            ops,
            ..RawTxn::default()
        };
        match lane.send(link, raw) {
            Ok(Sent::Held(_)) => Ok(()),
            Ok(Sent::NotHeld(_)) | Err(Failure::Ended(_)) => Err(disturbed()),
            Err(failure) => Err(failure.into()),
        }
    }
}

fn disturbed() -> Error {
    Error::Refused("another process has changed the volume during its import".into())
}

fn raw_put(
    pair: &Import,
    space: &KeySpace,
    owner: SlotOwner,
    limits: &Limits,
) -> Result<(RawOp, usize), Error> {
    let (len, limit) = (pair.key.len(), MAX_KEY);
    if len > limit {
        return Err(Error::KeyTooLong { len, limit });
    }
    let (len, limit) = (len + pair.value.value.len(), limits.bytes);
    if len > limit {
        return Err(Error::CommitTooLarge { len, limit });
    }
    let key = space.key(&pair.key);
    let (key, value) = if pair.counter {
        let sum = Counter::decode(&pair.value.value).ok_or_else(|| Error::Corrupt {
            what: format!("the counter {}", pair.key.escape_ascii()),
            detail: "its value is not that of a counter".into(),
        })?;
        (KeySpace::slot(&key, owner), slots::encode(&sum))
    } else {
        (key, work::ordinary(&pair.value.value))
    };
    let lease = 0;
    Ok((RawOp::Put { key, value, lease }, len))
}

/// Marks the volume, and returns the mark as a lane, and the commit that made it.
fn begin<S: Server>(link: &Link<S>, above: Version) -> Result<(Lane, Revision), Error> {
    let answer = match link.look(&RawTxn::default()) {
        Ok(answer) => answer,
        Err(LookError::Failed(error)) => return Err(error),
        Err(LookError::Compacted) => return Err(Error::Conflict),
    };
    if answer.revision < above {
        return Err(Error::Refused(format!(
            "the metadata server is at revision {}, and the index was at version {above} already: \
             restore the server with a higher revision",
            answer.revision
        )));
    }
    // Tells this import from another one that begins at the same time.
    let now = uptime().as_nanos().to_le_bytes();
    let seed = [now.as_slice(), &std::process::id().to_le_bytes()].concat();
    let nonce = twox_hash::XxHash3_64::oneshot(&seed) >> 1;
    let mark = link.space.import();
    let (start, end) = link.space.volume();
    let raw = RawTxn {
        compares: vec![RawCompare {
            key: start,
            end: Some(end),
            test: Test::Absent,
        }],
        ops: vec![RawOp::Put {
            key: mark.clone(),
            value: nonce.to_be_bytes().to_vec(),
            lease: 0,
        }],
        reads: vec![],
        otherwise: vec![look(&mark)],
    };
    let answer = send(link, &raw)?;
    let mine = |value: &[u8]| value == nonce.to_be_bytes();
    let found = answer.pages.first().and_then(|page| page.pairs.first());
    let number = match found {
        _ if answer.held => answer.revision,
        Some(pair) if mine(&pair.value) => pair.created,
        _ => {
            return Err(Error::Refused(
                "the volume to import into holds keys already".into(),
            ));
        }
    };
    let owner = SlotOwner {
        session: number,
        lane: 0,
    };
    Ok((Lane::with_nonce(mark, 0, owner, number, nonce), number))
}

/// Takes the mark away.
fn finish<S: Server>(link: &Link<S>, lane: &Lane) -> Result<(), Error> {
    let mark = link.space.import();
    let raw = RawTxn {
        compares: vec![RawCompare {
            key: mark.clone(),
            end: None,
            test: Test::WrittenBy(lane.written()),
        }],
        ops: vec![RawOp::Delete {
            key: mark.clone(),
            end: None,
        }],
        reads: vec![],
        otherwise: vec![look(&mark)],
    };
    let answer = send(link, &raw)?;
    // If it is gone, a request without an answer has removed it.
    let gone = || answer.pages.iter().all(|page| page.pairs.is_empty());
    if answer.held || gone() {
        Ok(())
    } else {
        Err(disturbed())
    }
}

fn look(key: &[u8]) -> RawRange {
    RawRange {
        key: key.to_vec(),
        end: None,
        limit: 0,
        revision: 0,
    }
}

/// Sends a request whose second execution fails a compare.
fn send<S: Server>(link: &Link<S>, raw: &RawTxn) -> Result<super::server::RawAnswer, Error> {
    let mut retry = link.retry();
    loop {
        match link.server.txn(raw, link.options.patience) {
            Ok(answer) => {
                link.saw(answer.revision);
                return Ok(answer);
            }
            Err(ServerError::Unknown(why) | ServerError::Unavailable(why)) => {
                if retry.again().is_err() {
                    return Err(Error::Unavailable(why));
                }
            }
            Err(ServerError::Full) => return Err(Failure::Full.into()),
            Err(other) => return Err(Error::Refused(other.to_string())),
        }
    }
}
