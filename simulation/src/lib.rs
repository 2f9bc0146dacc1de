//! Simulated worlds: the gateway on a kernel in memory, with clients, providers, time and faults that are
//! drawn from a seed. See `simulation/README.md`.
#![cfg(feature = "simulated")]

mod answer;
mod any_client;
mod any_provider;
mod caller;
mod certificates;
mod client;
mod config;
mod dice;
mod disk_plan;
mod disks;
mod http2_client;
mod http2_provider;
mod ledger;
mod link;
mod message;
mod names;
mod process;
mod provider;
mod reading;
mod scenario;
mod tls_plan;
mod tls_settings;
mod wire;
pub mod world;
