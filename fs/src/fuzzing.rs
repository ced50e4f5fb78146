//! Properties of attributes that users set, for arbitrary bytes. The fuzz targets assert them, and
//! so do unit tests with the seeds of the fuzzer.

use crate::acl::Acl;
use crate::policy::{Key, Value, is_own, parse_name};

/// The name of an attribute up to the first NUL, then its value.
pub fn policy(input: &[u8]) {
    let end = input.iter().position(|byte| *byte == 0);
    let (name, value) = match end {
        Some(end) => (&input[..end], &input[end + 1..]),
        None => (&b""[..], input),
    };
    let named = [b"user.shale.", name].concat();
    assert!(is_own(&named));
    for name in [name, &named] {
        if let Some((authority, key)) = parse_name(name) {
            assert_eq!(authority.attribute(key).as_bytes(), name);
        }
    }
    for key in Key::ALL {
        match Value::parse(key, value) {
            Ok(parsed) => {
                assert_eq!(parsed.key(), key);
                let shown = parsed.to_string();
                let again = Value::parse(key, shown.as_bytes());
                assert_eq!(again.ok(), Some(parsed), "shown as {shown}");
            }
            Err(bad) => assert!(!bad.to_string().contains(char::is_control)),
        }
    }
    if let Ok(Some(list)) = Acl::parse(value) {
        assert_eq!(Acl::parse(&list.encode()).ok(), Some(Some(list.clone())));
        let mut changed = list.clone();
        changed.set_mode(list.mode());
        assert_eq!(changed, list);
        let (inherited, _) = list.inherit(0o640);
        assert_eq!(inherited.mode() & !0o640, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use shale_backing::mutate::mutate_corpus;

    #[test]
    fn any_attribute_is_understood_or_refused() {
        let krate = Path::new(env!("CARGO_MANIFEST_DIR"));
        mutate_corpus(krate, "policy", 20_000, super::policy);
    }
}
