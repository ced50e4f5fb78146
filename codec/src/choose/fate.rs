//! Chooses the coder of a column.
#![forbid(unsafe_code)]

use crate::choose::effort::Effort;
use crate::choose::sample::entropy;
use crate::entropy::stream::Fate;
use crate::frame::Filter;

/// Bits per byte above which coding a column does not pay.
const RAW: f32 = 7.7;

/// The same where speed matters more: a fifth off one column is not worth
/// the time of coding it.
const FAST_RAW: f32 = 6.2;

/// Bits per byte below which one bit per symbol is too much and matches pay.
const REPETITIVE: f32 = 0.8;

/// Zstd level for columns that deserve a match finder and have the time.
const DENSE_LEVEL: i32 = 5;

/// Decides by the entropy of a part of the column.
pub(crate) fn choose_fate(
    effort: Effort,
    column: &[u8],
    may_delta: bool,
    repeats: bool,
) -> (Fate, Filter) {
    match effort {
        Effort::None => return (Fate::Raw, Filter::None),
        Effort::Lz4 => return (Fate::Lz4, Filter::None),
        Effort::Zstd(level) => return (Fate::Zstd(level), Filter::None),
        _ => {}
    }
    let mut plain = [0u32; 256];
    let mut delta = [0u32; 256];
    let windows = 8;
    let step = (column.len() / windows).max(1);
    let len = match effort {
        Effort::Dense => 1024,
        // The many columns of records are short.
        _ if column.len() < 32 << 10 => 128,
        _ => 256,
    };
    let mut flat = 0;
    for window in column.chunks(step) {
        let window = &window[..window.len().min(len)];
        for &byte in window {
            plain[byte as usize] += 1;
        }
        flat += u32::from(window.iter().all(|byte| *byte == window[0]));
        if may_delta {
            for pair in window.windows(2) {
                delta[pair[1].wrapping_sub(pair[0]) as usize] += 1;
            }
        }
    }
    let plain = entropy(&plain);
    let delta = if may_delta { entropy(&delta) } else { 8.0 };
    let (least, filter) = if delta < plain {
        (delta, Filter::Delta)
    } else {
        (plain, Filter::None)
    };
    // Hardly anything but a few long runs.
    let few_runs = flat as usize + 1 >= windows && least < 0.2;
    let fate = match effort {
        Effort::Fast | Effort::Balanced if few_runs => Fate::Runs,
        Effort::Dense if repeats || least < 3.0 => Fate::Zstd(DENSE_LEVEL),
        Effort::Fast if least > FAST_RAW => Fate::Raw,
        _ if least > RAW => Fate::Raw,
        Effort::Balanced if least < 4.0 || flat > 1 => Fate::Zstd(1),
        // Gaps between noise: LZ4 is fastest on both.
        Effort::Fast if flat > 1 && least > 3.0 => Fate::Lz4,
        Effort::Fast if least < REPETITIVE || flat > 1 => Fate::Quick,
        _ => Fate::Entropy,
    };
    (
        fate,
        if fate == Fate::Raw {
            Filter::None
        } else {
            filter
        },
    )
}
