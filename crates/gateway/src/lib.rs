//! The gateway: sockets, routes, upstream pools, DNS, TLS, tunnels and egress policy.
//!
//! A [`Gateway`] is a set of worker threads that carry traffic by a plan compiled from the configuration.
//! `docs/explanation/architecture.md` describes the path of a request; in this crate it passes `worker`,
//! `downstream`, `exchange` and `upstream`.

mod background;
pub mod config;
mod downstream;
mod exchange;
mod failure;
#[doc(hidden)]
pub mod fixture;
mod gateway;
mod leg;
mod observe;
mod plan;
mod rehearsal;
#[cfg(test)]
mod sockets;
mod state;
mod upstream;
mod view;
mod worker;

pub use gateway::{Gateway, HandedState, Pulse, StartError, validate};
pub use observe::stats;
pub use rehearsal::{
    Asked, Egress, EgressVerdict, GeneratedError, NotOneRequest, Rehearsal, Rehearsed, RemedyStep, Resolved,
    Responder, Tunnel,
};
