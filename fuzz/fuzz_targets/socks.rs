//! Fuzzes handshakes of SOCKS 5, in pieces.
#![no_main]

#[path = "../../crates/wire/net/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::socks(bytes);
});
