//! Fuzzes the functions that scripts call, with any arguments and in any order, and whole scripts.
#![no_main]

#[path = "../../crates/policy/script/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::script(bytes);
});
