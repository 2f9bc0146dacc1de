//! Fuzzes the translation of HTTP/2 messages to HTTP/1.1 and back.
#![no_main]

#[path = "../../crates/wire/http2/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::message(bytes));
