//! Fuzzes the fields of gRPC.
#![no_main]

#[path = "../../crates/wire/message/tests/checks/mod.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    checks::grpc_values(bytes);
});
