//! Any bytes as a chunked body.
#![no_main]

#[path = "../../crates/http1/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::chunk(bytes);
});
