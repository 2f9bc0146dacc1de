//! The data behind the control port.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use egret_clients::{Issuer, KeySource};
use egret_clock::Timestamp;
use egret_cluster::{ClusterMonitor, ClusterStatus, ClusterThread};
use egret_control::{ConfigRefusal, FetchFailure, FetchStatus, GatewayInfo, Source};
use egret_diagnosis::{Discovered, Pin, Traffic};
use egret_export::{ExporterSnapshot, Exporters};
use egret_flow::{FlowsSnapshot, UnknownFault, UnknownFlow};
use egret_gateway::Gateway;
use egret_message::ListenAddress;
use egret_observe::stats::StatsSnapshot;
use egret_quota::AlertCount;
use egret_remedy::FaultSwitch;
use egret_settings::config::Config;
use egret_settings::fetched_secrets::SecretSources;
use egret_settings::schema;
use egret_store::entries::Purge;
use egret_store::shared::Purged;
use parking_lot::Mutex;

use crate::alerts::AlertCounts;
use crate::gateway_info;
use crate::interception::Certificates;

/// The data for the control port. Created before the gateway, because the gateway must know the control
/// port's address in order never to connect to it.
pub struct ControlSource {
    gateway: OnceLock<Arc<Gateway>>,
    cluster: OnceLock<Membership>,
    config: Mutex<Config>,
    /// The sources of the secrets that the config uses.
    secret_sources: Mutex<Arc<SecretSources>>,
    exporters: Mutex<Exporters>,
    alerts: OnceLock<AlertCounts>,
    certificates: Mutex<Option<Certificates>>,
    refusal: Mutex<Option<ConfigRefusal>>,
}

/// The membership in a cluster.
struct Membership {
    monitor: ClusterMonitor,
    /// `true` if the gateway starts with it. A gateway that serves already does not wait for it.
    is_awaited: bool,
}

impl ControlSource {
    /// Creates the data before there is a gateway.
    pub fn new(config: Config) -> Self {
        Self {
            gateway: OnceLock::new(),
            cluster: OnceLock::new(),
            secret_sources: Mutex::new(Arc::new(SecretSources::of(&config))),
            config: Mutex::new(config),
            exporters: Mutex::default(),
            alerts: OnceLock::new(),
            certificates: Mutex::default(),
            refusal: Mutex::default(),
        }
    }

    /// Adds the gateway; later calls have no effect.
    pub fn set_gateway(&self, gateway: Arc<Gateway>) {
        let _ = self.gateway.set(gateway);
    }

    /// Adds the membership in a cluster, if there is one; later calls have no effect.
    pub fn set_cluster(&self, cluster: Option<&ClusterThread>) {
        let Some(cluster) = cluster else { return };
        let is_awaited = self.gateway.get().is_none();
        let _ = self.cluster.set(Membership { monitor: cluster.monitor(), is_awaited });
    }

    /// Replaces the config.
    pub fn set_config(&self, config: Config) {
        let sources = Arc::new(SecretSources::of(&config));
        *self.secret_sources.lock() = sources;
        *self.config.lock() = config;
    }

    /// Returns the sources of the secrets that the config uses.
    pub fn secret_sources(&self) -> Arc<SecretSources> {
        Arc::clone(&self.secret_sources.lock())
    }

    /// Notes that a change of the config from `origin` was refused because of `message`.
    pub fn set_refusal(&self, origin: &str, message: &str) {
        let mut refusal = self.refusal.lock();
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at = refusal.as_ref().map_or(Timestamp::default() + since_epoch, |known| known.at);
        *refusal = Some(ConfigRefusal { at, origin: origin.to_owned(), message: message.to_owned() });
    }

    /// Notes that a config was applied.
    pub fn clear_refusal(&self) {
        *self.refusal.lock() = None;
    }

    /// Replaces the certificates for intercepted hosts.
    pub fn set_certificates(&self, certificates: Option<Certificates>) {
        *self.certificates.lock() = certificates;
    }

    /// Adds the numbers of alerts, if any can be raised; later calls have no effect.
    pub fn set_alerts(&self, counts: Option<AlertCounts>) {
        if let Some(counts) = counts {
            let _ = self.alerts.set(counts);
        }
    }

