//! Frames written by earlier builds must decode for ever.
//!
//! `SHALE_BLESS=1 cargo test -p shale-codec --test golden` writes the frames
//! again; only a new format version is a reason to do so.
#![allow(missing_docs, clippy::unwrap_used)]

use std::path::PathBuf;

use shale_codec::{
    ByteOrder, Decoder, Effort, ElementKind, Encoder, FrameKind, FrameMeta, Hint, describe,
};

const META: FrameMeta = FrameMeta {
    kind: FrameKind::Data,
    inode: 0x0102_0304_0506_0708,
    offset: 1 << 33,
    sequence: 42,
};

fn noise(n: usize) -> impl Iterator<Item = u32> {
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    (0..n).map(move |_| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as u32
    })
}

/// Smooth without a library's sine, so that the bytes are the same everywhere.
fn wave(i: usize) -> f64 {
    let x = (i % 200) as f64 / 100.0 - 1.0;
    x * (1.0 - x * x) + (i / 50) as f64 / 64.0
}

struct Case {
    name: &'static str,
    raw: Vec<u8>,
    hint: Hint<'static>,
    effort: Effort,
}

fn cases() -> Vec<Case> {
    let array = |width, kind, order| Hint::Array {
        width,
        kind,
        order,
        shape: &[20, 50],
    };
    let float = array(4, ElementKind::Float, ByteOrder::Little);
    let big = array(4, ElementKind::Float, ByteOrder::Big);
    let floats: Vec<u8> = (0..1000)
        .zip(noise(1000))
        .flat_map(|(i, r)| ((wave(i) + f64::from(r % 64) / 1e5) as f32).to_le_bytes())
        .collect();
    let decimals: Vec<u8> = (0..1000)
        .zip(noise(1000))
        .flat_map(|(i, r)| {
            if i % 50 < 9 {
                1e20f32
            } else {
                ((wave(i) * 300.0).floor() / 10.0 + f64::from(r % 30) / 10.0) as f32
            }
            .to_be_bytes()
        })
        .collect();
    let doubles: Vec<u8> = (0..500).flat_map(|i| wave(i).to_le_bytes()).collect();
    let shorts: Vec<u8> = (0..1000)
        .flat_map(|i| ((wave(i) * 900.0) as i16).to_be_bytes())
        .collect();
    // Through zero again and again.
    let winds: Vec<u8> = (0..1000)
        .flat_map(|i| (((wave(i * 7) - wave(i * 3 + 900)) * 1.234_567_891) as f32).to_le_bytes())
        .collect();
    let mut gaps: Vec<u8> = noise(80_000).map(|r| r as u8).collect();
    for page in (0..19).filter(|page| page % 5 != 1) {
        gaps[page * 4096 + 1..(page + 1) * 4096].fill(0);
    }
    let text = b"mud settles into shale; ".repeat(60);
    vec![
        Case {
            name: "empty",
            raw: vec![],
            hint: Hint::Unknown,
            effort: Effort::Fast,
        },
        Case {
            name: "constant",
            raw: [7, 0].repeat(400),
            hint: Hint::Unknown,
            effort: Effort::Fast,
        },
        Case {
            name: "verbatim",
            raw: noise(300).map(|r| r as u8).collect(),
            hint: Hint::Unknown,
            effort: Effort::None,
        },
        Case {
            name: "columns-float",
            raw: floats.clone(),
            hint: float,
            effort: Effort::Fast,
        },
        Case {
            name: "residuals-float",
            raw: floats,
            hint: float,
            effort: Effort::Dense,
        },
        Case {
            name: "columns-decimal",
            raw: decimals.clone(),
            hint: big,
            effort: Effort::Fast,
        },
        Case {
            name: "residuals-decimal",
            raw: decimals,
            hint: big,
            effort: Effort::Balanced,
        },
        Case {
            name: "residuals-double",
            raw: doubles,
            hint: array(8, ElementKind::Float, ByteOrder::Little),
            effort: Effort::Dense,
        },
        Case {
            name: "residuals-real",
            raw: winds,
            hint: array(4, ElementKind::Float, ByteOrder::Little),
            effort: Effort::Dense,
        },
        Case {
            name: "columns-gaps",
            raw: gaps,
            hint: Hint::Unknown,
            effort: Effort::Fast,
        },
        Case {
            name: "columns-short",
            raw: shorts.clone(),
            hint: array(2, ElementKind::Int, ByteOrder::Big),
            effort: Effort::Fast,
        },
        Case {
            name: "residuals-short",
            raw: shorts,
            hint: array(2, ElementKind::Int, ByteOrder::Big),
            effort: Effort::Dense,
        },
        Case {
            name: "lz4",
            raw: text.clone(),
            hint: Hint::Unknown,
            effort: Effort::Lz4,
        },
        Case {
            name: "zstd",
            raw: text,
            hint: Hint::Unknown,
            effort: Effort::Zstd(5),
        },
    ]
}

fn path(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/golden")
        .join(name)
        .with_extension("frame")
}

#[test]
fn frames_of_earlier_builds_still_decode() {
    let bless = std::env::var_os("SHALE_BLESS").is_some();
    let mut decoder = Decoder::new();
    let mut out = Vec::new();
    for case in cases() {
        if bless {
            let mut frame = Vec::new();
            Encoder::new()
                .encode(&META, &case.hint, case.effort, &case.raw, &mut frame)
                .unwrap();
            std::fs::create_dir_all(path(case.name).parent().unwrap()).unwrap();
            std::fs::write(path(case.name), &frame).unwrap();
        }
        let frame = std::fs::read(path(case.name)).unwrap();
        let header = decoder.decode(&frame, &mut out).unwrap();
        assert!(out == case.raw, "{}", case.name);
        assert_eq!(header.meta, META);
        let summary = describe(&frame).unwrap();
        let scheme = case.name.split('-').next().unwrap();
        let expected = if matches!(scheme, "lz4" | "zstd") {
            "columns"
        } else if scheme == "empty" {
            "verbatim"
        } else {
            scheme
        };
        for map in ["decimal", "real"] {
            if case.name.ends_with(map) {
                assert_eq!(summary.map(), map, "{}: {summary}", case.name);
            }
        }
        if case.name.ends_with("gaps") {
            assert!(summary.to_string().ends_with("gaps"), "{summary}");
        }
        assert_eq!(summary.scheme(), expected, "{}: {summary}", case.name);
    }
}
