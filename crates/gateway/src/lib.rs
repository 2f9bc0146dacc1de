//! The gateway: sockets, routes, upstream pools, DNS, TLS, tunnels and egress policy.

pub mod config;
pub mod stats;
