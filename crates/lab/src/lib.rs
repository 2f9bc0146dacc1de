//! Proof by measurement: the provider that traffic is sent to, the client that sends it, readers of recorded
//! traffic, the experiments that measure what lies between, and what the measured figures say.

mod base64;
pub mod bench;
pub mod experiment;
pub mod har;
mod live;
pub mod provider;
pub mod report;
pub mod statistics;
#[cfg(target_os = "linux")]
mod timer;
