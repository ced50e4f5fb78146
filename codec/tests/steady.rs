//! After a few chunks, an encoder and a decoder allocate no more memory.
//!
//! In a separate binary, because it counts the allocations of every thread.
#![allow(missing_docs, unsafe_code, clippy::unwrap_used)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use shale_codec::{ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint};

struct Counting;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

// SAFETY: everything is left to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is passed on.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        TAKEN.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is passed on.
        unsafe { System.realloc(pointer, layout, len) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const META: FrameMeta = FrameMeta {
    kind: FrameKind::Data,
    inode: 1,
    offset: 0,
    sequence: 1,
};

/// Chunks of every kind the encoder treats differently.
fn chunks() -> Vec<(Vec<u8>, Hint<'static>)> {
    let n = 100_000u32;
    let noise = |i: u32| {
        i.wrapping_mul(2_654_435_769)
            .rotate_left(13)
            .wrapping_mul(0x85EB_CA6B)
    };
    let wave = |i: u32| (f64::from(i) / 300.0).sin() * 40.0 + f64::from(noise(i) >> 16) / 1e5;
    let array = |width, kind, order| Hint::Array {
        width,
        kind,
        order,
        shape: &[10, 50, 200],
    };
    let float = ElementKind::Float;
    vec![
        (
            (0..n)
                .flat_map(|i| (wave(i) as f32).to_le_bytes())
                .collect(),
            Hint::Unknown,
        ),
        (
            (0..n)
                .flat_map(|i| (wave(i) as f32).to_be_bytes())
                .collect(),
            array(4, float, ByteOrder::Big),
        ),
        (
            (0..n).flat_map(|i| wave(i).to_le_bytes()).collect(),
            array(8, float, ByteOrder::Little),
        ),
        (
            (0..n)
                .flat_map(|i| {
                    if i % 500 < 90 {
                        1e20f32
                    } else {
                        (wave(i) * 10.0).round() as f32 / 10.0
                    }
                    .to_be_bytes()
                })
                .collect(),
            array(4, float, ByteOrder::Big),
        ),
        (
            (0..n)
                .flat_map(|i| (wave(i) * 300.0).round().to_le_bytes()[..2].to_vec())
                .collect(),
            array(2, ElementKind::Int, ByteOrder::Little),
        ),
        (
            (0..n)
                .flat_map(|i| ((wave(i) * 300.0) as i16).to_be_bytes())
                .collect(),
            array(2, ElementKind::Int, ByteOrder::Big),
        ),
        ((0..n).map(|i| noise(i) as u8).collect(), Hint::Unknown),
        (
            (0..n)
                .map(|i| if i / 4096 % 2 == 0 { 0 } else { noise(i) as u8 })
                .collect(),
            Hint::Unknown,
        ),
        (b"mud settles into shale; ".repeat(4000), Hint::Unknown),
        (vec![7; 50_000], Hint::Unknown),
    ]
}

#[test]
fn steady_state_takes_no_memory() {
    let chunks = chunks();
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    let mut frame = Vec::new();
    let mut back = Vec::new();
    let mut part = Vec::new();
    let mut taken = 0;
    for pass in 0..4 {
        if pass == 3 {
            taken = TAKEN.load(Ordering::SeqCst);
        }
        for effort in [
            Effort::None,
            Effort::Fast,
            Effort::Balanced,
            Effort::Dense,
            Effort::Lz4,
            Effort::Zstd(3),
        ] {
            for (raw, hint) in &chunks {
                frame.clear();
                encoder
                    .encode(&META, hint, effort, raw, &mut frame)
                    .unwrap();
                decoder.decode(&frame, &mut back).unwrap();
                assert!(back == *raw);
                decoder.decode_range(&frame, 777, 4096, &mut part).unwrap();
                assert!(part == raw[777..777 + 4096]);
            }
        }
    }
    assert_eq!(TAKEN.load(Ordering::SeqCst) - taken, 0);
}
