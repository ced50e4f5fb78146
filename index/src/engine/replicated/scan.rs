//! Visits of long ranges, page by page, as one commit left them.

use super::link::{Link, LookError};
use super::read::PAGE;
use super::server::{RawRange, RawTxn, Revision, Server};
use super::slots::Gather;
use crate::Error;
use crate::kv::{KeyRange, Version, Versioned, Visitor};

/// Why a visit did not reach the end.
enum Interrupted {
    Compacted,
    Failed(Error),
}

impl From<LookError> for Interrupted {
    fn from(error: LookError) -> Self {
        match error {
            LookError::Compacted => Self::Compacted,
            LookError::Failed(error) => Self::Failed(error),
        }
    }
}

impl From<Error> for Interrupted {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// A range of logical keys, and the raw keys in which it is.
struct Range<'a> {
    start: &'a [u8],
    end: Option<&'a [u8]>,
    raw: Option<KeyRange>,
}

impl<S: Server> Link<S> {
    /// Visits a range as one commit left it; when the server has forgotten that commit, calls
    /// `restart` and begins again.
    pub(super) fn scan(
        &self,
        (start, end): &KeyRange,
        visit: &mut Visitor<'_>,
        restart: &mut dyn FnMut(),
    ) -> Result<Version, Error> {
        loop {
            let range = Range {
                start,
                end: Some(end),
                raw: self.space.reading(start, end),
            };
            match self.visit(range, &mut |key, value| visit(key, value)) {
                Ok(version) => return Ok(version),
                Err(Interrupted::Failed(error)) => return Err(error),
                Err(Interrupted::Compacted) => restart(),
            }
        }
    }

    /// Visits every key; when the server has forgotten the commit, goes on with a newer one.
    pub(super) fn dump(&self, visit: &mut Visitor<'_>) -> Result<(), Error> {
        let (_, end) = self.space.everything();
        let mut from = Vec::new();
        loop {
            let mut next = None;
            let range = Range {
                start: &from,
                end: None,
                raw: Some((self.space.key(&from), end.clone())),
            };
            let visited = self.visit(range, &mut |key, value| {
                visit(key, value)?;
                next = Some([key, &[0]].concat());
                Ok(())
            });
            match visited {
                Ok(_) => return Ok(()),
                Err(Interrupted::Failed(error)) => return Err(error),
                Err(Interrupted::Compacted) => from = next.unwrap_or(from),
            }
        }
    }

    fn visit(&self, range: Range<'_>, visit: &mut Visitor<'_>) -> Result<Version, Interrupted> {
        let mut gather = Gather::new(&self.space, range.start, range.end);
        let mut emit = |key: Vec<u8>, value: Versioned| visit(&key, &value);
        let mut next = range.raw;
        let mut revision: Option<Revision> = None;
        loop {
            let reads = next.iter().map(|(key, end)| RawRange {
                key: key.clone(),
                end: Some(end.clone()),
                limit: PAGE,
                revision: revision.unwrap_or(0),
            });
            let raw = RawTxn {
                reads: reads.collect(),
                ..RawTxn::default()
            };
            let answer = self.look(&raw)?;
            let revision = *revision.get_or_insert(answer.revision);
            let page = answer.pages.first();
            for pair in page.iter().flat_map(|page| &page.pairs) {
                gather.push(pair, &mut emit)?;
            }
            let last = page
                .filter(|page| page.more)
                .and_then(|page| page.pairs.last());
            match (last, &mut next) {
                (Some(last), Some((from, _))) => {
                    from.clone_from(&last.key);
                    from.push(0);
                }
                _ => {
                    gather.finish(&mut emit)?;
                    return Ok(revision);
                }
            }
        }
    }
}
