//! What readers see: the newest changes over the frozen ones over the view.

use std::sync::Arc;

use super::cache::Cache;
use super::memtable::{Memtable, Slot};
use super::resolve::State;
use super::view::block::Entry;
use super::view::{Fault, View};
use crate::kv::Version;

/// The layers, under one lock: who holds it for reading has a consistent snapshot.
#[derive(Debug)]
pub(crate) struct Tables {
    /// Changes since the last freeze.
    pub(crate) active: Memtable,
    /// Changes on their way into the view.
    pub(crate) frozen: Option<Arc<Memtable>>,
    /// What was read of the view lately.
    pub(crate) cache: Cache,
    /// Everything before.
    pub(crate) view: Arc<View>,
    /// Counts the views, to tell who complains about which.
    pub(crate) generation: u64,
    /// The newest commit.
    pub(crate) version: Version,
}

impl Tables {
    /// Puts another view below the tables.
    pub(crate) fn show(&mut self, view: View) {
        self.view = Arc::new(view);
        self.generation += 1;
    }

    /// The state of a key; a removed one is `None`.
    pub(crate) fn get(&self, key: &[u8]) -> Result<Option<Slot>, Fault> {
        let newest = self.active.get(key);
        let newest = newest.or_else(|| self.frozen.as_ref().and_then(|frozen| frozen.get(key)));
        match newest {
            Some(slot) => Ok(slot.value.is_some().then(|| slot.clone())),
            None => {
                if let Some(known) = self.cache.get(key) {
                    return Ok(known);
                }
                let known = self.view.get(key)?;
                self.cache.put(key, known.clone());
                Ok(known)
            }
        }
    }

    /// Visits the live keys of a range in order until `visit` answers false.
    fn walk(&self, start: &[u8], end: &[u8], visit: &mut Visit<'_>) -> Result<(), Fault> {
        if start >= end {
            return Ok(());
        }
        let mut active = self.active.range(start, end).peekable();
        let frozen = self.frozen.as_ref().map(|frozen| frozen.range(start, end));
        let mut frozen = frozen.into_iter().flatten().peekable();
        let mut below = Pages {
            view: &self.view,
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
                (None, Some(entry)) => visit(&key, Found::Entry(&self.view, &entry))?,
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
    ) -> Result<Vec<(Vec<u8>, Slot)>, Fault> {
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
    type Error = Fault;

    fn get(&self, key: &[u8]) -> Result<Option<Slot>, Fault> {
        Self::get(self, key)
    }

    fn keys(&self, start: &[u8], end: &[u8], limit: usize) -> Result<Vec<Vec<u8>>, Fault> {
        let mut found = Vec::new();
        self.walk(start, end, &mut |key, _| {
            found.push(key.to_vec());
            Ok(found.len() < limit)
        })?;
        Ok(found)
    }
}

/// Sees live keys and says whether to go on.
type Visit<'a> = dyn FnMut(&[u8], Found<'_>) -> Result<bool, Fault> + 'a;

/// A live key, its value not yet fetched.
enum Found<'a> {
    Slot(&'a Slot),
    Entry(&'a View, &'a Entry),
}

impl Found<'_> {
    fn slot(&self) -> Result<Slot, Fault> {
        match self {
            Self::Slot(slot) => Ok((*slot).clone()),
            Self::Entry(view, entry) => Ok(entry.slot(view.value(entry)?)),
        }
    }
}

/// Entries of the view, page by page.
struct Pages<'a> {
    view: &'a View,
    end: &'a [u8],
    page: std::vec::IntoIter<Entry>,
    next: Option<Vec<u8>>,
}

impl Pages<'_> {
    fn advance(&mut self) -> Result<Option<Entry>, Fault> {
        loop {
            if let Some(entry) = self.page.next() {
                return Ok(Some(entry));
            }
            let Some(from) = self.next.take() else {
                return Ok(None);
            };
            let (page, next) = self.view.page(&from, self.end)?;
            (self.page, self.next) = (page.into_iter(), next);
        }
    }
}
