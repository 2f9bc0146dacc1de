//! Fuzzes the frames of an HTTP/2 connection, in both roles.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    egret_http2::parts::receive(bytes);
});
