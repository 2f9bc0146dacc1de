//! Proof by measurement: the provider that traffic is sent to, and what the measured figures say.

pub mod provider;
pub mod statistics;
