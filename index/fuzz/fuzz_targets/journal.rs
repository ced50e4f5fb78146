//! Any segments of a journal are replayed without a gap, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| shale_index::fuzzing::journal(bytes));
