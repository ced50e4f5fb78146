//! The state of a file in the users' terms.

use shale_index::schema::{Inode, Phase};

/// The state of a file that is completely stored and not being settled.
#[must_use]
pub fn at_rest(inode: &Inode) -> &'static str {
    match inode.phase {
        Phase::New | Phase::Stored => "stored",
        Phase::Settled => "settled",
        Phase::Incompressible(_) if is_incompressible(inode) => "incompressible",
        Phase::Incompressible(_) => "compact",
    }
}

/// Whether a file that settling does not make smaller is stored at a ratio below 1.02.
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
