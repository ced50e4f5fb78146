//! Every chunk decodes to its own bytes, for every hint and effort.
#![allow(missing_docs, clippy::unwrap_used)]

use proptest::prelude::*;
use shale_codec::{
    ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint, describe,
    parse_header,
};

const META: FrameMeta = FrameMeta {
    kind: FrameKind::Data,
    inode: 3,
    offset: 1 << 40,
    sequence: 9,
};

const EFFORTS: [Effort; 7] = [
    Effort::None,
    Effort::Fast,
    Effort::Balanced,
    Effort::Dense,
    Effort::Lz4,
    Effort::Zstd(1),
    Effort::Zstd(12),
];

fn check(hint: &Hint<'_>, effort: Effort, raw: &[u8]) -> usize {
    let mut frame = vec![0xAA; 5];
    let summary = Encoder::new()
        .encode(&META, hint, effort, raw, &mut frame)
        .unwrap();
    assert_eq!(&frame[..5], [0xAA; 5]);
    let frame = &frame[5..];
    assert_eq!(summary.frame_len as usize, frame.len());
    assert!(
        frame.len() <= raw.len() + raw.len() / 1000 + 256,
        "{} -> {}",
        raw.len(),
        frame.len()
    );
    assert_eq!(describe(frame).unwrap(), summary);
    let header = parse_header(&frame[..shale_codec::HEADER_LEN]).unwrap();
    assert_eq!(header.meta, META);
    assert_eq!(header.frame_len as usize, frame.len());

    let mut decoder = Decoder::new();
    let mut back = vec![1, 2, 3];
    decoder.decode(frame, &mut back).unwrap();
    assert!(back == raw, "{hint:?} {effort} {summary}");

    let len = raw.len();
    for (start, take) in [
        (0, 0),
        (0, len),
        (len / 2, len / 3),
        (len / 3, 1.min(len)),
        (len, 0),
        (len - len.min(5), len.min(5)),
    ] {
        decoder.decode_range(frame, start, take, &mut back).unwrap();
        assert!(
            back == raw[start..start + take],
            "{hint:?} {effort} {start}+{take}"
        );
    }
    assert!(decoder.decode_range(frame, 1, len, &mut back).is_err());
    assert!(
        decoder
            .decode_range(frame, usize::MAX, 2, &mut back)
            .is_err()
    );
    frame.len()
}

fn kind() -> impl Strategy<Value = ElementKind> {
    prop_oneof![
        Just(ElementKind::Float),
        Just(ElementKind::Int),
        Just(ElementKind::Uint),
        Just(ElementKind::Opaque)
    ]
}

fn order() -> impl Strategy<Value = ByteOrder> {
    prop_oneof![Just(ByteOrder::Little), Just(ByteOrder::Big)]
}

