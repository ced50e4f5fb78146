//! What is known of the files that are being written.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use shale_layout::{Budget, Layout, Options, ReadAt};
use shale_store::{Advice, File, Segment};

use crate::settler::Source;
use crate::{Fs, regions};

/// Smaller files are not looked at while they are written.
const SIZE_MIN: u64 = 64 << 10;
/// A part of a chunk that gets a frame of its own has at least so many bytes.
const SEGMENT_MIN: u64 = 64 << 10;
/// How often a file is parsed while it is written, besides once for each doubling of its size.
const PARSES: u32 = 4;
/// What a parser may do while a program waits for its write.
const BUDGET: Budget = Budget {
    read_bytes: 1 << 20,
    time: Duration::from_millis(20),
    structure_bytes: 1 << 20,
};

/// Memory for the layouts of all files together; beyond, files are not understood before they
/// settle.
const MEMORY: usize = 16 << 20;

/// By inode.
#[derive(Debug, Default)]
pub(crate) struct Understanding {
    files: Mutex<HashMap<u64, Known>>,
    /// Memory of all layouts.
    memory: Arc<AtomicUsize>,
}

#[derive(Debug)]
struct Known {
    /// None where there is no memory for it.
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

impl Advice for ByLayout {
    fn segments(&self, start: u64, end: u64) -> Vec<Segment> {
        self.layout
            .segments(start..end, SEGMENT_MIN)
            .into_iter()
            .map(|segment| Segment {
                start: segment.offset,
                end: segment.offset + segment.len,
                element: segment.element.map(regions::element),
            })
            .collect()
    }
}

/// What would be known of a file while it is written.
pub(crate) fn advice(source: &(impl ReadAt + ?Sized)) -> Option<Arc<dyn Advice>> {
    if source.len() < SIZE_MIN {
        return None;
    }
    let options = Options {
        budget: BUDGET,
        growing: true,
    };
    let layout = shale_layout::parse(&source, &options);
    let known = ByLayout::new(layout, &Arc::default())?;
    (!known.layout.extents().is_empty()).then_some(known as Arc<dyn Advice>)
}

impl Fs {
    /// Looks at the first bytes of a file before they are written, so that already the chunk they
    /// are in is understood.
    pub(crate) fn foresee_write(&self, file: &Arc<File>, offset: u64, data: &[u8]) {
        let ino = file.ino();
        if offset == 0
            && data.len() as u64 >= SIZE_MIN
            && !self.understanding.files.lock().contains_key(&ino)
        {
            self.understand(file, data, 0);
        }
    }

    /// Follows a write: parses the file when it has grown large enough to be worth it, and again
    /// when the bytes that a parser read have changed.
    pub(crate) fn follow_write(&self, file: &Arc<File>, offset: u64, len: u64) {
        let size = file.size();
        if size < SIZE_MIN {
            return;
        }
        let parses = match self.understanding.files.lock().get(&file.ino()) {
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
        let source = Source {
            store: &self.store,
            file,
        };
        self.understand(file, &source, parses);
    }

    fn understand(&self, file: &Arc<File>, source: &(impl ReadAt + ?Sized), parses: u32) {
        let options = Options {
            budget: BUDGET,
            growing: true,
        };
        let layout = shale_layout::parse(&source, &options);
        let layout = ByLayout::new(layout, &self.understanding.memory);
        let advice = layout
            .clone()
            .filter(|known| !known.layout.extents().is_empty());
        file.set_advice(advice.map(|known| known as Arc<dyn Advice>));
        let known = Known {
            layout,
            size: source.len(),
            parses: parses + 1,
        };
        self.understanding.files.lock().insert(file.ino(), known);
    }

    /// Forgets what is known of a file that nobody writes any more.
    pub(crate) fn end_following(&self, ino: u64) {
        self.understanding.files.lock().remove(&ino);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An array in NumPy's format.
    fn array() -> Vec<u8> {
        let mut header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (64, 64), }".to_vec();
        header.resize(117, b' ');
        header.push(b'\n');
        let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
        bytes.extend((header.len() as u16).to_le_bytes());
        bytes.extend(header);
        bytes.extend(vec![0; 64 * 64 * 4]);
        bytes
    }

    #[test]
    fn the_layouts_of_any_number_of_open_files_stay_within_their_memory() {
        let bytes = array();
        let options = Options {
            // However busy the machine is.
            budget: Budget {
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
