//! Proof by measurement: the provider that traffic is sent to.

pub mod provider;
