//! The one checksum of the format, XXH3-64, and its 32-bit form.
#![forbid(unsafe_code)]

use twox_hash::XxHash3_64;

/// XXH3-64 with seed zero.
pub(crate) fn hash64(bytes: &[u8]) -> u64 {
    XxHash3_64::oneshot(bytes)
}

/// The low half of [`hash64`]: enough for a stream of at most 128 KiB, whose
/// block is checked a second time after decoding.
pub(crate) fn hash32(bytes: &[u8]) -> u32 {
    hash64(bytes) as u32
}
