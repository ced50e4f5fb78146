//! New volumes from lists of pairs.

use std::sync::Arc;

use super::{Fixture, add, numbered, put, sum};
use crate::Error;
use crate::kv::{Counter, Import, Versioned};

fn pair(key: Vec<u8>, version: u64, value: &[u8], counter: bool) -> Import {
    Import {
        key,
        value: Versioned {
            value: Arc::from(value),
            version,
            created: 1,
        },
        counter,
    }
}

pub(super) fn an_import_keeps_the_order_of_versions(fixture: &dyn Fixture) {
    // In the order of keys, which is not that of versions; some versions wrote many keys.
    let version = |number: usize| 1 + (number as u64 * 7919) % 40;
    let mut pairs: Vec<_> = (0..1000)
        .map(|number| pair(numbered("k", number), version(number), b"v", false))
        .collect();
    pairs.push(pair(b"n".to_vec(), 17, &Counter::of(42).encode(), true));
    pairs.push(pair(b"x".to_vec(), 41, b"", false));
    let Some(imported) = fixture.import(pairs) else {
        return;
    };
    imported.expect("it is imported");
    let (kv, other) = (fixture.session(), fixture.session());
    let found = kv.range(b"k", b"l", usize::MAX).expect("the engine reads");
    assert_eq!(found.len(), 1000);
    let mut order: Vec<_> = found
        .iter()
        .enumerate()
        .map(|(number, (_, value))| (version(number), value.version))
        .collect();
    order.sort_unstable();
    for step in order.windows(2) {
        let grows = step[0].1 < step[1].1;
        assert!(grows || step[0].0 == step[1].0, "out of order: {step:?}");
    }
    let last = kv.get(b"x").expect("the engine reads").expect("a value");
    assert!(order.iter().all(|(_, version)| *version < last.version));
    assert_eq!(sum(&*kv, b"n"), Some(42));
    add(&*kv, b"n", 1);
    add(&*other, b"n", 1);
    assert_eq!(sum(&*kv, b"n"), Some(44));
    assert!(put(&*kv, b"x", b"") > last.version);
}

pub(super) fn an_import_into_a_volume_with_keys_is_refused(fixture: &dyn Fixture) {
    if !fixture.shared() {
        return;
    }
    let kv = fixture.session();
    put(&*kv, b"a", b"1");
    kv.close().expect("it closes");
    let Some(imported) = fixture.import(vec![pair(b"b".to_vec(), 1, b"", false)]) else {
        return;
    };
    assert!(matches!(imported, Err(Error::Refused(_))), "{imported:?}");
    let kv = fixture.session();
    let found = kv.range(b"", b"z", 10).expect("the engine reads");
    assert_eq!(found.len(), 1);
}
