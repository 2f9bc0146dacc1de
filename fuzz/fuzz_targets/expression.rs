//! Fuzzes expressions and templates, and the bodies that they are evaluated on.
#![no_main]

#[path = "../../crates/policy/flow/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::expression(bytes);
});
