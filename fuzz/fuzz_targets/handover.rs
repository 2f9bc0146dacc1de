//! Fuzzes the state that an earlier process hands over.
#![no_main]

#[path = "../../crates/policy/remedy/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::handover(bytes);
});
