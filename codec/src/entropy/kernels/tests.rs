use super::*;
use crate::transform::lanes::lane_len;

fn residuals<W: Word + std::fmt::Debug>() {
    let mut seed = 3u64;
    for n in [0, 1, 15, 16, 40, 5000] {
        let words: Vec<W> = (0..n)
            .map(|_| {
                seed = seed
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                W::from_u64(seed >> (64 - 8 * W::BYTES) >> (seed % 40))
            })
            .collect();
        let mut classes = [vec![0; n], vec![0; n]];
        let mut extra = [vec![], vec![]];
        split_residuals(&words, &mut classes[0], &mut extra[0]);
        split_residuals::baseline(&words, &mut classes[1], &mut extra[1]);
        assert!(classes[0] == classes[1] && extra[0] == extra[1], "{n}");
        // Classes as the decoder has them.
        let lane = lane_len(n);
        let mut rows = classes[0].clone();
        for at in 0..lane * LANES {
            rows[at] = classes[0][at % LANES * lane + at / LANES];
        }
        let mut joined = [vec![W::default(); n], vec![W::default(); n]];
        join_residuals(&rows, &mut BitReader::new(&extra[0]), &mut joined[0]);
        join_residuals::baseline(&rows, &mut BitReader::new(&extra[0]), &mut joined[1]);
        assert!(joined[0] == words && joined[1] == words, "{n}");
    }
}

#[test]
fn residual_kernels_equal_their_baseline_twins() {
    residuals::<u8>();
    residuals::<u16>();
    residuals::<u32>();
    residuals::<u64>();
}

#[test]
fn class_kernels_equal_their_baseline_twins() {
    // Eight equally frequent classes in every context.
    let mut steps = [[rows::EncodeStep::default(); 256]; contexts::MAX_CONTEXTS];
    let mut slots = vec![0u32; rows::SLOTS];
    for (context, steps) in steps.iter_mut().enumerate() {
        for symbol in 0..8u32 {
            steps[symbol as usize] = rows::EncodeStep::new(256, symbol * 256);
            for offset in 0..256 {
                let at = context * 2048 + (symbol * 256 + offset) as usize;
                slots[at] = symbol | 256 << 8 | offset << 20;
            }
        }
    }
    let slots = slots.first_chunk().unwrap();
    let bases: [u16; contexts::SUMS] = std::array::from_fn(|sum| (sum as u16 / 2).min(7) << 11);
    let mut seed = 9u64;
    for (n, far) in [
        (16, 2),
        (160, 2),
        (160, 3),
        (160, 4),
        (4000, 7),
        (4000, 100),
    ] {
        let classes: Vec<u8> = (0..n)
            .map(|_| {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (seed >> 61) as u8
            })
            .collect();
        // The tables are alike, so any context will do.
        let assigned: Vec<u8> = classes.iter().map(|class| class / 2).collect();
        let mut states = [[1u64 << 31; LANES]; 2];
        let mut words = [vec![], vec![]];
        encode_rows(&steps, &classes, &assigned, &mut states[0], &mut words[0]);
        encode_rows::baseline(&steps, &classes, &assigned, &mut states[1], &mut words[1]);
        assert!(states[0] == states[1] && words[0] == words[1], "{n}");
        let bytes: Vec<u8> = words[0]
            .iter()
            .rev()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        let mut rows = [vec![0; n], vec![0; n]];
        let mut rest = [&bytes[..]; 2];
        decode_rows(
            &bases,
            slots,
            far,
            &mut states[0],
            &mut rest[0],
            &mut rows[0],
        );
        decode_rows::baseline(
            &bases,
            slots,
            far,
            &mut states[1],
            &mut rest[1],
            &mut rows[1],
        );
        assert!(rows[0] == rows[1] && states[0] == states[1], "{n}");
        assert!(rest[0].is_empty() && rest[1].is_empty(), "{n}");
        assert_eq!(states[0], [1 << 31; LANES]);
    }
}
