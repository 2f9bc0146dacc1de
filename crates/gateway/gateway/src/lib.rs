//! The gateway: routes, upstream pools, tunnels, and the exchanges between two legs.
//!
//! A [`Gateway`] is a set of worker threads that carry traffic by a plan compiled from the configuration.
//! `docs/explanation/architecture.md` describes the path of a request; in this crate it passes `worker`,
//! `downstream`, `exchange` and `upstream`.

mod background;
mod downstream;
mod exchange;
#[doc(hidden)]
pub mod fixture;
mod gateway;
mod recorder;
mod rehearsal;
mod state;
mod worker;

#[cfg(feature = "simulated")]
pub use gateway::simulated::{HAND_OVER_MAX, Held, Stopping};
pub use gateway::{Gateway, HandedState, Pulse, StartError};
pub use rehearsal::{
    Asked, Egress, EgressVerdict, GeneratedError, NotOneRequest, Rehearsal, Rehearsed, RemedyStep, Resolved,
    Responder, Tunnel,
};
