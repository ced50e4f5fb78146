//! Fencing and exactly-once in one mechanism.
//!
//! A session has some *lanes*: keys under its lease, which nothing but the session writes. Every
//! transaction takes a free lane, compares the commit that wrote it last, and puts a new nonce.
//!
//! Invariants:
//! 1. At most one transaction is under way in a lane, and the lane knows the commit that wrote it
//!    last. Whatever the session has sent through it compares that commit or an older one.
//! 2. So each request takes effect once at most, however often it is sent or delivered: the first
//!    time rewrites the lane, and the compare of every other fails.
//! 3. When the lease has ended the lane is gone, and nothing that was sent through it takes effect
//!    any more, however late it arrives.
//! 4. A transaction is answered only when nothing of it is still under way that could take effect.
//!    A request without an answer is *in doubt*. It is sent again as it is; if that does not hold,
//!    the lane, which is looked at in the same request, tells why:
//!
//! ```text
//! holds the nonce of the transaction    it happened, as the commit that wrote the lane
//! as it was before                      a compare of the caller failed; but the lost request may
//!                                       still arrive when it holds, so put another nonce first
//! gone                                  the session has ended; its history tells what happened
//! ```
//! Where something on the way may repeat requests that were answered, each one that did not hold
//! counts as in doubt.
//!
//! 5. A lane that is left in doubt, because a deadline passed, puts another nonce before it is used
//!    again.

use super::keys::SlotOwner;
use super::link::{Failure, GaveUp, Link};
#[cfg(any(test, feature = "testing"))]
use super::options::Sabotage;
use super::server::{
    LeaseId, RawAnswer, RawCompare, RawOp, RawPage, RawPair, RawRange, RawTxn, Revision, Server,
    ServerError, Test,
};
use super::slots::Slots;
use super::work::Work;
use crate::kv::{Outcome, Version};

/// Attempts to find out what became of a transaction after the end of the session.
const LAST_LOOKS: u32 = 8;

/// A lane. Its owner alone sends through it.
#[derive(Debug)]
pub(super) struct Lane {
    key: Vec<u8>,
    lease: LeaseId,
    slots: Slots,
    /// The commit that wrote it last.
    written: Revision,
    /// The nonce that was sent last.
    nonce: u64,
    /// Whether a request with that nonce may still take effect.
    doubt: bool,
}

/// What became of a request.
#[derive(Debug)]
pub(super) enum Sent {
    /// It happened, as this commit.
    Held(Revision),
    /// A compare failed, and it will never happen. What it looked at in that case.
    NotHeld(Vec<RawPage>),
}

/// How an exchange with the server ended.
enum Exchange {
    Answered(RawAnswer),
    /// The session has ended, for this reason.
    Ended(String),
    Failed(Failure),
}

impl Lane {
    /// A lane that `written` has put with the nonce 0.
    pub(super) fn new(key: Vec<u8>, lease: LeaseId, owner: SlotOwner, written: Revision) -> Self {
        Self::with_nonce(key, lease, owner, written, 0)
    }

    /// A lane that `written` has put with this nonce.
    pub(super) fn with_nonce(
        key: Vec<u8>,
        lease: LeaseId,
        owner: SlotOwner,
        written: Revision,
        nonce: u64,
    ) -> Self {
        Self {
            key,
            lease,
            slots: Slots::new(owner),
            written,
            nonce,
            doubt: false,
        }
    }

    /// The commit that wrote it last.
    pub(super) fn written(&self) -> Revision {
        self.written
    }

    /// Executes a transaction.
    pub(super) fn execute<S: Server>(
        &mut self,
        link: &Link<S>,
        work: &Work,
    ) -> Result<Outcome, Failure> {
        loop {
            let mut raw = RawTxn {
                compares: work.compares.clone(),
                ops: work.ops.clone(),
                ..RawTxn::default()
            };
            let puts = self.slots.add_to(&mut raw, work.adds.iter());
            #[cfg(any(test, feature = "testing"))]
            if link.options.sabotage == Sabotage::BlindCounters {
                super::sabotage::blind_counters(&mut raw, &work.adds, link);
            }
            match self.send(link, raw)? {
                Sent::Held(revision) => {
                    self.slots.committed(puts, revision);
                    return Ok(Outcome::Committed(revision));
                }
                Sent::NotHeld(pages) => {
                    let refused = |error: crate::Error| Failure::Refused(error.to_string());
                    let looks = pages.get(1..).unwrap_or_default();
                    if !self.slots.correct(puts, looks).map_err(refused)? {
                        return Ok(Outcome::Conflict);
                    }
                }
            }
        }
    }

