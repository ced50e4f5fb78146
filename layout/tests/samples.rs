//! Files made by NetCDF-C, PnetCDF, h5py, xarray, scipy and NumPy: the elements that a layout
//! points at are the ones that were written. `make_samples.py` writes the files.
#![allow(missing_docs, clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::Value;
use shale_layout::{
    ByteOrder, Coding, Content, ElementKind, Layout, Meaning, ParseOptions, Variable, describe,
    parse,
};

/// The samples of this directory, or of another one.
fn directory() -> PathBuf {
    if let Some(other) = std::env::var_os("SHALE_LAYOUT_SAMPLES") {
        return other.into();
    }
    [env!("CARGO_MANIFEST_DIR"), "tests", "samples"]
        .iter()
        .collect()
}

fn expected() -> BTreeMap<String, Value> {
    let text = std::fs::read_to_string(directory().join("expected.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

fn sample(name: &str) -> Vec<u8> {
    std::fs::read(directory().join(name)).unwrap()
}

fn bytes(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap().as_bytes();
    hex.chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn numbers(list: &Value) -> Vec<u64> {
    list.as_array()
        .unwrap()
        .iter()
        .map(|number| number.as_u64().unwrap())
        .collect()
}

/// All elements of a variable in row-major and little-endian order, read where the layout says
/// they are; elements that are nowhere are the fill value.
fn elements(file: &[u8], layout: &Layout, number: u32, variable: &Variable) -> Vec<u8> {
    let width = variable.element.width as usize;
    let count: u64 = variable.shape.iter().product();
    let nothing = variable.fill.clone().unwrap_or(vec![0; width]);
    let mut all = nothing.repeat(count as usize);
    for block in layout.blocks(number) {
        let per_slab = block.len / width as u64;
        for element in 0..per_slab * block.slabs {
            let (slab, within) = (element / per_slab, element % per_slab);
            let from = (block.offset + slab * block.stride) as usize + within as usize * width;
            let Some(at) = place(element, &block.origin, &block.shape, &variable.shape) else {
                continue;
            };
            let to = at as usize * width;
            all[to..to + width].copy_from_slice(&file[from..from + width]);
        }
    }
    let number = !matches!(
        variable.element.kind,
        ElementKind::Opaque | ElementKind::Char
    );
    if number && variable.element.order == ByteOrder::Big {
        all.chunks_mut(width).for_each(<[u8]>::reverse);
    }
    all
}

/// Where an element of a box is in the whole array, unless the box sticks out of it there.
fn place(element: u64, origin: &[u64], shape: &[u64], whole: &[u64]) -> Option<u64> {
    let mut left = element;
    let mut at = 0;
    let mut scale = 1;
    for axis in (0..shape.len()).rev() {
        let index = origin[axis] + left % shape[axis];
        left /= shape[axis];
        if index >= whole[axis] {
            return None;
        }
        at += index * scale;
        scale *= whole[axis];
    }
    Some(at)
}

fn check(name: &str, file: &[u8], layout: &Layout, wanted: &Value) {
    assert_eq!(layout.problem(), None, "{name}");
    assert_eq!(
        serde_json::to_value(layout.format()).unwrap(),
        wanted["format"],
        "{name}"
    );
    let wanted = wanted["variables"].as_object().unwrap();
    for (path, wanted) in wanted {
        let number = layout
            .variables()
            .iter()
            .position(|variable| variable.path == *path)
            .unwrap_or_else(|| panic!("{name}: no variable {path}")) as u32;
        let variable = layout.variable(number).unwrap();
        let what = format!("{name}: {path}: {variable:?}");
        assert_eq!(variable.shape, numbers(&wanted["shape"]), "{what}");
        assert_eq!(variable.element.width, wanted["width"], "{what}");
        let Some(data) = wanted.get("data") else {
            continue;
        };
        let kind = serde_json::to_value(variable.element.kind).unwrap();
        assert_eq!(kind, wanted["kind"], "{what}");
        if variable.element.width > 1 && kind != "opaque" && kind != "char" {
            let order = serde_json::to_value(variable.element.order).unwrap();
            assert_eq!(order, wanted["order"], "{what}");
        }
        if let Some(fill) = wanted.get("fill") {
            assert_eq!(variable.fill, Some(bytes(fill)), "{what}");
        }
        let record = wanted.get("record").is_some_and(|record| record == true);
        assert!(variable.record || !record, "{what}");
        if let Some(offset) = wanted.get("offset") {
            let piece = layout.at(offset.as_u64().unwrap());
            assert_eq!(piece.offset, *offset, "{what}");
        }
        check_chunks(layout, number, wanted, &what);
        let plain = variable.filters.iter().all(|filter| filter == "fletcher32");
        if wanted.get("nowhere").is_some() {
            assert_eq!(layout.blocks(number).count(), 0, "{what}");
        } else if plain {
            assert!(
                elements(file, layout, number, variable) == bytes(data),
                "{what}"
            );
        }
    }
}

/// Every chunk that the library knows is where the layout has one.
fn check_chunks(layout: &Layout, number: u32, wanted: &Value, what: &str) {
    let filtered = wanted.get("filtered").is_some();
    let chunks = wanted.get("chunks").and_then(Value::as_array);
    for chunk in chunks.into_iter().flatten() {
        let (offset, len) = (chunk[0].as_u64().unwrap(), chunk[1].as_u64().unwrap());
        let piece = layout.at(offset);
        assert_eq!(
            layout.variable_of(&piece.meaning),
            layout.variable(number),
            "{what}"
        );
        match piece.meaning {
            Meaning::Elements { .. } => assert_eq!(piece.offset, offset, "{what}"),
            Meaning::Filtered { .. } => {
                assert!(filtered && piece.end() >= offset + len, "{what}");
            }
            Meaning::Opaque => panic!("{what}"),
        }
    }
}

#[test]
fn elements_are_where_the_layout_says() {
    for (name, wanted) in expected() {
        let file = sample(&name);
        let layout = parse(&file, &ParseOptions::default());
        println!("{name}: {}", describe(&layout));
        check(&name, &file, &layout, &wanted);
        // A writer that continues must not change the meaning of existing bytes.
        if !wanted["format"].as_str().unwrap().starts_with("cdf") {
            let growing = ParseOptions {
                growing: true,
                ..ParseOptions::default()
            };
            check(&name, &file, &parse(&file, &growing), &wanted);
        }
    }
}

#[test]
fn every_sample_is_described() {
    for name in std::fs::read_dir(directory()).unwrap() {
        let name = name.unwrap().file_name().into_string().unwrap();
        assert!(
            name == "expected.json" || expected().contains_key(&name),
            "{name}"
        );
    }
}

#[test]
fn deflated_chunks_are_marked_compressed() {
    let layout = parse(&sample("nc4_deflated.nc"), &ParseOptions::default());
    let packed = layout
        .variables()
        .iter()
        .position(|one| one.path == "packed");
    let codings: Vec<_> = layout
        .extents()
        .iter()
        .filter_map(|extent| match extent.content {
            Content::Filtered { variable, coding } => Some((variable as usize, coding)),
            _ => None,
        })
        .collect();
    assert!(!codings.is_empty());
    for (variable, coding) in codings {
        assert_eq!((Some(variable), coding), (packed, Coding::Compressed));
    }
    let variable = &layout.variables()[packed.unwrap()];
    assert_eq!(variable.filters, ["shuffle", "deflate"]);
    assert_eq!(variable.chunk, Some(vec![10, 20]));
}

#[test]
fn filters_that_do_not_compress_are_told_apart() {
    let layout = parse(&sample("filters.h5"), &ParseOptions::default());
    let number = |path: &str| {
        let found = layout.variables().iter().position(|one| one.path == path);
        found.unwrap() as u32
    };
    // A checksum behind the chunk leaves it plain; so does a mask that skips all filters.
    assert_eq!(layout.blocks(number("checked")).count(), 2);
    assert_eq!(layout.blocks(number("masked")).count(), 2);
    assert_eq!(layout.blocks(number("shuffled")).count(), 0);
    let coding = |path: &str| {
        layout
            .extents()
            .iter()
            .find_map(|extent| match extent.content {
                Content::Filtered { variable, coding } if variable == number(path) => Some(coding),
                _ => None,
            })
    };
    assert_eq!(coding("shuffled"), Some(Coding::Rearranged));
    assert_eq!(coding("lzf"), Some(Coding::Compressed));
}

#[test]
fn a_million_records_are_one_extent() {
    let mut file = sample("classic.nc");
    let before = parse(&file, &ParseOptions::default());
    let Content::Records { stride, .. } = before.extents().last().unwrap().content else {
        panic!("no records");
    };
    let first = before.extents().last().unwrap().offset;
    file[4..8].copy_from_slice(&[0, 0, 0, 0]);
    struct Long(Vec<u8>, u64);
    impl shale_layout::ReadAt for Long {
        fn read_at(&self, offset: u64, buf: &mut [u8]) -> std::io::Result<usize> {
            self.0.read_at(offset, buf)
        }
        fn len(&self) -> u64 {
            self.1
        }
    }
    let len = first + stride * 1_000_000;
    let layout = parse(&Long(file, len), &ParseOptions::default());
    assert_eq!(layout.extents().len(), before.extents().len());
    let time = layout.variables().iter().position(|one| one.path == "time");
    let block = layout.blocks(time.unwrap() as u32).next().unwrap();
    assert_eq!(
        (block.slabs, block.stride, block.len),
        (1_000_000, stride, 8)
    );
    let last = layout.at(len - stride);
    assert!(matches!(
        last.meaning,
        Meaning::Elements { slab: 999_999, .. }
    ));
}

#[test]
fn a_growing_file_has_records_without_end() {
    let file = sample("classic.nc");
    let growing = ParseOptions {
        growing: true,
        ..ParseOptions::default()
    };
    let layout = parse(&file, &growing);
    let far = layout.at(1 << 40);
    assert!(far.len < 100);
    // Only the header, before any data: the layout of the data to come is known.
    let fixed = layout.extents()[0].offset;
    let header = parse(&file[..fixed as usize].to_vec(), &growing);
    assert_eq!(header.problem(), None);
    assert_eq!(header.extents(), layout.extents());
    let cut = parse(&file[..fixed as usize].to_vec(), &ParseOptions::default());
    assert_eq!(cut.extents(), []);
}

#[test]
fn only_writes_to_bytes_that_were_parsed_make_a_layout_stale() {
    for name in [
        "contiguous_latest.h5",
        "nc4_contiguous.nc",
        "v18.h5",
        "array.npy",
    ] {
        let file = sample(name);
        let layout = parse(&file, &ParseOptions::default());
        let len = file.len() as u64;
        assert!(layout.is_stale_after(&(0..1), len), "{name}");
        for extent in layout.extents() {
            assert!(
                !layout.is_stale_after(&(extent.offset..extent.end()), len),
                "{name}: {extent:?}"
            );
        }
    }
    let file = sample("classic.nc");
    let len = file.len() as u64;
    let layout = parse(&file, &ParseOptions::default());
    let data = layout.extents()[0].offset;
    assert!(layout.is_stale_after(&(4..8), len));
    assert!(!layout.is_stale_after(&(data..len), len));
    // Another record changes the shape, except that of a file which is known to grow.
    assert!(layout.is_stale_after(&(len..len + 100), len + 100));
    let growing = ParseOptions {
        growing: true,
        ..ParseOptions::default()
    };
    let layout = parse(&file, &growing);
    assert!(!layout.is_stale_after(&(len..len + 100), len + 100));
    // Text that gets longer stays text, a file of a few bytes may become anything.
    let long = parse(&vec![b'a'; 70_000], &growing);
    assert!(!long.is_stale_after(&(70_000..70_001), 70_001));
    let short = parse(&vec![b'a'; 7], &growing);
    assert!(short.is_stale_after(&(7..8), 8));
}

#[test]
fn a_layout_is_the_same_each_time() {
    for (name, _) in expected() {
        let file = sample(&name);
        let first = parse(&file, &ParseOptions::default());
        assert_eq!(first, parse(&file, &ParseOptions::default()), "{name}");
        assert!(serde_json::to_string(&first).unwrap().len() > 50);
        assert!((200..200_000).contains(&first.memory()), "{name}");
    }
}

#[test]
fn grib_and_text_and_nothing_are_opaque() {
    for file in [
        &b"GRIB\0\0\0\x02 and so on"[..],
        b"a,b,c\n1,2,3\n",
        b"",
        b"CDF",
    ] {
        let layout = parse(&file, &ParseOptions::default());
        assert_eq!(layout.format(), None);
        assert!(layout.problem().is_some());
        assert_eq!(layout.extents(), []);
        assert_eq!(layout.pieces(0..10).count(), 1);
    }
}

#[test]
fn the_mark_of_a_writer_is_seen() {
    let mut file = sample("latest.h5");
    assert!(!parse(&file, &ParseOptions::default()).is_marked_open());
    file[11] |= 1;
    let layout = parse(&file, &ParseOptions::default());
    assert!(layout.is_marked_open());
    assert!(!layout.extents().is_empty());
}
