//! Fuzzes heads of requests and responses.
#![no_main]

#[expect(dead_code, reason = "each target uses a part of the checks")]
#[path = "../../crates/wire/http1/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::head(bytes);
});
