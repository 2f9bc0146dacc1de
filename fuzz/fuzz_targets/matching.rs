//! Fuzzes patterns of matches, and routing by query parameters.
#![no_main]

#[path = "../../crates/policy/match/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::matching(bytes);
});
