//! Fuzzes responses that may report usage, under content codings and in pieces.
#![no_main]

#[path = "../../crates/policy/usage/tests/usage/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::usage(bytes);
});
