//! Damaged and hostile frames give errors.
#![allow(missing_docs, clippy::unwrap_used)]

mod repair;

use repair::repair;
use shale_codec::{
    ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, HEADER_LEN, Hint,
    describe,
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

#[test]
fn hostile_frames_with_right_checksums_do_no_harm() {
    let mut decoder = Decoder::new();
    let mut out = Vec::new();
    let mut seed = 1u64;
    for frame in frames() {
        let directory = u32::from_le_bytes(frame[20..24].try_into().unwrap()) as usize;
        for _ in 0..1500 {
            let mut bad = frame.clone();
            for _ in 0..=(seed >> 61) {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                // Half of the damage in the directory, where the lengths are.
                let end = if seed & 1 == 0 {
                    HEADER_LEN + directory
                } else {
                    bad.len()
                };
                let at = HEADER_LEN + (seed >> 33) as usize % (end - HEADER_LEN);
                bad[at] = match (seed >> 8) & 3 {
                    0 => 0,
                    1 => 0xFF,
                    _ => (seed >> 16) as u8,
                };
            }
            repair(&mut bad);
            if decoder.decode(&bad, &mut out).is_ok() {
                let raw_len = u32::from_le_bytes(bad[12..16].try_into().unwrap()) as usize;
                assert_eq!(out.len(), raw_len);
            }
            let _ = describe(&bad);
        }
    }
}
