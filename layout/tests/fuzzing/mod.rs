//! Properties that every layout has, whatever the file.
#![allow(dead_code)]

use std::time::{Duration, Instant};

use shale_layout::{Content, Error, Layout, ParseOptions, describe, parse};

/// All sample files, with their names.
pub(crate) fn samples() -> Vec<(String, Vec<u8>)> {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/samples");
    let mut samples: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_none_or(|ending| ending != "json"))
        .map(|path| {
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect();
    samples.sort();
    samples
}

/// Parses a file as finished and as growing, and checks the result.
pub(crate) fn check(name: &str, file: &[u8]) {
    for growing in [false, true] {
        let options = ParseOptions {
            growing,
            ..ParseOptions::default()
        };
        let started = Instant::now();
        let layout = parse(&file, &options);
        let limit = options.budget.time + Duration::from_secs(2);
        assert!(started.elapsed() < limit, "{name}: {:?}", layout.problem());
        keeps(name, file, &layout, growing);
    }
}

/// Extents are sorted, disjoint and in the file; look-ups cover every byte; nothing panicked.
pub(crate) fn keeps(name: &str, file: &[u8], layout: &Layout, growing: bool) {
    assert_ne!(layout.problem(), Some(&Error::Panicked), "{name}");
    let len = file.len() as u64;
    assert_eq!(layout.file_len(), len);
    let limit = if growing { i64::MAX as u64 } else { len };
    let mut end = 0;
    for extent in layout.extents() {
        assert!(extent.offset >= end && extent.len > 0, "{name}: {extent:?}");
        end = extent.offset.checked_add(extent.len).unwrap();
        assert!(end <= limit, "{name}: {extent:?}");
        match &extent.content {
            Content::Records { stride, fields } => {
                let mut used = 0;
                for field in fields.iter() {
                    assert!(field.offset >= used && field.len > 0, "{name}: {extent:?}");
                    used = field.offset + field.len;
                    assert!(layout.variable(field.variable).is_some());
                }
                assert!(used <= *stride && *stride > 0, "{name}: {extent:?}");
            }
            Content::Array { variable }
            | Content::Filtered { variable, .. }
            | Content::Chunks { variable, .. } => {
                assert!(layout.variable(*variable).is_some());
            }
        }
    }
    for start in [0, len / 3, len.saturating_sub(50), limit - limit.min(1000)] {
        let range = start..start.saturating_add(1000);
        let mut at = start;
        for piece in layout.pieces(range.clone()) {
            assert!(piece.offset == at && piece.len > 0, "{name}: {piece:?}");
            at = piece.end();
        }
        assert_eq!(at, range.end, "{name}");
        let spans = layout.spans(range.clone(), 64);
        let sum: u64 = spans.iter().map(|span| span.len).sum();
        assert_eq!(sum, 1000, "{name}");
    }
    for number in 0..layout.variables().len().min(20) as u32 {
        for block in layout.blocks(number).take(20) {
            assert!(block.offset < limit && block.slabs > 0);
            assert_eq!(block.origin.len(), block.shape.len());
        }
    }
    for range in layout.parsed().iter() {
        assert!(range.start < range.end && range.end <= len, "{name}");
    }
    assert!(!describe(layout).is_empty());
}
