//! Header, frames and directory of any pack are found, or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| shale_store::fuzzing::pack(bytes));
