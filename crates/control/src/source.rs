//! The data behind the control port, as its owner provides it.

use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use egret_clock::Timestamp;
use egret_cluster::ClusterStatus;
use egret_diagnosis::{Discovered, Pin, Traffic};
use egret_export::ExporterSnapshot;
use egret_flow::{FlowsSnapshot, UnknownFault, UnknownFlow};
use egret_message::ListenAddress;
use egret_observe::stats::StatsSnapshot;
use egret_quota::AlertCount;
use egret_remedy::FaultSwitch;
use egret_store::entries::Purge;
use egret_store::shared::Purged;

use crate::gateway_info::GatewayInfo;

/// The data that the control port shows, implemented by the owner of the gateway. Every method is called from
/// the control thread, once per request that needs it, and should return immediately.
pub trait Source: Send + Sync {
    /// Returns all counters, summed over the workers.
    fn stats(&self) -> StatsSnapshot;

    /// Returns the counters of the flows and the state of their quotas and accounts, with at most
    /// `groups_max` groups per quota.
    fn flows(&self, groups_max: usize) -> FlowsSnapshot;

    /// Returns the endpoints that diagnoses have discovered.
    fn discovered(&self) -> Vec<Discovered>;

    /// Returns the counters of the exporters.
    fn exporters(&self) -> Vec<ExporterSnapshot>;

    /// Returns the numbers of alerts that were told.
    fn alerts(&self) -> Vec<AlertCount>;

    /// Returns the list of recent exchanges. `None` before the gateway runs.
    fn traffic(&self) -> Option<Arc<Traffic>>;

    /// Returns the list of failed exchanges. `None` before the gateway runs.
    fn failures(&self) -> Option<Arc<Traffic>>;

    /// Records exchanges for the list of recent ones from now on, or stops that and empties the list.
    fn watch_traffic(&self, is_open: bool);

    /// Returns the details of an exchange on one of these lists as JSON.
    fn details(&self, list: &Traffic, id: u64) -> Option<Vec<u8>>;

    /// Returns a connection within the process for a recorded request that is sent again, as a client of the
    /// `listener`. `pin` bounds where it goes.
    ///
    /// # Errors
    ///
    /// Fails with `PermissionDenied` if the config has changed so that it may not be sent again.
    fn resend(&self, listener: ListenAddress, pin: Pin) -> io::Result<UnixStream>;

    /// Purges matching responses from all caches, or from the cache of `flow`, and tells the other gateways
    /// of a cluster.
    ///
    /// # Errors
    ///
    /// Fails if there is no such flow.
    fn purge(&self, flow: Option<&str>, purge: Purge<'_>) -> Result<Purged, UnknownFlow>;

    /// Switches the faults of all flows or of `flow`, and there all or the one called `remedy`. Returns their
    /// number.
    ///
    /// # Errors
    ///
    /// Fails if there is no such fault.
    fn switch_faults(
        &self,
        flow: Option<&str>,
        remedy: Option<&str>,
        switch: FaultSwitch,
    ) -> Result<usize, UnknownFault>;

    /// Returns `true` if new exchanges are accepted: `false` while starting and while draining.
    fn ready(&self) -> bool;

    /// Returns the state of the membership in a cluster, if the gateway is in one.
    fn cluster(&self) -> Option<ClusterStatus>;

    /// Returns what a program must know to send its calls through the gateway.
    fn gateway(&self) -> GatewayInfo;

    /// Returns the running configuration with its defaults; secrets appear by source only.
    fn config(&self) -> serde_json::Value;

    /// Returns the last change of the config that was refused, unless another one was applied since.
    fn config_refusal(&self) -> Option<ConfigRefusal>;

    /// Returns the state of the commands whose secrets are in use (`secrets.commands`).
    fn secret_commands(&self) -> Vec<FetchStatus>;

    /// Returns the state of the secrets of secret managers that are in use, each under a name like
    /// `vault:secret/data/stripe`.
    fn managed_secrets(&self) -> Vec<FetchStatus>;

    /// Returns the state of the issuers whose keys are fetched (`gateway.listen[].clients.jwt`).
    fn issuers(&self) -> Vec<FetchStatus>;

    /// Returns the JSON Schema of the config.
    fn schema(&self) -> &'static str;

    /// Returns the version of the binary.
    fn version(&self) -> &'static str;
}

/// A change of the config that was refused: an older one is in effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigRefusal {
    /// The time of the first refusal in a row.
    pub at: Timestamp,
    /// The file, or where else the config comes from.
    pub origin: String,
    /// The first problem.
    pub message: String,
}

/// The state of something that is fetched from time to time: a secret, or the keys of an issuer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchStatus {
    /// The name of the command, the secret or the issuer.
    pub name: String,
    /// `true` if there is a last one, which is in use.
    pub has_last: bool,
    /// `None` if the last attempt has succeeded.
    pub failure: Option<FetchFailure>,
}

/// A failure to fetch something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchFailure {
    /// The time of the first failure in a row.
    pub since: Timestamp,
    /// The reason of the last one. It shows no secret.
    pub error: String,
}
