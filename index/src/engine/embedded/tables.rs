//! The layers that readers see: the newest changes over the frozen ones over the base.

use std::sync::Arc;

use super::base::block::Entry;
use super::base::{Base, BaseFault};
use super::cache::ValueCache;
use super::memtable::{Memtable, Slot};
use super::resolve::State;
use crate::kv::Version;

/// The layers, under one lock: a holder of the read lock has a consistent snapshot.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Changes since the last freeze.
    pub(crate) active: Memtable,
    /// Changes being merged into the base.
    pub(crate) frozen: Option<Arc<Memtable>>,
    /// Recently read values of the base.
    pub(crate) cache: ValueCache,
    /// Everything before.
    pub(crate) base: Arc<Base>,
    /// Counts the bases, so that a fault is matched with the base that had it.
    pub(crate) generation: u64,
    /// The newest commit.
    pub(crate) version: Version,
}

impl Tables {
    /// Puts another base below the tables.
    pub(crate) fn show(&mut self, base: Base) {
        self.base = Arc::new(base);
        self.generation += 1;
    }

    /// The state of a key; a removed one is `None`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slot>, BaseFault> {
        let newest = self.active.get(key);
        let newest = newest.or_else(|| self.frozen.as_ref().and_then(|frozen| frozen.get(key)));
        match newest {
            Some(slot) => Ok(slot.value.is_some().then(|| slot.clone())),
            None => {
                if let Some(known) = self.cache.get(key) {
                    return Ok(known);
                }
                let known = self.base.get(key)?;
                self.cache.put(key, known.clone());
                Ok(known)
            }
        }
    }

    /// Visits the live keys of a range in order until `visit` returns false.
    fn walk(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<(), BaseFault> {
        if start >= end {
            return Ok(());
        }
        let mut active = self.active.range(start, end).peekable();
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range(start, end));
        let mut frozen = frozen.into_iter().flatten().peekable();
        let mut below = Pages {
            base: &self.base,
            end,
            page: Vec::new().into_iter(),
            next: None,
        };
        below.next = Some(start.to_vec());
        let mut low = below.advance()?;
        loop {
            let first = [
                active.peek().map(|(key, _)| *key),
                frozen.peek().map(|(key, _)| *key),
                low.as_ref().map(|entry| entry.key.as_slice()),
            ];
            let Some(key) = first.into_iter().flatten().min() else {
                return Ok(());
            };
            let key = key.to_vec();
            let a = active.next_if(|(k, _)| *k == key);
            let f = frozen.next_if(|(k, _)| *k == key);
            let entry = if low.as_ref().is_some_and(|entry| entry.key == key) {
                std::mem::replace(&mut low, below.advance()?)
            } else {
                None
            };
            let more = match (a.or(f), entry) {
                (Some((_, slot)), _) if slot.value.is_some() => visit(&key, Found::Slot(slot))?,
                (None, Some(entry)) => visit(&key, Found::Entry(&self.base, &entry))?,
                _ => true,
            };
            if !more {
                return Ok(());
            }
        }
    }

    /// At most `limit` live keys of a range with their states.
    pub(crate) fn range(
        &self,
        start: &[u8],
        end: &[u8],
        limit: usize,
    ) -> Result<Vec<(Vec<u8>, Slot)>, BaseFault> {
        let mut found = Vec::new();
        if limit == 0 {
            return Ok(found);
        }
        self.walk(start, end, &mut |key, state| {
            found.push((key.to_vec(), state.slot()?));
            Ok(found.len() < limit)
        })?;
        Ok(found)
    }
}

impl State for Tables {
    type Error = BaseFault;

    fn get(&self, key: &[u8]) -> Result<Option<Slot>, BaseFault> {
        Self::get(self, key)
    }

    fn keys(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, BaseFault> {
        let mut found = Vec::new();
        self.walk(start, end, &mut |key, _| {
            found.push(key.to_vec());
            Ok(found.len() < limit)
        })?;
        Ok(found)
    }

    fn newest(&self, start: &[u8], end: &[u8]) -> Result<Option<Version>, BaseFault> {
        let mut newest = None;
        self.walk(start, end, &mut |_, state| {
            newest = newest.max(Some(state.version()));
            Ok(true)
        })?;
        Ok(newest)
    }
}

/// Receives live keys and returns whether to continue.
type Visit<'a> = dyn FnMut(&[u8], Found<'_>) -> Result<bool, BaseFault> + 'a;

/// A live key whose value has not been fetched yet.
enum Found<'a> {
    Slot(&'a Slot),
    Entry(&'a Base, &'a Entry),
}

impl Found<'_> {
    fn version(&self) -> Version {
        match self {
            Self::Slot(slot) => slot.version,
            Self::Entry(_, entry) => entry.version,
        }
    }

    fn slot(&self) -> Result<Slot, BaseFault> {
        match self {
            Self::Slot(slot) => Ok((*slot).clone()),
            Self::Entry(base, entry) => Ok(entry.slot(base.value(entry)?)),
        }
    }
}

/// Entries of the base, page by page.
struct Pages<'a> {
    base: &'a Base,
    end: &'a [u8],
    page: std::vec::IntoIter<Entry>,
    next: Option<Vec<u8>>,
}

impl Pages<'_> {
    fn advance(&mut self) -> Result<Option<Entry>, BaseFault> {
        loop {
            if let Some(entry) = self.page.next() {
                return Ok(Some(entry));
            }
            let Some(from) = self.next.take() else {
                return Ok(None);
            };
            let (page, next) = self.base.page(&from, self.end)?;
            (self.page, self.next) = (page.into_iter(), next);
        }
    }
}
