//! Flows: the compiled plan of a config. It finds the flows of an exchange, and passes the exchange through
//! their remedies.
//!
//! The crate has no sockets, starts no threads and reads no clock. The caller passes in the current time and
//! views over the received bytes. The crate returns decisions, and the gateway carries them out.

// Unit tests see the internals of this very crate through the fixture, so it is compiled here once more.
#[cfg(test)]
extern crate self as egret_flow;

pub mod advice;
mod causes;
mod chain;
mod condition;
pub mod config;
pub mod explain;
#[cfg(test)]
#[expect(dead_code, reason = "the tests of each crate use a part of the fixture")]
#[path = "../../fixture/src/lib.rs"]
mod fixture;
mod plan;

pub use chain::{RemedyChain, RequestStep, ResponseStep, TraceReaders};
pub use plan::{
    ACCOUNTS_SHOWN_MAX, FlowParts, FlowStats, Flows, FlowsSnapshot, HandedFlows, RemedyStats, UnknownFault,
    UnknownFlow,
};
