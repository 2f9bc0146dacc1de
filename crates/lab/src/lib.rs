//! Proof by measurement: the provider that traffic is sent to, and readers of recorded traffic.

mod base64;
pub mod har;
pub mod provider;
