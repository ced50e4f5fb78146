//! Every engine keeps the promises of the contract; and engines that do not are found out.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod broken;
mod fixtures;
mod random;

use std::sync::Arc;

use shale_index::engine::ReferenceKv;
use shale_index::testing::conformance::{CASES, Case, Fixture, model::Alone};

use fixtures::{Servers, embedded};

/// Runs every case, each with a fixture of its own, and says which fail.
fn run_all(make: impl Fn() -> Box<dyn Fixture>) {
    let mut failed = Vec::new();
    for case in CASES {
        let begun = std::time::Instant::now();
        let fixture = make();
        if !passes(case, &*fixture) {
            failed.push(case.name);
        }
        println!("{} {:?}", case.name, begun.elapsed());
    }
    assert!(failed.is_empty(), "{failed:#?}");
}

fn passes(case: &Case, fixture: &dyn Fixture) -> bool {
    let run = || (case.run)(fixture);
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_ok()
}

#[test]
fn the_reference_conforms() {
    run_all(|| Box::new(Alone(Arc::new(ReferenceKv::new()))));
}

#[test]
fn the_embedded_engine_conforms() {
    run_all(|| Box::new(embedded()));
}

#[test]
fn the_replicated_engine_conforms() {
    run_all(|| Box::new(Servers::new()));
}

#[test]
fn the_replicated_engine_conforms_with_an_unreliable_server() {
    let seed = std::env::var("SHALE_TEST_SEED").map_or(1, |seed| seed.parse().unwrap());
    run_all(|| Box::new(Servers::unreliable(seed, 60)));
}
