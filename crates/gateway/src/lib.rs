//! The gateway: sockets, routes, upstream pools, DNS, TLS, tunnels and egress policy.

pub mod authority;
pub mod config;
pub mod dial;
pub mod dns;
pub mod policy;
pub mod stats;
