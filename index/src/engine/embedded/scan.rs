//! Visiting a range as one commit left it.

use super::base::BaseFault;
use super::commit::Shared;
use super::memtable::Slot;
use super::tables::Tables;
use crate::Error;
use crate::kv::{KeyRange, Version, Visitor};

/// Keys that are read at a time.
const PAGE: usize = 1000;

/// Keys and what the engine has of them.
type Page = Vec<(Vec<u8>, Slot)>;

/// Why a page could not be read.
enum Interrupted {
    Base(u64, BaseFault),
    Other(Error),
    /// A commit came in between.
    Changed,
}

impl Shared {
    /// Page by page first, in the hope that nothing is committed meanwhile; if something is, once
    /// more while commits wait.
    pub(crate) fn scan(
        &self,
        range: &KeyRange,
        visit: &mut Visitor<'_>,
        restart: &mut dyn FnMut(),
    ) -> Result<Version, Error> {
        let mut exclusive = false;
        loop {
            let committer = exclusive.then(|| self.committer.lock());
            let scanned = self.scan_pages(range, visit);
            drop(committer);
            match scanned {
                Ok(version) => return Ok(version),
                Err(Interrupted::Other(error)) => return Err(error),
                Err(Interrupted::Changed) => exclusive = true,
                Err(Interrupted::Base(generation, fault)) => self.heal(generation, &fault)?,
            }
            restart();
        }
    }

    fn scan_pages(
        &self,
        (start, end): &KeyRange,
        visit: &mut Visitor<'_>,
    ) -> Result<Version, Interrupted> {
        let mut from = start.clone();
        let mut first = None;
        loop {
            let (version, page) = self.page(&from, end)?;
            if *first.get_or_insert(version) != version {
                return Err(Interrupted::Changed);
            }
            for (key, slot) in &page {
                if let Some(value) = slot.live() {
                    visit(key, &value).map_err(Interrupted::Other)?;
                }
            }
            match page.into_iter().nth(PAGE - 1) {
                Some((key, _)) => {
                    from = key;
                    from.push(0);
                }
                None => return Ok(version),
            }
        }
    }

    fn page(&self, from: &[u8], end: &[u8]) -> Result<(Version, Page), Interrupted> {
        let tables = self.tables.read();
        self.check().map_err(Interrupted::Other)?;
        let Tables {
            version,
            generation,
            ..
        } = *tables;
        match tables.range(from, end, PAGE) {
            Ok(page) => Ok((version, page)),
            Err(fault) => Err(Interrupted::Base(generation, fault)),
        }
    }
}
