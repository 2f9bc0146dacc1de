//! Fuzzes sequences of messages: heads, bodies, and their ends.
#![no_main]

#[expect(dead_code, reason = "each target uses a part of the checks")]
#[path = "../../crates/wire/http1/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::message(bytes);
});
