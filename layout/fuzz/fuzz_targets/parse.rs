//! Any bytes give a layout that keeps its promises.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/promises/mod.rs"]
mod promises;

fuzz_target!(|bytes: &[u8]| promises::check("fuzz", bytes));
