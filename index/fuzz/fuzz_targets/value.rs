//! Any value of the index is read, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| shale_index::fuzzing::value(bytes));
