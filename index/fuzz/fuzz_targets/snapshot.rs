//! Any snapshot is loaded whole, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| shale_index::fuzzing::snapshot(bytes));
