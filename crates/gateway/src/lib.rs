//! The gateway: sockets, routes, upstream pools, DNS, TLS, tunnels and egress policy.
//!
//! A [`Gateway`] is a set of worker threads that carry traffic by a plan compiled from the configuration. The way of a request
//! is told in `docs/architecture.md`; in this crate it leads through [`acceptor`], [`client`], [`exchange`], [`route`],
//! [`forward`], [`upstream`] and [`pipe`].

pub mod authority;
pub mod config;
pub mod dial;
pub mod dns;
pub mod policy;
pub mod stats;
pub mod tls;

#[doc(hidden)]
pub mod fixture;

mod acceptor;
mod access_log;
mod buffer;
mod client;
mod counters;
mod date;
mod exchange;
mod failure;
mod forward;
mod gateway;
mod pipe;
mod plan;
mod route;
mod stream;
mod timer;
mod tunnel;
mod upstream;
mod worker;

pub use gateway::{Gateway, StartError, validate};
