//! The test provider, the load client, the reader of recorded traffic, and the experiments that measure
//! Egret's footprint, with their statistics and reports.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the reader has closed the stream: see `streams`"
)]

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
