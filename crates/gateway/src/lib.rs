//! The gateway: sockets, routes, upstream pools, DNS, TLS, tunnels and egress policy.
//!
//! A [`Gateway`] is a set of worker threads that carry traffic by a plan compiled from the configuration.
//! `docs/explanation/architecture.md` describes the path of a request; in this crate it passes `worker`,
//! `client`, `exchange` and `upstream`.

pub mod config;
pub mod stats;

#[doc(hidden)]
pub mod fixture;

mod client;
mod exchange;
mod gateway;
mod plan;
mod records;
mod resolve;
#[cfg(test)]
mod sockets;
mod upstream;
mod worker;

pub use gateway::{Gateway, StartError, validate};
pub use resolve::{Resolved, Routes};
