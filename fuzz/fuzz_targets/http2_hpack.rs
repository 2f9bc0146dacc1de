//! Fuzzes the compressed fields of HTTP/2.
#![no_main]

#[path = "../../crates/wire/http2/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::blocks(bytes));
