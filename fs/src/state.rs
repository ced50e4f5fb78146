//! What is said of how far a file has come.

use shale_store::index::schema::{Inode, Phase};

/// The state of a file of which everything is stored and that is not being settled.
#[must_use]
pub fn at_rest(inode: &Inode) -> &'static str {
    match inode.phase {
        Phase::Fresh | Phase::Loose => "stored",
        Phase::Settled => "settled",
        Phase::Hard(_) if is_incompressible(inode) => "incompressible",
        Phase::Hard(_) => "compact",
    }
}

/// Whether a file that settling would not make smaller takes about as much as it holds: its ratio
/// is below 1.02.
pub(crate) fn is_incompressible(inode: &Inode) -> bool {
    is_ratio_low(inode.size, inode.stored)
}

fn is_ratio_low(raw: u64, stored: u64) -> bool {
    u128::from(raw) * 100 < u128::from(stored) * 102
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_as_much_as_it_holds_is_incompressible() {
        for (raw, stored, expected) in [
            (100, 100, true),
            (100, 130, true),
            (1_019, 1_000, true),
            (1_020, 1_000, false),
            (6_000, 100, false),
            (0, 0, false),
            (u64::MAX, u64::MAX, true),
        ] {
            assert_eq!(is_ratio_low(raw, stored), expected, "{raw} / {stored}");
        }
    }
}
