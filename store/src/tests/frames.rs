//! How contents become frames, and the cost of a damaged one.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use shale_backing::Device;
use shale_codec::Effort;
use shale_index::extent::PackBytes;

use super::{Fixture, LIMIT, SIZES, bytes};
use crate::{ByteOrder, ElementKind, Error, SettleOptions};

fn a_damaged_frame_is_an_error_and_never_wrong_bytes(device: Device) {
    let mut fixture = Fixture::new(device);
    let data = bytes(LIMIT, 3, true);
    let file = fixture.file();
    fixture.store().write(&file, 0, &data).unwrap();
    drop(file);
    fixture.reopen();
    let PackBytes { pack, bytes: len } =
        crate::pack::list(&*fixture.store().volume.backing).unwrap()[0];
    let path = fixture.dir.path().join(pack.path());
    let pack_file = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path)
        .unwrap();
    let mut byte = [0];
    let at = len / 2;
    pack_file.read_exact_at(&mut byte, at).unwrap();
    pack_file.write_all_at(&[byte[0] ^ 0x10], at).unwrap();
    let file = fixture.file();
    let mut failures = 0;
    for chunk in 0..LIMIT / 4096 {
        let mut out = Vec::new();
        match fixture
            .store()
            .read(&file, chunk as u64 * 4096, 4096, &mut out)
        {
            Ok(()) => assert_eq!(out, &data[chunk * 4096..][..4096]),
            Err(e) => {
                assert!(matches!(e, Error::Damaged { .. }), "{e}");
                failures += 1;
            }
        }
    }
    assert_eq!(failures, 1, "exactly the damaged chunk fails");
}

#[derive(Debug)]
struct CutAt(u64);

impl crate::LayoutHints for CutAt {
    fn spans(&self, range: std::ops::Range<u64>) -> Vec<crate::HintSpan> {
        let cut = self.0.clamp(range.start, range.end);
        let part = |start, end, width| crate::HintSpan {
            range: start..end,
            element: Some(crate::Element {
                width,
                kind: ElementKind::Float,
                order: ByteOrder::Big,
            }),
        };
        [part(range.start, cut, 4), part(cut, range.end, 8)]
            .into_iter()
            .filter(|span| !span.range.is_empty())
            .collect()
    }
}

fn a_chunk_that_crosses_a_variable_becomes_a_frame_for_each(device: Device) {
    let fixture = Fixture::new(device);
    let file = fixture.file();
    file.set_hints(Some(Arc::new(CutAt(6000))));
    let data = bytes(12_000, 1, false);
    fixture.store().write(&file, 0, &data).unwrap();
    fixture.store().sync(&file).unwrap();
    let volume = &*fixture.store().volume;
    let extents = file.lock(volume).extents(0..12_000).unwrap();
    let starts: Vec<u64> = extents.iter().map(|extent| extent.offset).collect();
    assert_eq!(starts, [0, 4096, 6000, 8192]);
    assert_eq!(fixture.contents(), data);
}

fn packs_of_settle_workers_are_balanced_by_bytes(device: Device) {
    const UNITS: usize = 800;
    let fixture = Fixture::new(device);
    let file = fixture.file();
    // Noise fades out along the file.
    let mut data = Vec::new();
    for unit in 0..UNITS {
        let noise = 4096 * (UNITS - unit) * (UNITS - unit) / (UNITS * UNITS);
        let mut part = bytes(4096, (unit % 251) as u8, true);
        part[noise..].fill(unit as u8);
        data.extend(part);
    }
    fixture.store().write(&file, 0, &data).unwrap();
    fixture.store().sync(&file).unwrap();
    let (volume, settler) = (&*fixture.store().volume, &fixture.store().settler);
    let older = volume.frames.packs.live();
    let options = SettleOptions {
        workers: 4,
        effort: Effort::Dense,
        force: true,
        rewrite: false,
        pace: &|_| true,
    };
    settler.settle(&file, &[], &options, &SIZES).unwrap();
    let sizes: Vec<u64> = volume
        .frames
        .packs
        .live()
        .into_iter()
        .filter(|(pack, live)| !older.contains_key(pack) && *live > 0)
        .map(|(_, live)| live)
        .collect();
    assert_eq!(sizes.len(), 4, "a pack for each worker");
    let (least, most) = (sizes.iter().min().unwrap(), sizes.iter().max().unwrap());
    assert!(*most as f64 <= *least as f64 * 1.05, "{sizes:?}");
    // The same by count.
    let stored = |units: std::ops::Range<usize>| -> u64 {
        let (start, end) = (units.start as u64 * 4096, units.end as u64 * 4096);
        let extents = file.lock(volume).extents(start..end);
        extents
            .unwrap()
            .iter()
            .map(shale_index::extent::Extent::stored)
            .sum()
    };
    let by_count: Vec<u64> = (0..4)
        .map(|quarter| stored(quarter * UNITS / 4..(quarter + 1) * UNITS / 4))
        .collect();
    let (least, most) = (
        by_count.iter().min().unwrap(),
        by_count.iter().max().unwrap(),
    );
    assert!(*most as f64 > *least as f64 * 1.5, "{by_count:?}");
    let mut out = Vec::new();
    fixture
        .store()
        .read(&file, 0, data.len(), &mut out)
        .unwrap();
    assert!(out == data, "contents differ");
}

on_every_device! {
    a_damaged_frame_is_an_error_and_never_wrong_bytes,
    a_chunk_that_crosses_a_variable_becomes_a_frame_for_each,
    packs_of_settle_workers_are_balanced_by_bytes,
}
