//! Any bytes give a valid layout.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[path = "../../tests/fuzzing/mod.rs"]
mod fuzzing;

fuzz_target!(|bytes: &[u8]| fuzzing::check("fuzz", bytes));
