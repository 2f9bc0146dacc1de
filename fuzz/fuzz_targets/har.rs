//! Fuzzes HAR files for playback: limits, order and names hold for every accepted file.
#![no_main]

#[path = "../../crates/records/har/tests/replay/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check::check(bytes);
});
