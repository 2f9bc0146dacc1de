//! Any bytes as a pointer and a body that is edited.
#![no_main]

#[path = "../../crates/policy/flow/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::json(bytes);
});
