//! Any chunk comes back, under any hint and effort.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shale_codec::{ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint};

fuzz_target!(|bytes: &[u8]| {
    let Some((control, seed)) = bytes.split_first_chunk::<4>() else { return };
    // Long enough for the sample and several blocks now and then.
    let raw: Vec<u8> = seed.iter().copied().cycle().take(seed.len() * (1 + control[0] as usize / 16)).collect();
    let width = [1, 2, 4, 8, 3, 12, 24, 64][control[1] as usize % 8];
    let kind = [ElementKind::Float, ElementKind::Int, ElementKind::Uint, ElementKind::Opaque][control[2] as usize % 4];
    let order = if control[2] & 64 == 0 { ByteOrder::Little } else { ByteOrder::Big };
    let shape = [1 + control[3] as usize % 7, 1 + control[3] as usize, 17];
    let effort = [Effort::Fast, Effort::Balanced, Effort::Dense, Effort::Lz4][control[0] as usize % 4];
    let hint = match control[2] >> 4 & 3 {
        0 => Hint::Unknown,
        1 => Hint::Elements { width, kind, order },
        _ => Hint::Array { width, kind, order, shape: &shape },
    };
    let meta = FrameMeta { kind: FrameKind::Data, inode: 1, offset: 0, sequence: 1 };
    let (mut frame, mut back) = (Vec::new(), Vec::new());
    Encoder::new().encode(&meta, &hint, effort, &raw, &mut frame).expect("encodes");
    assert!(frame.len() <= raw.len() + raw.len() / 1000 + 256);
    Decoder::new().decode(&frame, &mut back).expect("decodes");
    assert!(back == raw);
});
