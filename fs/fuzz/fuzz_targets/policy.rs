//! Any attribute under the names of ShaleFS is a policy or refused.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| shale_fs::fuzzing::policy(bytes));
