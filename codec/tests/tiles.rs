//! Tiles of arrays of known shape, as settling encodes them: every rank, width,
//! kind and byte order comes back, whole and in parts, and the shape gains.
#![allow(missing_docs, clippy::unwrap_used)]

use shale_codec::{ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint};

const META: FrameMeta = FrameMeta {
    kind: FrameKind::Data,
    inode: 1,
    offset: 0,
    sequence: 1,
};

/// A smooth field with a little noise, extents fastest last.
fn field(shape: &[usize]) -> Vec<f64> {
    let mut seed = 1u64;
    (0..shape.iter().product::<usize>())
        .map(|i| {
            let mut rest = i;
            let mut value = 280.0;
            for (axis, &extent) in shape.iter().enumerate().rev() {
                let x = (rest % extent) as f64;
                rest /= extent;
                value += (x / (9.0 + axis as f64 * 4.0) + axis as f64).sin() * 30.0;
            }
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            value + (seed >> 40) as f64 / (1u64 << 24) as f64 * 0.2
        })
        .collect()
}

fn bytes(field: &[f64], width: usize, kind: ElementKind, order: ByteOrder) -> Vec<u8> {
    field
        .iter()
        .flat_map(|&x| {
            let mut element = match (kind, width) {
                (ElementKind::Float, 4) => (x as f32).to_le_bytes().to_vec(),
                (ElementKind::Float, _) => x.to_le_bytes().to_vec(),
                (_, 2) => ((x * 60.0) as i16).to_le_bytes().to_vec(),
                _ => ((x * 1000.0) as i32).to_le_bytes().to_vec(),
            };
            if order == ByteOrder::Big {
                element.reverse();
            }
            element
        })
        .collect()
}

#[test]
fn tiles_of_every_rank_and_type_come_back_and_gain() {
    let shapes: [&[usize]; 4] = [&[131_072], &[256, 512], &[32, 64, 64], &[8, 16, 32, 32]];
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    let (mut frame, mut back) = (Vec::new(), Vec::new());
    for shape in shapes {
        let field = field(shape);
        for (width, kind) in [
            (4, ElementKind::Float),
            (8, ElementKind::Float),
            (2, ElementKind::Int),
            (4, ElementKind::Int),
        ] {
            for order in [ByteOrder::Little, ByteOrder::Big] {
                let raw = bytes(&field, width, kind, order);
                let hint = Hint::Array {
                    width,
                    kind,
                    order,
                    shape,
                };
                frame.clear();
                let summary = encoder
                    .encode(&META, &hint, Effort::Dense, &raw, &mut frame)
                    .unwrap();
                decoder.decode(&frame, &mut back).unwrap();
                assert!(back == raw, "{shape:?} {width} {kind:?} {order:?}");
                for (start, len) in [(0, 1), (raw.len() / 3 + 1, 5000), (raw.len() - 9, 9)] {
                    decoder.decode_range(&frame, start, len, &mut back).unwrap();
                    assert!(back == raw[start..start + len]);
                }
                let general = zstd::bulk::compress(&raw, 3).unwrap().len();
                assert!(
                    frame.len() * 5 < general * 4,
                    "{shape:?} {width} {kind:?} {order:?}: {} by {summary}, zstd {general}",
                    frame.len()
                );
            }
        }
    }
}

/// Values that must not be predicted in floating point.
#[test]
fn wild_floats_in_smooth_winds_come_back() {
    let wild = [
        f32::NAN,
        -f32::NAN,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN,
        3e37,
    ];
    let mut encoder = Encoder::new();
    let mut decoder = Decoder::new();
    let (mut frame, mut back) = (Vec::new(), Vec::new());
    for wild in wild.iter().map(|x| Some(*x)).chain([None]) {
        let winds: Vec<u8> = (0..65_536)
            .flat_map(|i| {
                let t = f64::from(i);
                match wild {
                    Some(wild) if i % 9001 == 5000 => wild,
                    _ => ((t / 31.7).sin() * 4.0 + (t / 7.3).sin()) as f32,
                }
                .to_le_bytes()
            })
            .collect();
        for shape in [&[65_536][..], &[256, 256], &[16, 64, 64]] {
            let hint = Hint::Array {
                width: 4,
                kind: ElementKind::Float,
                order: ByteOrder::Little,
                shape,
            };
            for effort in [Effort::Balanced, Effort::Dense] {
                frame.clear();
                let summary = encoder
                    .encode(&META, &hint, effort, &winds, &mut frame)
                    .unwrap();
                if wild.is_none() && effort == Effort::Dense {
                    assert_eq!(summary.map(), "real", "{summary}");
                }
                decoder.decode(&frame, &mut back).unwrap();
                assert!(back == winds, "{wild:?} {shape:?} {summary}");
            }
        }
    }
}
