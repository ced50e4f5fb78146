//! What becomes of a column.
#![forbid(unsafe_code)]

use crate::Effort;
use crate::sample::entropy;
use crate::stream::{Fate, Filter};

/// Bits per byte above which coding a column does not pay.
const RAW: f32 = 7.8;

/// Below, symbols repeat so much that finding matches is both faster and
/// denser than coding each of them.
const REPETITIVE: f32 = 1.3;

/// Decides by the entropy of a part of the column.
pub(crate) fn choose_fate(effort: Effort, column: &[u8], may_delta: bool) -> (Fate, Filter) {
    match effort {
        Effort::None => return (Fate::Raw, Filter::None),
        Effort::Lz4 => return (Fate::Lz4, Filter::None),
        Effort::Zstd(level) => return (Fate::Zstd(level), Filter::None),
        _ => {}
    }
    let mut plain = [0u32; 256];
    let mut delta = [0u32; 256];
    let mut equal = 0u32;
    let mut seen = 0u32;
    let windows = 8;
    let step = (column.len() / windows).max(1);
    let len = if effort == Effort::Dense { 2048 } else { 512 };
    for window in column.chunks(step) {
        let window = &window[..window.len().min(len)];
        let mut before = 0u8;
        for &byte in window {
            plain[byte as usize] += 1;
            delta[byte.wrapping_sub(before) as usize] += 1;
            equal += u32::from(byte == before);
            before = byte;
        }
        seen += window.len() as u32;
    }
    let (plain, delta) = (entropy(&plain), entropy(&delta));
    let filter = if may_delta && delta < plain {
        Filter::Delta
    } else {
        Filter::None
    };
    let least = if filter == Filter::Delta {
        delta
    } else {
        plain
    };
    if least > RAW {
        return (Fate::Raw, Filter::None);
    }
    let repetitive = least < REPETITIVE || equal * 2 > seen;
    let fate = match effort {
        Effort::Dense => Fate::Zstd(6),
        Effort::Balanced if least < 4.0 || repetitive => Fate::Zstd(1),
        _ if repetitive => Fate::Zstd(1),
        _ => Fate::Entropy,
    };
    (fate, filter)
}