/// Bytes of many characters: noise, smooth series of every type, runs, fill values.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let special = prop_oneof![
        Just(f32::NAN),
        Just(-f32::NAN),
        Just(f32::INFINITY),
        Just(f32::NEG_INFINITY),
        Just(-0.0f32),
        Just(0.0f32),
        Just(f32::MIN_POSITIVE / 3.0),
        Just(9.969_21e36f32),
        Just(1e20f32),
        Just(-1e34f32),
        any::<u32>().prop_map(f32::from_bits),
        (-2000i32..2000).prop_map(|i| i as f32 / 100.0),
    ];
    prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..3000),
        proptest::collection::vec(0u8..4, 0..3000),
        (any::<u8>(), 0usize..5000).prop_map(|(byte, len)| vec![byte; len]),
        (proptest::collection::vec(special, 0..800), any::<bool>()).prop_map(|(v, big)| {
            v.iter()
                .flat_map(|x| {
                    if big {
                        x.to_be_bytes()
                    } else {
                        x.to_le_bytes()
                    }
                })
                .collect()
        }),
        (1usize..40_000, -5.0f64..5.0, any::<u8>(), 0usize..9).prop_map(|(n, step, how, cut)| {
            let mut x = 280.0f64;
            let mut seed = u64::from(how) + 1;
            let mut out = Vec::new();
            for i in 0..n {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                x += step * ((seed >> 40) as f64 / (1u64 << 24) as f64 - 0.5);
                let fill = how & 8 != 0 && (i / 100) % 3 == 0;
                let v = if fill { 1e20 } else { x };
                match how % 7 {
                    0 => out.extend((v as f32).to_le_bytes()),
                    1 => out.extend((v as f32).to_be_bytes()),
                    2 => out.extend(v.to_le_bytes()),
                    3 => out.extend(((v * 10.0).round() / 10.0).to_be_bytes()),
                    4 => out.extend((((v * 100.0).round() / 100.0) as f32).to_be_bytes()),
                    5 => out.extend((v as i16).to_le_bytes()),
                    _ => out.extend((v as i64).to_be_bytes()),
                }
            }
            out.truncate(out.len() - cut.min(out.len()));
            out
        }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn unknown_bytes_survive(raw in bytes()) {
        for effort in EFFORTS {
            check(&Hint::Unknown, effort, &raw);
        }
    }

    #[test]
    fn hinted_bytes_survive(raw in bytes(), width in 0usize..70, kind in kind(), order in order()) {
        for effort in EFFORTS {
            check(&Hint::Elements { width, kind, order }, effort, &raw);
        }
        let width = 1 << (width % 4);
        for effort in EFFORTS {
            check(&Hint::Elements { width, kind, order }, effort, &raw);
        }
    }

    #[test]
    fn shaped_bytes_survive(
        raw in bytes(),
        width in 0u32..4,
        kind in kind(),
        order in order(),
        mut shape in proptest::collection::vec(0usize..70, 0..5),
        fit in any::<bool>(),
    ) {
        let width = 1usize << width;
        if fit {
            let inner: usize = shape.iter().skip(1).product();
            if let Some(outer) = shape.first_mut() {
                *outer = raw.len() / width / inner.max(1);
            }
        }
        for effort in [Effort::Fast, Effort::Balanced, Effort::Dense] {
            check(&Hint::Array { width, kind, order, shape: &shape }, effort, &raw);
        }
    }
}

#[test]
fn constant_chunks_become_tiny() {
    for len in [1, 7, 8, 4096, 1 << 20, 16 << 20] {
        for effort in EFFORTS.into_iter().filter(|&effort| effort != Effort::None) {
            assert!(check(&Hint::Unknown, effort, &vec![0; len]) < 128);
        }
        // Stored uncompressed.
        assert!(check(&Hint::Unknown, Effort::None, &vec![0; len]) >= len);
    }
    let filled: Vec<u8> = std::iter::repeat_n(9.969_21e36f32.to_be_bytes(), 5000)
        .flatten()
        .collect();
    assert!(check(&Hint::Unknown, Effort::Fast, &filled) < 128);
}

#[test]
fn oversized_chunks_are_refused_and_leave_no_trace() {
    let mut out = vec![1];
    let raw = vec![0; (16 << 20) + 1];
    assert!(
        Encoder::new()
            .encode(&META, &Hint::Unknown, Effort::Fast, &raw, &mut out)
            .is_err()
    );
    assert_eq!(out, [1]);
}

#[test]
fn noise_of_full_size_grows_by_no_more_than_a_thousandth() {
    let mut seed = 1u64;
    let raw: Vec<u8> = (0..(16 << 20) / 8)
        .flat_map(|_| {
            seed ^= seed << 13;
            seed ^= seed >> 7;
            seed ^= seed << 17;
            seed.to_le_bytes()
        })
        .collect();
    for effort in EFFORTS {
        check(&Hint::Unknown, effort, &raw);
    }
}

#[test]
fn one_encoder_serves_unlike_chunks() {
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    let mut back = Vec::new();
    let mut pack = Vec::new();
    let mut chunks = Vec::new();
    for (i, effort) in EFFORTS.into_iter().cycle().take(40).enumerate() {
        let raw: Vec<u8> = (0..i * 977).map(|j| ((j * j * i) >> 7) as u8).collect();
        encoder
            .encode(&META, &Hint::Unknown, effort, &raw, &mut pack)
            .unwrap();
        chunks.push(raw);
    }
    let mut at = 0;
    for raw in chunks {
        let header = parse_header(&pack[at..]).unwrap();
        let end = at + header.frame_len as usize;
        decoder.decode(&pack[at..end], &mut back).unwrap();
        assert_eq!(back, raw);
        at = end;
    }
    assert_eq!(at, pack.len());
}
