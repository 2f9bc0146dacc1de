//! Fuzzes the recording of exchanges.
#![no_main]

#[path = "../../crates/records/har/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::recorder(bytes);
});
