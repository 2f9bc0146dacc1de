//! Tools that the provider, the load client and the experiments share: statistics with confidence intervals,
//! the live line of a terminal, output streams that survive their reader, and a fine system timer.
//!
//! This crate knows no HTTP, no experiment and no report. It gets numbers and texts, and returns them.

#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the reader has closed the stream: see `streams`"
)]

pub mod live;
pub mod statistics;
pub mod streams;
#[cfg(target_os = "linux")]
pub mod timer;