    /// Sends a transaction, which becomes fenced, until it is known what became of it.
    pub(super) fn send<S: Server>(
        &mut self,
        link: &Link<S>,
        mut raw: RawTxn,
    ) -> Result<Sent, Failure> {
        if self.doubt {
            self.rule_out(link)?;
        }
        self.nonce += 1;
        self.fence(&mut raw, self.nonce);
        #[cfg(any(test, feature = "testing"))]
        if link.options.sabotage == Sabotage::NoFencing {
            super::sabotage::no_fencing(&mut raw, &self.key);
        }
        let answer = match self.exchange(link, &raw) {
            Exchange::Answered(answer) => answer,
            Exchange::Ended(reason) => return self.after_the_end(link, reason),
            Exchange::Failed(failure) if self.doubt => {
                return match failure {
                    // An earlier attempt may still take effect, unless that can be ruled out.
                    Failure::Refused(_) | Failure::Full => match self.rule_out(link) {
                        Ok(Some(revision)) => Ok(Sent::Held(revision)),
                        Ok(None) => Err(failure),
                        Err(_) => Err(Failure::Unknown("the metadata server refuses it".into())),
                    },
                    other => Err(other),
                };
            }
            Exchange::Failed(failure) => return Err(failure),
        };
        if answer.held {
            return Ok(Sent::Held(self.moved(answer.revision)));
        }
        match lane_in(&answer.pages) {
            None => self.after_the_end(link, "its lane is gone: its lease has ended".into()),
            Some(pair) if self.has_nonce(pair) => Ok(Sent::Held(self.moved(pair.written))),
            Some(pair) if pair.written == self.written => {
                if (self.doubt || link.server.may_repeat())
                    && let Some(revision) = self.rule_out(link)?
                {
                    return Ok(Sent::Held(revision));
                }
                Ok(Sent::NotHeld(answer.pages))
            }
            Some(_) => {
                let reason = "its lane was written by another process";
                self.after_the_end(link, reason.into())
            }
        }
    }

    /// Puts another nonce, so that a request in doubt can take effect no more. Says whether it
    /// did before that, and as which commit.
    fn rule_out<S: Server>(&mut self, link: &Link<S>) -> Result<Option<Revision>, Failure> {
        let mut raw = RawTxn::default();
        let next = self.nonce + 1;
        self.fence(&mut raw, next);
        let answer = match self.exchange(link, &raw) {
            Exchange::Answered(answer) => answer,
            Exchange::Ended(reason) => return self.after_the_end(link, reason).map(held),
            Exchange::Failed(failure) => return Err(failure),
        };
        if answer.held {
            self.nonce = next;
            self.moved(answer.revision);
            return Ok(None);
        }
        match lane_in(&answer.pages) {
            Some(pair) if self.has_nonce(pair) => Ok(Some(self.moved(pair.written))),
            // An attempt to put the new nonce, whose answer was lost.
            Some(pair) if nonce_of(pair) == Some(next) => {
                self.nonce = next;
                self.moved(pair.written);
                Ok(None)
            }
            _ => {
                let reason = "its lane is gone: its lease has ended";
                self.after_the_end(link, reason.into()).map(held)
            }
        }
    }

    /// Sends a request until there is an answer, or no reason to wait for one.
    fn exchange<S: Server>(&mut self, link: &Link<S>, raw: &RawTxn) -> Exchange {
        let mut retry = link.retry();
        loop {
            let why = match link.server.txn(raw, link.options.patience) {
                Ok(answer) => {
                    link.saw(answer.revision);
                    return Exchange::Answered(answer);
                }
                Err(ServerError::Unknown(why)) => {
                    self.doubt = true;
                    why
                }
                Err(ServerError::Unavailable(why)) => why,
                Err(ServerError::LeaseGone) => {
                    return Exchange::Ended("its lease has ended".into());
                }
                Err(ServerError::Full) => return Exchange::Failed(Failure::Full),
                Err(error @ (ServerError::Refused(_) | ServerError::Compacted)) => {
                    return Exchange::Failed(Failure::Refused(error.to_string()));
                }
            };
            match retry.again() {
                Ok(()) => {}
                Err(GaveUp::Ended(reason)) => return Exchange::Ended(reason),
                Err(GaveUp::Late) if self.doubt => return Exchange::Failed(Failure::Unknown(why)),
                Err(GaveUp::Late) => return Exchange::Failed(Failure::Unavailable(why)),
            }
        }
    }

