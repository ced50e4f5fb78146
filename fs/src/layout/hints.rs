//! Layout hints for files that are being written.
//!
//! A parser examines a file while it grows. Its results tell the encoder where arrays begin and how
//! wide their elements are, before the file settles.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shale_index::Ino;
use shale_layout::{Layout, ParseBudget, ParseOptions, ReadAt};
use shale_store::{File, HintSpan, LayoutHints, Store};

use super::regions;
use super::source::Source;

/// Smaller files are not parsed while they are written.
const SIZE_MIN: u64 = 64 << 10;
/// Smallest part of a chunk that gets a separate frame.
const SPAN_MIN: u64 = 64 << 10;
/// Parses of a file while it is written, besides one for each doubling of its size.
const PARSES: u32 = 4;
/// Budget of a parser while a program waits for its write.
const BUDGET: ParseBudget = ParseBudget {
    read_bytes: 1 << 20,
    time: Duration::from_millis(20),
    structure_bytes: 1 << 20,
};

/// Memory for the layouts of all files together. A file that finds none left gets no hints
/// before it settles.
const MEMORY: usize = 16 << 20;

/// Layouts of the files that are being written.
#[derive(Debug, Default)]
pub(crate) struct KnownLayouts {
    /// By inode.
    files: Mutex<HashMap<Ino, Known>>,
    /// Memory of all layouts.
    memory: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Known {
    /// `None` where there is no memory for it.
    layout: Option<Arc<ByLayout>>,
    /// Size when it was parsed last.
    size: u64,
    parses: u32,
}

/// A layout and the memory that it is charged with.
#[derive(Debug)]
struct ByLayout {
    layout: Layout,
    memory: Arc<AtomicUsize>,
}

impl ByLayout {
    fn new(layout: Layout, memory: &Arc<AtomicUsize>) -> Option<Arc<Self>> {
        let charge = layout.memory();
        let charged = Self {
            layout,
            memory: Arc::clone(memory),
        };
        let before = memory.fetch_add(charge, Ordering::Relaxed);
        (before + charge <= MEMORY).then(|| Arc::new(charged))
    }
}

impl Drop for ByLayout {
    fn drop(&mut self) {
        self.memory
            .fetch_sub(self.layout.memory(), Ordering::Relaxed);
    }
}

impl LayoutHints for ByLayout {
    fn spans(&self, range: Range<u64>) -> Vec<HintSpan> {
        self.layout
            .spans(range, SPAN_MIN)
            .into_iter()
            .map(|span| HintSpan {
                range: span.offset..span.offset + span.len,
                element: span.element.map(regions::element),
            })
            .collect()
    }
}

/// The hints that a file would get while it is written.
pub(crate) fn hints(source: &(impl ReadAt + ?Sized)) -> Option<Arc<dyn LayoutHints>> {
    if source.len() < SIZE_MIN {
        return None;
    }
    let options = ParseOptions {
        budget: BUDGET,
        growing: true,
    };
    let layout = shale_layout::parse(&source, &options);
    let known = ByLayout::new(layout, &Arc::default())?;
    (!known.layout.extents().is_empty()).then_some(known as Arc<dyn LayoutHints>)
}

impl KnownLayouts {
    /// Parses the first bytes of a file before they are written, so that even their chunk gets
    /// hints.
    pub(crate) fn before_write(&self, file: &Arc<File>, offset: u64, data: &[u8]) {
        let ino = file.ino();
        if offset == 0 && data.len() as u64 >= SIZE_MIN && !self.files.lock().contains_key(&ino) {
            self.parse(file, data, 0);
        }
    }

    // single-node: every write to the file comes by here, so a stale layout is noticed.
    /// Parses a file after a write when it has grown large enough to be worth it, and again when
    /// the bytes that a parser read have changed.
    pub(crate) fn after_write(&self, store: &Store, file: &Arc<File>, offset: u64, len: u64) {
        let size = file.size();
        if size < SIZE_MIN {
            return;
        }
        let parses = match self.files.lock().get(&file.ino()) {
            None => 0,
            Some(known) => {
                let stale = known.layout.as_ref().is_some_and(|known| {
                    let range = offset..offset + len;
                    known.layout.is_stale_after(&range, size)
                });
                if !stale || (known.parses >= PARSES && size < 2 * known.size) {
                    return;
                }
                known.parses
            }
        };
        self.parse(file, &Source::new(store, file), parses);
    }

    fn parse(&self, file: &Arc<File>, source: &(impl ReadAt + ?Sized), parses: u32) {
        let options = ParseOptions {
            budget: BUDGET,
            growing: true,
        };
        let layout = shale_layout::parse(&source, &options);
        let layout = ByLayout::new(layout, &self.memory);
        let hints = layout
            .clone()
            .filter(|known| !known.layout.extents().is_empty());
        file.set_hints(hints.map(|known| known as Arc<dyn LayoutHints>));
        let known = Known {
            layout,
            size: source.len(),
            parses: parses + 1,
        };
        self.files.lock().insert(file.ino(), known);
    }

    /// Forgets a file that no handle writes any more.
    pub(crate) fn forget(&self, ino: Ino) {
        self.files.lock().remove(&ino);
    }

    #[cfg(test)]
    pub(crate) fn knows(&self, ino: Ino) -> bool {
        let files = self.files.lock();
        let layout = files.get(&ino).and_then(|known| known.layout.as_ref());
        layout.is_some_and(|known| !known.layout.extents().is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::array;

    #[test]
    fn the_layouts_of_any_number_of_open_files_stay_within_their_memory() {
        let bytes = array(64);
        let options = ParseOptions {
            // The result must not depend on the load of the machine.
            budget: ParseBudget {
                time: Duration::from_secs(60),
                ..BUDGET
            },
            growing: true,
        };
        let memory = Arc::new(AtomicUsize::new(0));
        let mut known = Vec::new();
        loop {
            let layout = shale_layout::parse(&&bytes[..], &options);
            assert!(!layout.extents().is_empty(), "not understood");
            match ByLayout::new(layout, &memory) {
                Some(layout) => known.push(layout),
                None => break,
            }
            assert!(memory.load(Ordering::Relaxed) <= MEMORY);
        }
        assert!(known.len() > 10, "{}", known.len());
        let charged = memory.load(Ordering::Relaxed);
        assert!(charged <= MEMORY, "the one that was refused is charged");
        known.pop();
        assert!(memory.load(Ordering::Relaxed) < charged);
        known.clear();
        assert_eq!(memory.load(Ordering::Relaxed), 0);
    }
}
