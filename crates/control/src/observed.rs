//! The state of everything at one moment, from which metrics are rendered and findings are drawn.

use egret_cluster::ClusterStatus;
use egret_export::ExporterSnapshot;
use egret_flow::FlowsSnapshot;
use egret_observe::stats::StatsSnapshot;
use egret_quota::AlertCount;

use crate::process::Process;
use crate::source::{ConfigRefusal, FetchStatus, Source};

/// The state of everything.
#[derive(Debug, Default)]
pub(crate) struct Observed {
    pub stats: StatsSnapshot,
    pub flows: FlowsSnapshot,
    pub exporters: Vec<ExporterSnapshot>,
    pub alerts: Vec<AlertCount>,
    pub cluster: Option<ClusterStatus>,
    /// The refusal of the newest config, if it was refused.
    pub refusal: Option<ConfigRefusal>,
    /// The commands whose secrets are in use.
    pub secret_commands: Vec<FetchStatus>,
    /// The secrets of secret managers that are in use.
    pub managed_secrets: Vec<FetchStatus>,
    /// The issuers whose keys are fetched.
    pub issuers: Vec<FetchStatus>,
    /// The usage of the process, as far as it was read.
    pub process: Process,
}

impl Observed {
    /// Reads the state, with at most `groups_max` groups per quota. Reading all of `process` takes longer the
    /// more connections are open, so the caller decides how much of it is read.
    pub fn of(source: &dyn Source, groups_max: usize, process: Process) -> Self {
        Self {
            stats: source.stats(),
            flows: source.flows(groups_max),
            exporters: source.exporters(),
            alerts: source.alerts(),
            cluster: source.cluster(),
            refusal: source.config_refusal(),
            secret_commands: source.secret_commands(),
            managed_secrets: source.managed_secrets(),
            issuers: source.issuers(),
            process,
        }
    }
}
