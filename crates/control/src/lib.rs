//! The control port: health, metrics, running config, figures and the page that shows them.
//!
//! It stands beside the data path and never on it: a thread of its own reads what the workers have counted. Whoever can reach
//! the port learns where the application calls, so it listens on loopback unless there is a token, and refuses requests that a
//! web page elsewhere may have caused (see `guard`).

mod config;
mod connection;
mod flows;
mod guard;
mod metrics;
mod problem;
mod process;
mod routes;
mod server;

pub use config::ControlConfig;
pub use server::{Control, ControlError};

use egret_export::ExporterSnapshot;
use egret_flow::FlowsSnapshot;
use egret_flow::diagnoses::discovery::Discovered;
use egret_gateway::stats::StatsSnapshot;
use egret_store::entries::Purge;

/// What the control port shows: implemented by whoever runs the gateway. Every method is called from the control thread, once
/// per request that needs it, and should return at once.
pub trait Source: Send + Sync {
    /// Everything counted, summed over all workers now.
    fn stats(&self) -> StatsSnapshot;

    /// What flows have done and how their quotas and accounts stand now, with at most `groups_max` groups of each quota.
    fn flows(&self, groups_max: usize) -> FlowsSnapshot;

    /// The endpoints that diagnoses have found.
    fn discovered(&self) -> Vec<Discovered>;

    /// What exporters have counted.
    fn exporters(&self) -> Vec<ExporterSnapshot>;

    /// Takes what is meant out of all caches; of one flow's, where that is named. Says how many answers there were.
    fn purge(&self, flow: Option<&str>, purge: Purge<'_>) -> usize;

    /// Whether new exchanges are welcome: `false` while starting and while draining.
    fn ready(&self) -> bool;

    /// The running configuration with its defaults; secrets appear by source only.
    fn config(&self) -> serde_json::Value;

    /// The version of the binary.
    fn version(&self) -> &'static str;
}
