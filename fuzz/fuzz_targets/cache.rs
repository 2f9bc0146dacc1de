//! Fuzzes the caching fields of requests and responses.
#![no_main]

#[path = "../../crates/policy/flow/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::cache(bytes);
});
