//! A running Egret: its parts from start to stop, reload, hand-over to another process, and what commands and
//! service managers say to it.
#![warn(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "they panic if the stream is closed: see `egret_measure::streams`"
)]

mod alerts;
mod cluster;
pub mod control_client;
mod control_source;
pub mod demo;
mod descriptors;
mod disks;
mod durable;
pub mod events;
pub mod exec_directory;
mod exports;
pub mod gateway_info;
pub mod interception;
mod issuer_keys;
pub mod logging;
mod memory;
pub mod run;
mod start_failure;
mod supervisor;
mod watch;
