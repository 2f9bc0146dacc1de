//! The data behind the control port.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use egret_control::Source;
use egret_diagnosis::Discovered;
use egret_export::{ExporterSnapshot, Exporters};
use egret_flow::FlowsSnapshot;
use egret_gateway::Gateway;
use egret_gateway::stats::StatsSnapshot;
use egret_store::entries::Purge;
use egret_store::shared::Purged;

use crate::config::Config;

/// The data for the control port. Created before the gateway, because the gateway must know the control
/// port's address in order never to connect to it.
pub struct ControlSource {
    gateway: OnceLock<Arc<Gateway>>,
    config: Mutex<Config>,
    exporters: Mutex<Exporters>,
}

impl ControlSource {
    /// Creates the data before there is a gateway.
    pub fn new(config: Config, exporters: Exporters) -> Self {
        Self { gateway: OnceLock::new(), config: Mutex::new(config), exporters: Mutex::new(exporters) }
    }

    /// Adds the gateway; later calls have no effect.
    pub fn set_gateway(&self, gateway: Arc<Gateway>) {
        let _ = self.gateway.set(gateway);
    }

    /// Replaces the config.
    pub fn set_config(&self, config: Config) {
        *self.config.lock().unwrap_or_else(PoisonError::into_inner) = config;
    }

    /// Replaces the exporters.
    pub fn set_exporters(&self, exporters: Exporters) {
        *self.exporters.lock().unwrap_or_else(PoisonError::into_inner) = exporters;
    }
}

impl Source for ControlSource {
    fn stats(&self) -> StatsSnapshot {
        self.gateway.get().map(|gateway| gateway.stats()).unwrap_or_default()
    }

    fn flows(&self, groups_max: usize) -> FlowsSnapshot {
        self.gateway.get().map(|gateway| gateway.flows(groups_max)).unwrap_or_default()
    }

    fn discovered(&self) -> Vec<Discovered> {
        self.gateway.get().map(|gateway| gateway.discovered()).unwrap_or_default()
    }

    fn exporters(&self) -> Vec<ExporterSnapshot> {
        self.exporters.lock().unwrap_or_else(PoisonError::into_inner).snapshot()
    }

    fn purge(&self, flow: Option<&str>, purge: Purge<'_>) -> Purged {
        self.gateway.get().map(|gateway| gateway.purge(flow, purge)).unwrap_or_default()
    }

    fn ready(&self) -> bool {
        self.gateway.get().is_some_and(|gateway| !gateway.is_draining())
    }

    fn config(&self) -> serde_json::Value {
        let config = self.config.lock().unwrap_or_else(PoisonError::into_inner);
        serde_json::to_value(&*config).unwrap_or_default()
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}
