//! Proof by measurement: the provider that traffic is sent to, the client that sends it, readers of recorded
//! traffic, the experiments that measure what lies between, and what the measured figures say.

#![warn(clippy::print_stdout, clippy::print_stderr, reason = "they panic where nobody reads: see `streams`")]

mod base64;
pub mod bench;
pub mod experiment;
pub mod har;
mod live;
pub mod provider;
pub mod report;
pub mod statistics;
pub mod streams;
#[cfg(target_os = "linux")]
mod timer;
