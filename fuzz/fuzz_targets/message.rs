//! Any bytes as messages one after the other: heads, bodies, and where each ends.
#![no_main]

#[path = "../../crates/http1/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::message(bytes);
});
