//! Any bytes are either refused or decode to the length they claim.
#![no_main]

use libfuzzer_sys::fuzz_target;
use shale_codec::{Decoder, describe, parse_header};

#[path = "../../tests/repair/mod.rs"]
mod repair;

fuzz_target!(|bytes: &[u8]| {
    let mut out = Vec::new();
    let mut decoder = Decoder::new();
    let _ = decoder.decode(bytes, &mut out);
    let mut frame = bytes.to_vec();
    repair::repair(&mut frame);
    let _ = describe(&frame);
    if decoder.decode(&frame, &mut out).is_ok() {
        let header = parse_header(&frame).expect("decoded");
        assert_eq!(out.len(), header.raw_len as usize);
    }
    let _ = decoder.decode_range(&frame, 3, 50, &mut out);
});
