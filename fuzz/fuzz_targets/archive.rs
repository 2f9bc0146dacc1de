//! Any bytes as an archive that is read, verified, merged, split and sanitized.
#![no_main]

#[path = "../../crates/records/har/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::archive(bytes);
});
