//! The membership in a cluster, while Egret runs.

use egret_cluster::{ClusterStartError, ClusterThread};
use egret_quota::longest_cool_down;
use egret_settings::config::Config;

/// Joins the cluster of a config, if it has one.
pub fn join(config: &Config) -> Result<Option<ClusterThread>, ClusterStartError> {
    let Some(cluster) = &config.cluster else { return Ok(None) };
    let name = cluster.member.clone().unwrap_or_else(|| default_name(config));
    let thread = ClusterThread::start(cluster, &name, &config.data_dir, longest_cool_down(&config.quotas))?;
    tracing::info!(cluster = cluster.name, member = name, "quotas with `store: redis` are shared");
    Ok(Some(thread))
}

/// Two gateways on one host cannot listen on the same port.
fn default_name(config: &Config) -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let port = config
        .gateway
        .listen
        .iter()
        .find_map(|listener| listener.address.internet())
        .map_or(0, |address| address.port());
    format!("{host}:{port}")
}
