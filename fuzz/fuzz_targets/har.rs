//! Fuzzes HAR files: limits, order and names hold for every accepted file.
#![no_main]

// Only the reader is included: with the lab's servers and their cryptography the target would take minutes to
// build.
extern crate self as egret_lab;

#[expect(dead_code, reason = "base64 is written elsewhere")]
#[path = "../../crates/lab/src"]
mod lab {
    pub mod base64;
    pub mod har;
}
#[path = "../../crates/lab/tests/har/check.rs"]
mod check;

pub use lab::{base64, har};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    check::check(bytes);
});
