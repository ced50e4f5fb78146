//! Pins of packs.

use std::sync::Arc;

use shale_index::extent::PackId;
use shale_store::testing::PackPins;
use shale_tests::{Case, Outcome};
use shuttle::thread;

use crate::explore;

pub(crate) fn pinned(_case: &Case) -> Outcome {
    explore(|| {
        let pins = Arc::new(PackPins::default());
        let users: Vec<_> = (0..3)
            .map(|number| {
                let pins = Arc::clone(&pins);
                thread::spawn(move || {
                    let first = pins.pin(PackId(number % 2));
                    let second = pins.pin(PackId(number % 2));
                    drop(first);
                    assert!(pins.is_pinned(second.pack()), "a pinned pack would go");
                })
            })
            .collect();
        for user in users {
            user.join().expect("a user panicked");
        }
        assert!(
            !pins.is_pinned(PackId(0)) && !pins.is_pinned(PackId(1)),
            "a pin stayed"
        );
    })
}
