use super::*;

const SIZES: Sizes = Sizes::USUAL;

fn arrays(regions: &[Region], size: u64, limit: u64, sizes: &Sizes) -> Vec<Unit> {
    Arrays::new(regions, size, limit, sizes).between(0..size)
}

fn block(at: u64, width: u32, dims: &[u64]) -> Block {
    Block {
        at,
        width,
        kind: ElementKind::Float,
        order: ByteOrder::Big,
        dims: dims.to_vec(),
    }
}

#[test]
fn tiles_are_nearly_cubic_and_not_narrower_than_a_page() {
    let (depth, shape) = tile(256, &[256, 2048], 4, &SIZES);
    assert_eq!(shape[1], 1024, "a page of floats");
    let bytes = depth * shape[0] * shape[1] * 4;
    assert!(
        (SIZES.tile / 2..=SIZES.tile * 2).contains(&bytes),
        "{bytes}"
    );
    assert!(depth >= 8 && shape[0] >= 8, "{depth} {shape:?}");
}

#[test]
fn short_dimensions_leave_their_share_to_the_others() {
    for (records, dims) in [
        (1, vec![1, 1000, 1000]),
        (3, vec![73, 144]),
        (100_000, vec![]),
        (2, vec![1_000_000]),
        (12, vec![1, 1, 2_000_000]),
    ] {
        let (depth, shape) = tile(records, &dims, 4, &SIZES);
        let whole: u64 = records * dims.iter().product::<u64>() * 4;
        let bytes = depth * shape.iter().product::<u64>() * 4;
        assert!(
            bytes >= (SIZES.tile / 3).min(whole) && bytes <= 3 * SIZES.tile,
            "{records} {dims:?}: {depth} {shape:?}"
        );
    }
}

#[test]
fn arrays_cover_their_region_once() {
    let region = Region {
        offset: 1000,
        records: 777,
        record: 100_003,
        blocks: vec![block(0, 4, &[100, 100]), block(50_000, 8, &[5000])],
    };
    let units = arrays(std::slice::from_ref(&region), 1 << 40, 8 << 20, &SIZES);
    let mut at = 1000;
    for unit in &units {
        let Unit::Array(Array {
            offset,
            geometry,
            elements,
            ..
        }) = unit
        else {
            panic!("not an array");
        };
        assert_eq!(*offset, at);
        assert!(geometry.len() <= 9 << 20);
        assert_eq!(
            elements.iter().filter(|e| e.is_none()).count(),
            2,
            "two gaps"
        );
        at += geometry.len();
    }
    assert_eq!(at, 1000 + 777 * 100_003);
}

#[test]
fn a_variable_of_four_dimensions_is_cut_in_all_but_the_fastest() {
    let region = Region {
        offset: 132,
        records: 48,
        record: 20 * 181 * 360 * 4,
        blocks: vec![block(0, 4, &[20, 181, 360])],
    };
    let units = arrays(&[region], 250_214_532, 32 << 20, &SIZES);
    assert_eq!(units.len(), 8);
    let Unit::Array(Array { geometry, .. }) = &units[0] else {
        panic!("not an array");
    };
    assert_eq!(geometry.fields()[0].tile, [6, 7, 7, 1440]);
}

#[test]
fn records_beyond_the_limit_are_cut_inside() {
    let region = Region {
        offset: 0,
        records: 2,
        record: 40 << 20,
        blocks: vec![block(0, 4, &[10, 1 << 20])],
    };
    let units = arrays(&[region], 1 << 40, 8 << 20, &SIZES);
    assert_eq!(
        units.iter().map(Unit::raw).sum::<u64>(),
        (80 << 20) - SIZES.front,
        "the front is stored elsewhere"
    );
    assert!(units.iter().all(|unit| unit.raw() <= 8 << 20));
}

#[test]
fn nonsense_is_left_out() {
    let region = |offset, records, record, blocks| Region {
        offset,
        records,
        record,
        blocks,
    };
    let good = region(0, 10, 40_000, vec![block(0, 4, &[10_000])]);
    for bad in [
        region(100_000, 10, 40_000, vec![block(0, 4, &[10_000])]),
        region(1 << 20, u64::MAX, 40_000, vec![block(0, 4, &[10_000])]),
        region(1 << 20, 10, 40_000, vec![block(0, 4, &[20_000])]),
        region(1 << 20, 10, 40_000, vec![block(0, 4, &[u64::MAX, 3])]),
        region(
            1 << 20,
            10,
            40_000,
            vec![block(0, 4, &[9000]), block(100, 4, &[5])],
        ),
        region(1 << 20, 10, 40_000, vec![block(0, 0, &[9000])]),
        region(u64::MAX - 5, 10, 40_000, vec![block(0, 4, &[9000])]),
    ] {
        let units = arrays(&[good.clone(), bad.clone()], 2 << 20, 8 << 20, &SIZES);
        assert_eq!(units.len(), 1, "{bad:?}");
    }
}

#[test]
fn what_is_cut_in_pieces_is_what_is_cut_at_once() {
    let regions = [
        Region {
            offset: 1000,
            records: 777,
            record: 100_003,
            blocks: vec![block(0, 4, &[100, 100]), block(50_000, 8, &[5000])],
        },
        Region {
            offset: 80 << 20,
            records: 3,
            record: 40 << 20,
            blocks: vec![
                block(0, 4, &[3, 1 << 20]),
                block(13 << 20, 4, &[500]),
                block(20 << 20, 8, &[1 << 21]),
            ],
        },
    ];
    let size = 1 << 40;
    let arrays = Arrays::new(&regions, size, 8 << 20, &SIZES);
    let whole = arrays.between(0..size);
    assert!(whole.len() > 20);
    for step in [1 << 20, 3_333_333, 50 << 20] {
        let pieces: Vec<Unit> = (0..=(256 << 20) / step)
            .flat_map(|piece| arrays.between(piece * step..(piece + 1) * step))
            .collect();
        assert!(pieces == whole, "by {step}");
    }
}

#[test]
fn a_header_that_claims_exabytes_costs_only_what_is_asked_for() {
    let size = 1 << 62;
    for (record, blocks) in [
        (4, vec![block(0, 4, &[])]),
        (1 << 40, vec![block(0, 4, &[1 << 28, 1 << 10])]),
    ] {
        let region = Region {
            offset: 128,
            records: (size - 128) / record,
            record,
            blocks,
        };
        let regions = [region];
        let arrays = Arrays::new(&regions, size, 32 << 20, &SIZES);
        let units = arrays.between(size / 2..size / 2 + (1 << 30));
        assert_eq!(units.len(), 32);
        let shared = units.windows(2).all(|pair| match (&pair[0], &pair[1]) {
            (Unit::Array(a), Unit::Array(b)) => Arc::ptr_eq(&a.geometry, &b.geometry),
            _ => false,
        });
        assert!(shared, "a geometry for each array");
    }
}
