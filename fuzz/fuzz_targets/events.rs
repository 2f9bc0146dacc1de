//! Fuzzes streams of events, under content codings and in pieces.
#![no_main]

#[path = "../../crates/policy/match/tests/checks/events.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::events(bytes);
});
