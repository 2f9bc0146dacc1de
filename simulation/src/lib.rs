//! Simulated worlds: the gateway on a kernel in memory, with clients, providers, time and faults that are
//! drawn from a seed. See `simulation/README.md`.
#![cfg(feature = "simulated")]

mod any_client;
mod any_provider;
mod client;
mod config;
mod http2_client;
mod http2_provider;
mod ledger;
mod message;
mod names;
mod process;
mod provider;
mod reading;
mod scenario;
mod wire;
pub mod world;