    /// Replaces the exporters.
    pub fn set_exporters(&self, exporters: Exporters) {
        *self.exporters.lock() = exporters;
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
        self.exporters.lock().snapshot()
    }

    fn alerts(&self) -> Vec<AlertCount> {
        self.alerts.get().map(AlertCounts::read).unwrap_or_default()
    }

    fn traffic(&self) -> Option<Arc<Traffic>> {
        self.gateway.get().map(|gateway| Arc::clone(gateway.traffic()))
    }

    fn watch_traffic(&self, is_open: bool) {
        if let Some(gateway) = self.gateway.get() {
            gateway.watch_traffic(is_open);
        }
    }

    fn failures(&self) -> Option<Arc<Traffic>> {
        self.gateway.get().map(|gateway| Arc::clone(gateway.failures()))
    }

    fn details(&self, list: &Traffic, id: u64) -> Option<Vec<u8>> {
        self.gateway.get()?.details(list, id)
    }

    fn resend(&self, listener: ListenAddress, pin: Pin) -> io::Result<UnixStream> {
        let gateway = self.gateway.get().ok_or_else(|| io::Error::other("the gateway has not started"))?;
        gateway.resend(listener, pin)
    }

    fn purge(&self, flow: Option<&str>, purge: Purge<'_>) -> Result<Purged, UnknownFlow> {
        self.gateway.get().map_or_else(|| Ok(Purged::default()), |gateway| gateway.purge(flow, purge))
    }

    fn switch_faults(
        &self,
        flow: Option<&str>,
        remedy: Option<&str>,
        switch: FaultSwitch,
    ) -> Result<usize, UnknownFault> {
        self.gateway.get().map_or(Ok(0), |gateway| gateway.switch_faults(flow, remedy, switch))
    }

    fn ready(&self) -> bool {
        let awaited = self.cluster.get().filter(|membership| membership.is_awaited);
        self.gateway.get().is_some_and(|gateway| !gateway.is_draining())
            && awaited.is_none_or(|membership| membership.monitor.status().is_ready())
    }

    fn cluster(&self) -> Option<ClusterStatus> {
        self.cluster.get().map(|membership| membership.monitor.status())
    }

    fn gateway(&self) -> GatewayInfo {
        let config = self.config.lock();
        let addresses = self.gateway.get().map(|gateway| gateway.addresses()).unwrap_or_default();
        let certificates = self.certificates.lock();
        let interception =
            certificates.as_ref().and_then(|certificates| gateway_info::interception(&config, certificates));
        GatewayInfo { ready: self.ready(), interception, ..gateway_info::describe(&config, &addresses) }
    }

    fn config(&self) -> serde_json::Value {
        let config = self.config.lock();
        serde_json::to_value(&*config).unwrap_or_default()
    }

    fn config_refusal(&self) -> Option<ConfigRefusal> {
        self.refusal.lock().clone()
    }

    fn secret_commands(&self) -> Vec<FetchStatus> {
        self.secret_sources().commands()
    }

    fn managed_secrets(&self) -> Vec<FetchStatus> {
        self.secret_sources().managed()
    }

    fn issuers(&self) -> Vec<FetchStatus> {
        let issuers = self.gateway.get().map(|gateway| gateway.issuers()).unwrap_or_default();
        let mut statuses: Vec<_> = issuers.iter().filter_map(|issuer| key_status(issuer)).collect();
        // Of one whose keys come from several places, the worst counts.
        statuses
            .sort_by_cached_key(|status| (status.name.clone(), status.failure.is_none(), status.has_last));
        statuses.dedup_by(|status, worse| status.name == worse.name);
        statuses
    }

    fn schema(&self) -> &'static str {
        schema::compact_schema()
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }
}

/// Returns the state of an issuer whose keys are fetched.
fn key_status(issuer: &Issuer) -> Option<FetchStatus> {
    if matches!(issuer.source(), KeySource::File(_)) {
        return None;
    }
    let failure = issuer.key_failure().map(|(since, error)| FetchFailure { since, error });
    Some(FetchStatus { name: issuer.issuer().to_owned(), has_last: issuer.has_keys(), failure })
}
