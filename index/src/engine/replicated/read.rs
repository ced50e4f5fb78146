//! Snapshots: any number of wants, answered from the state after one commit.
//!
//! The first request looks at the newest state. What does not fit into it, and further pages of
//! long ranges, are looked at as they were after the commit that its answer names. When the server
//! has forgotten that commit meanwhile, the snapshot begins again.

use super::keys::KeySpace;
use super::link::{Link, LookError};
use super::server::{RawPage, RawRange, RawTxn, Revision, Server};
use super::slots::Gather;
use crate::Error;
use crate::kv::{Found, Snapshot, Versioned, Want};

/// Keys that one look returns at most.
pub(super) const PAGE: usize = 1000;
/// Keys that a range gets of the first request, however many ranges share it.
const SHARE: usize = 16;

/// How one want is answered.
struct Plan<'a> {
    /// What is looked at next; `None` when nothing is left.
    next: Option<RawRange>,
    /// Logical keys that are wanted.
    limit: usize,
    gather: Gather<'a>,
    found: Found,
}

impl<'a> Plan<'a> {
    fn new(want: &'a Want, space: &'a KeySpace, page: usize) -> Self {
        let (bounds, next, limit) = match want {
            Want::Key(key) => {
                let look = look(space.key(key), None, 0);
                ((&key[..], None), Some(look), 1)
            }
            Want::Counter(key) => {
                let (start, end) = KeySpace::slots(&space.key(key));
                ((&key[..], None), Some(look(start, Some(end), 0)), 1)
            }
            Want::Range { start, end, limit } => {
                let range = space.reading(start, end).filter(|_| *limit > 0);
                let first = page.min(*limit);
                let look = range.map(|(start, end)| look(start, Some(end), first));
                ((&start[..], Some(&end[..])), look, *limit)
            }
        };
        let (start, end) = bounds;
        Self {
            next,
            limit,
            gather: Gather::new(space, start, end),
            found: Found::new(),
        }
    }

    /// Takes the answer to `next`, and decides what is next.
    fn take(&mut self, page: &RawPage) -> Result<(), Error> {
        let Some(mut asked) = self.next.take() else {
            return Ok(());
        };
        let found = &mut self.found;
        let mut emit = |key: Vec<u8>, value: Versioned| {
            found.push((key, value));
            Ok(())
        };
        for pair in &page.pairs {
            self.gather.push(pair, &mut emit)?;
        }
        // A counter whose slots go on after the page is not complete.
        let complete = self.found.len() >= self.limit;
        if let Some(last) = page.pairs.last().filter(|_| page.more && !complete) {
            asked.key.clone_from(&last.key);
            asked.key.push(0);
            asked.limit = PAGE;
            self.next = Some(asked);
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Found, Error> {
        let found = &mut self.found;
        self.gather.finish(&mut |key, value| {
            found.push((key, value));
            Ok(())
        })?;
        self.found.truncate(self.limit);
        Ok(self.found)
    }
}

fn look(key: Vec<u8>, end: Option<Vec<u8>>, limit: usize) -> RawRange {
    RawRange {
        key,
        end,
        limit,
        revision: 0,
    }
}

impl<S: Server> Link<S> {
    /// Answers every want from one state. `most` is how many looks fit into a request.
    pub(super) fn get_many(&self, wants: &[Want], most: usize) -> Result<Snapshot, Error> {
        loop {
            match self.try_get_many(wants, most.max(1)) {
                Ok(snapshot) => return Ok(snapshot),
                Err(LookError::Failed(error)) => return Err(error),
                Err(LookError::Compacted) => {}
            }
        }
    }

    fn try_get_many(&self, wants: &[Want], most: usize) -> Result<Snapshot, LookError> {
        let ranges = wants
            .iter()
            .filter(|want| matches!(want, Want::Range { .. }));
        let page = (PAGE / ranges.count().max(1)).max(SHARE);
        let plan = |want| Plan::new(want, &self.space, page);
        let mut plans: Vec<_> = wants.iter().map(plan).collect();
        let mut revision = None;
        loop {
            let mut open: Vec<_> = plans
                .iter_mut()
                .filter(|plan| plan.next.is_some())
                .collect();
            // The first request says which state it is, even if there is nothing to look at.
            if open.is_empty() && revision.is_some() {
                break;
            }
            // A page that is full is long enough for an answer.
            let long = revision.is_some() && open.iter().any(|plan| plan.is_long());
            open.truncate(if long { 1 } else { most });
            let answer = self.look_at(&open, revision)?;
            revision.get_or_insert(answer.0);
            for (plan, page) in open.into_iter().zip(&answer.1) {
                plan.take(page)?;
            }
        }
        let finished: Result<Vec<_>, _> = plans.into_iter().map(Plan::finish).collect();
        Ok(Snapshot {
            version: revision.unwrap_or_default(),
            found: finished?,
        })
    }

    fn look_at(
        &self,
        plans: &[&mut Plan<'_>],
        revision: Option<Revision>,
    ) -> Result<(Revision, Vec<RawPage>), LookError> {
        let mut reads: Vec<_> = plans.iter().filter_map(|plan| plan.next.clone()).collect();
        for read in &mut reads {
            read.revision = revision.unwrap_or(0);
        }
        let raw = RawTxn {
            reads,
            ..RawTxn::default()
        };
        let answer = self.look(&raw)?;
        Ok((answer.revision, answer.pages))
    }
}

impl Plan<'_> {
    fn is_long(&self) -> bool {
        self.next.as_ref().is_some_and(|next| next.limit == PAGE)
    }
}
