//! Any bytes as a HAR file: limits, order and names hold for whatever is accepted.
#![no_main]

#[path = "../../crates/lab/tests/har/check.rs"]
mod check;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check::check(bytes);
});
