//! Names of the attributes that are policies.

use super::{Authority, Key};

/// Whether an attribute belongs to ShaleFS.
pub(crate) fn is_own(name: &[u8]) -> bool {
    Authority::ALL
        .iter()
        .any(|authority| name.starts_with(authority.prefix().as_bytes()))
}

pub(crate) fn parse_name(name: &[u8]) -> Option<(Authority, Key)> {
    Authority::ALL.into_iter().find_map(|authority| {
        let name = name.strip_prefix(authority.prefix().as_bytes())?;
        Some((authority, Key::from_name(std::str::from_utf8(name).ok()?)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_of_both_authorities_are_known() {
        for authority in Authority::ALL {
            for key in Key::ALL {
                let name = authority.attribute(key);
                assert_eq!(parse_name(name.as_bytes()), Some((authority, key)));
            }
        }
        for name in [
            "user.shale.",
            "user.shale.effective",
            "trusted.shale.stat.raw",
            "user.shale.settle.now",
            "user.shale.codec.",
            "user.codec",
            "security.shale.codec",
        ] {
            assert_eq!(parse_name(name.as_bytes()), None, "{name}");
        }
    }

    proptest! {
        #[test]
        fn arbitrary_names_never_panic(tail: Vec<u8>) {
            for authority in Authority::ALL {
                let name = [authority.prefix().as_bytes(), &tail].concat();
                prop_assert!(is_own(&name));
                let _ = parse_name(&name);
            }
        }
    }
}
