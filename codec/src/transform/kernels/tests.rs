use super::*;
use crate::frame::{Predictor, Recipe};
use crate::transform::scan::scan_baseline;

fn twins<W: FloatWord + std::fmt::Debug>() {
    let mut seed = 5u64;
    for n in [0, 1, 7, 31, 32, 33, 1000, 1024, 1025, 5000] {
        let words: Vec<W> = (0..n)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                W::from_u64(seed >> (64 - 8 * W::BYTES) >> (seed % 13))
            })
            .collect();
        let mut bytes = [vec![0; n * W::BYTES], vec![0; n * W::BYTES]];
        for big in [false, true] {
            store_all(&words, big, &mut bytes[0]);
            store_all::baseline(&words, big, &mut bytes[1]);
            assert_eq!(bytes[0], bytes[1]);
            let mut loaded = [words.clone(), words.clone()];
            loaded[0].fill(W::default());
            load_all(&bytes[0], big, &mut loaded[0]);
            load_all::baseline(&bytes[0], big, &mut loaded[1]);
            assert!(loaded[0] == words && loaded[1] == words);
        }
        split_columns(&words, n, 0, &mut bytes[0]);
        split_columns::baseline(&words, n, 0, &mut bytes[1]);
        assert_eq!(bytes[0], bytes[1]);
        let mut joined = [words.clone(), words.clone()];
        joined[0].fill(W::default());
        joined[1].fill(W::default());
        let mut columns: [&[u8]; 8] = [&[]; 8];
        for (to, column) in columns.iter_mut().zip(bytes[0].chunks_exact(n.max(1))) {
            *to = column;
        }
        join_columns(&columns, &mut joined[0]);
        join_columns::baseline(&columns, &mut joined[1]);
        assert!(joined[0] == words && joined[1] == words);
        type Pair<W> = [fn(&mut [W]); 2];
        let pairs: [Pair<W>; 3] = [
            [flip_all, flip_all::baseline],
            [zigzag_all, zigzag_all::baseline],
            [unzigzag_all, unzigzag_all::baseline],
        ];
        for [wide, baseline] in pairs {
            let mut work = [words.clone(), words.clone()];
            wide(&mut work[0]);
            baseline(&mut work[1]);
            assert!(work[0] == work[1]);
        }
        let others: Vec<W> = words.iter().rev().copied().collect();
        let mut work = [words.clone(), words.clone()];
        subtract(&mut work[0], &others);
        subtract::baseline(&mut work[1], &others);
        assert!(work[0] == work[1]);
        add(&mut work[0], &others);
        add::baseline(&mut work[1], &others);
        assert!(work[0] == words && work[1] == words);
        for power in [1.0, 1000.0] {
            let mut work = [words.clone(), words.clone()];
            let mut errors = [vec![0; n], vec![0; n]];
            let mut flags = [vec![0; n], vec![0; n]];
            split_decimals(&mut work[0], power, &mut errors[0], &mut flags[0]);
            split_decimals::baseline(&mut work[1], power, &mut errors[1], &mut flags[1]);
            assert!(work[0] == work[1] && errors[0] == errors[1] && flags[0] == flags[1]);
            join_decimals(&mut work[0], power, &errors[0]);
            join_decimals::baseline(&mut work[1], power, &errors[1]);
            assert!(work[0] == work[1]);
        }
    }
}

fn scans<W: FloatWord + std::fmt::Debug>() {
    let mut seed = 11u64;
    for n in [0, 1, 3, 4, 31, 32, 33, 64, 100, 1027] {
        let words: Vec<W> = (0..n)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                W::from_u64(seed >> 7)
            })
            .collect();
        let first = W::from_u64(seed >> 3);
        let mut sums = [first; 2];
        let mut work = [words.clone(), words.clone()];
        W::scan::<true>(&mut work[0], &mut sums[0]);
        scan_baseline::<W, true>(&mut work[1], &mut sums[1]);
        assert!(work[0] == work[1] && sums[0] == sums[1], "{n}");
        let mut sums = [first; 2];
        let mut work = [words.clone(), words.clone()];
        W::scan::<false>(&mut work[0], &mut sums[0]);
        scan_baseline::<W, false>(&mut work[1], &mut sums[1]);
        assert!(work[0] == work[1] && sums[0] == sums[1], "{n}");
        let mut deltas = [words.clone(), words.clone()];
        zigzag_delta(&words, first, &mut deltas[0]);
        zigzag_delta::baseline(&words, first, &mut deltas[1]);
        assert!(deltas[0] == deltas[1], "{n}");
        byte_delta(&work[0], first, &mut deltas[0]);
        byte_delta::baseline(&work[0], first, &mut deltas[1]);
        assert!(deltas[0] == words && deltas[1] == words, "{n}");
    }
}

#[test]
fn vector_sums_equal_their_scalar_twin() {
    scans::<u8>();
    scans::<u16>();
    scans::<u32>();
    scans::<u64>();
}

fn floats<W: FloatWord + std::fmt::Debug>(floats: &[W]) {
    for predictor in [Predictor::Line, Predictor::Plane, Predictor::Cube] {
        let mut recipe = Recipe::verbatim(0);
        recipe.predictor = predictor;
        (recipe.row, recipe.plane) = (9, 63);
        let slope = float::Slope::new(&recipe);
        let mut work = [floats.to_vec(), floats.to_vec()];
        float_residuals(slope, floats, &mut work[0]);
        float_residuals::baseline(slope, floats, &mut work[1]);
        assert!(work[0] == work[1]);
        float_restore(slope, &mut work[0]);
        float_restore::baseline(slope, &mut work[1]);
        assert!(work[0] == floats && work[1] == floats);
    }
    let mut wild = floats.to_vec();
    for (tame, words) in [
        (true, floats),
        (false, &{
            wild[77] = W::from_u64(u64::MAX << 52 | 0x7F80_0000);
            wild
        }),
    ] {
        let mut found = [true; 2];
        all_tame(words, &mut found[0]);
        all_tame::baseline(words, &mut found[1]);
        assert_eq!(found, [tame; 2]);
    }
}

#[test]
fn float_kernels_equal_their_baseline_twins() {
    let wave = |i: i32| (f64::from(i) / 30.0).sin() * f64::from(i % 3 - 1);
    let singles: Vec<u32> = (0..3000).map(|i| (wave(i) as f32).to_bits()).collect();
    let doubles: Vec<u64> = (0..3000).map(|i| wave(i).to_bits()).collect();
    floats(&singles);
    floats(&doubles);
}

#[test]
fn wide_kernels_equal_their_baseline_twins() {
    twins::<u8>();
    twins::<u16>();
    twins::<u32>();
    twins::<u64>();
}
