//! What to do with a chunk, decided from a sample.
#![forbid(unsafe_code)]

use crate::frame::Recipe;
use crate::{Effort, Hint};

/// Raw bytes of a verbatim segment: what a small read has to check.
pub(crate) const VERBATIM_SEGMENT: usize = 128 << 10;

/// Decides the recipe of a chunk; stage one believes the hint.
pub(crate) fn plan(hint: &Hint<'_>, effort: Effort, raw: &[u8]) -> Recipe {
    let mut recipe = Recipe::verbatim(VERBATIM_SEGMENT as u32);
    let width = match effort {
        Effort::None => return recipe,
        Effort::Lz4 | Effort::Zstd(_) => 1,
        _ => match hint {
            Hint::Unknown => 4,
            Hint::Elements { width, .. } | Hint::Array { width, .. } => {
                if (1..=64).contains(width) { *width } else { 1 }
            }
        },
    };
    if raw.len() < width {
        return recipe;
    }
    recipe.scheme = crate::frame::Scheme::Columns;
    recipe.width = width as u8;
    recipe.streams = width as u8;
    recipe.tail = (raw.len() % width) as u8;
    let elements = match width {
        1 => 128 << 10,
        2 | 4 => 64 << 10,
        5..=8 => 32 << 10,
        _ => 16 << 10,
    };
    recipe.segment_len = (elements * width) as u32;
    recipe
}
