//! Any bytes as an expression, a template, and a body that they are evaluated on.
#![no_main]

#[path = "../../crates/policy/flow/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::expression(bytes);
});
