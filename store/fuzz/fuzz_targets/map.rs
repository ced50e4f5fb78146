//! Any map segment gives extents in order, or is refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| shale_store::fuzzing::map(bytes));
