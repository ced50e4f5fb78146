//! Damaged and hostile frames give errors.
#![allow(missing_docs, clippy::unwrap_used)]

use shale_codec::{
    ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, HEADER_LEN, Hint,
};

const META: FrameMeta = FrameMeta {
    kind: FrameKind::Data,
    inode: 3,
    offset: 0,
    sequence: 9,
};

fn frames() -> Vec<Vec<u8>> {
    let smooth: Vec<u8> = (0..3000)
        .flat_map(|i| ((f64::from(i) / 300.0).sin() as f32 * 100.0).to_le_bytes())
        .collect();
    let decimal: Vec<u8> = (0..3000i32)
        .flat_map(|i| {
            if i % 97 < 9 {
                1e20f32
            } else {
                (i % 400) as f32 / 10.0
            }
            .to_be_bytes()
        })
        .collect();
    let noise: Vec<u8> = (0..3000u32)
        .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
        .collect();
    let element = |order| Hint::Array {
        width: 4,
        kind: ElementKind::Float,
        order,
        shape: &[30, 100],
    };
    let mut frames = Vec::new();
    for (raw, hint) in [
        (&smooth, element(ByteOrder::Little)),
        (&decimal, element(ByteOrder::Big)),
        (&noise, Hint::Unknown),
        (&vec![0; 5000], Hint::Unknown),
        (&Vec::new(), Hint::Unknown),
    ] {
        for effort in [
            Effort::None,
            Effort::Fast,
            Effort::Balanced,
            Effort::Dense,
            Effort::Lz4,
            Effort::Zstd(3),
        ] {
            let mut frame = Vec::new();
            Encoder::new()
                .encode(&META, &hint, effort, raw, &mut frame)
                .unwrap();
            frames.push(frame);
        }
    }
    frames
}

#[test]
fn any_flipped_bit_is_noticed() {
    let mut decoder = Decoder::new();
    let mut out = Vec::new();
    for mut frame in frames() {
        for at in 0..frame.len() {
            let bit = 1 << (at % 8);
            frame[at] ^= bit;
            assert!(
                decoder.decode(&frame, &mut out).is_err(),
                "byte {at} of {}",
                frame.len()
            );
            assert!(out.is_empty());
            frame[at] ^= bit;
        }
        decoder.decode(&frame, &mut out).unwrap();
    }
}

#[test]
fn truncated_and_extended_frames_are_refused() {
    let mut decoder = Decoder::new();
    let mut out = Vec::new();
    for mut frame in frames() {
        for len in (0..frame.len())
            .step_by(7)
            .chain([HEADER_LEN, frame.len() - 1])
        {
            assert!(decoder.decode(&frame[..len], &mut out).is_err());
        }
        frame.push(0);
        assert!(decoder.decode(&frame, &mut out).is_err());
    }
}