    /// Ends the session, and finds out what became of a transaction in doubt.
    fn after_the_end<S: Server>(
        &mut self,
        link: &Link<S>,
        reason: String,
    ) -> Result<Sent, Failure> {
        if let Some(session) = &link.session {
            session.end(&reason);
        }
        if !self.doubt {
            return Err(Failure::Ended(reason));
        }
        for attempt in 0..LAST_LOOKS {
            match self.last_look(link) {
                Ok(Some(revision)) => return Ok(Sent::Held(self.moved(revision))),
                Ok(None) => {
                    self.doubt = false;
                    return Err(Failure::Ended(reason));
                }
                Err(ServerError::Unknown(_) | ServerError::Unavailable(_)) => {
                    crate::primitives::thread::sleep(link.options.pause * attempt);
                }
                Err(_) => break,
            }
        }
        Err(Failure::Unknown(reason))
    }

    /// Whether the transaction in doubt happened, and as which commit, when it can happen no more.
    fn last_look<S: Server>(&self, link: &Link<S>) -> Result<Option<Revision>, ServerError> {
        let now = self.at(link, 0)?;
        if let Some(pair) = lane_in(&now.pages) {
            if self.has_nonce(pair) {
                return Ok(Some(pair.written));
            }
            if nonce_of(pair) == Some(self.nonce + 1) {
                return Ok(None);
            }
            // The lease has not ended for the server: the lost request must be ruled out.
            let mut raw = RawTxn::default();
            self.fence(&mut raw, self.nonce + 1);
            match link.server.txn(&raw, link.options.patience) {
                Ok(answer) if answer.held => return Ok(None),
                Err(error) if error != ServerError::LeaseGone => return Err(error),
                _ => return Err(ServerError::Unavailable("the lane has changed".into())),
            }
        }
        // It was there after `alive` and not after `gone`, and was written once at most between
        // the two: by the request in doubt, or to rule that out.
        let (mut alive, mut gone) = (self.written, now.revision);
        while gone.saturating_sub(alive) > 1 {
            let middle = alive + (gone - alive) / 2;
            match lane_in(&self.at(link, middle)?.pages) {
                Some(pair) if self.has_nonce(pair) => return Ok(Some(pair.written)),
                Some(_) => alive = middle,
                None => gone = middle,
            }
        }
        Ok(None)
    }

    /// Looks at the lane as it was after a commit.
    fn at<S: Server>(&self, link: &Link<S>, revision: Version) -> Result<RawAnswer, ServerError> {
        let look = RawRange {
            revision,
            ..self.look()
        };
        let raw = RawTxn {
            reads: vec![look],
            ..RawTxn::default()
        };
        link.server.txn(&raw, link.options.patience)
    }

    fn look(&self) -> RawRange {
        RawRange {
            key: self.key.clone(),
            end: None,
            limit: 0,
            revision: 0,
        }
    }

    /// Makes a transaction take effect at most once, and only while the lane is as it is known.
    fn fence(&self, raw: &mut RawTxn, nonce: u64) {
        raw.compares.push(RawCompare {
            key: self.key.clone(),
            end: None,
            test: Test::WrittenBy(self.written),
        });
        raw.ops.push(RawOp::Put {
            key: self.key.clone(),
            value: nonce.to_be_bytes().to_vec(),
            lease: self.lease,
        });
        raw.otherwise.insert(0, self.look());
    }

    /// Notes that `revision` has written the lane, after which nothing is in doubt.
    fn moved(&mut self, revision: Revision) -> Revision {
        self.written = revision;
        self.doubt = false;
        revision
    }

    fn has_nonce(&self, pair: &RawPair) -> bool {
        pair.written > self.written && nonce_of(pair) == Some(self.nonce)
    }
}

fn lane_in(pages: &[RawPage]) -> Option<&RawPair> {
    pages.first()?.pairs.first()
}

fn nonce_of(pair: &RawPair) -> Option<u64> {
    pair.value
        .as_slice()
        .try_into()
        .ok()
        .map(u64::from_be_bytes)
}

fn held(sent: Sent) -> Option<Revision> {
    match sent {
        Sent::Held(revision) => Some(revision),
        Sent::NotHeld(_) => None,
    }
}
