//! Any bytes as a HAR file: limits, order and names hold for whatever is accepted.
#![no_main]

// The reader alone: with the lab's servers and their cryptography a target would take minutes to build.
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
