//! The lanes that elements and classes are split into.
//!
//! Eight lanes of equal and even length, lane k holding the elements from k
//! times that length on; up to fifteen elements are left over. A decoder
//! follows the lanes side by side.
#![forbid(unsafe_code)]

/// Chains that are decoded side by side.
pub(crate) const LANES: usize = 8;

/// Elements of a lane.
pub(crate) fn lane_len(elements: usize) -> usize {
    (elements / LANES) & !1
}
