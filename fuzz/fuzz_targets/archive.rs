//! Fuzzes HAR archives: reading, verifying, merging, splitting and sanitizing.
#![no_main]

#[path = "../../crates/records/har/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::archive(bytes);
});
