//! The authority for intercepted hosts, while Egret runs: the one in the data directory, otherwise one that
//! lives in memory.

use std::sync::Arc;

use egret_ca::{Authority, CaDirectory, Constraints, IN_MEMORY_DAYS, ServerConfigs};
use egret_message::host_pattern::{HostPattern, HostPatterns};

use crate::ca::init::{configured, owner};
use crate::ca::place::now;
use crate::config::Config;

/// The certificates for the hosts of a config.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The entries of `interception.hosts`, by which hosts share certificates.
    patterns: Vec<HostPattern>,
    configs: ServerConfigs,
}

impl Certificates {
    /// Returns the certificates for `config`, or `None` if it intercepts nothing. The authority of `previous`
    /// stays, because programs that run already trust it. Logs hosts for which it may not speak.
    pub fn of(config: &Config, previous: Option<&Self>) -> Result<Option<Self>, String> {
        let Some(key) = &config.interception else { return Ok(None) };
        // An invalid key is reported where the config is validated.
        let Ok(rules) = key.compile("interception") else { return Ok(None) };
        let patterns = rules.hosts().to_vec();
        let hosts = configured(config);
        let authority = match previous {
            Some(previous) => Some(Arc::clone(previous.configs.authority())),
            None => authority(config, &hosts)?.map(Arc::new),
        };
        let Some(authority) = authority else { return Ok(None) };
        egret_net::tls::distrust(authority.root().der());
        warn_uncovered(&authority, &hosts);
        if let Some(previous) = previous.filter(|previous| previous.patterns == patterns) {
            return Ok(Some(previous.clone()));
        }
        let set: HostPatterns = patterns.iter().cloned().collect();
        let configs = ServerConfigs::new(authority, set).map_err(|error| error.to_string())?;
        Ok(Some(Self { patterns, configs }))
    }

    /// The TLS settings for intercepted hosts.
    pub fn configs(&self) -> &ServerConfigs {
        &self.configs
    }
}

/// Makes everything distrust the authority of this data directory as one of providers. Call it before
/// anything opens connections.
pub fn distrust_own(config: &Config) {
    match CaDirectory::new(&config.data_dir).root() {
        Ok(root) => root.iter().for_each(|root| egret_net::tls::distrust(root.der())),
        Err(error) => tracing::warn!(%error, "the authority of intercepted hosts cannot be read"),
    }
}

/// Returns the authority in the data directory, or else makes one in memory.
fn authority(config: &Config, hosts: &[HostPattern]) -> Result<Option<Authority>, String> {
    match kept(config)? {
        Some(kept) => Ok(Some(kept)),
        None => in_memory(hosts),
    }
}

/// Returns the authority in the data directory, if there is one.
fn kept(config: &Config) -> Result<Option<Authority>, String> {
    let directory = CaDirectory::new(&config.data_dir);
    let kept = directory.load(now()).map_err(|error| format!("interception: {error}"))?;
    if let Some(authority) = &kept {
        tracing::info!(
            name = authority.name(),
            fingerprint = authority.fingerprint(),
            directory = %directory.path().display(),
            "intercepted hosts have certificates of the authority in the data directory"
        );
    }
    Ok(kept)
}

/// Makes an authority for `hosts`. Hosts that no certificate can name are left out, and relayed later.
/// Returns `None` if there is no other one.
fn in_memory(hosts: &[HostPattern]) -> Result<Option<Authority>, String> {
    let is_certifiable = |host: &&HostPattern| Constraints::new([(*host).clone()]).is_ok();
    let certifiable: Vec<_> = hosts.iter().filter(is_certifiable).cloned().collect();
    if certifiable.is_empty() {
        return Ok(None);
    }
    let constraints = Constraints::new(certifiable).map_err(|error| format!("interception: {error}"))?;
    let authority = Authority::make(&constraints, &owner(), IN_MEMORY_DAYS, now())
        .map_err(|error| format!("interception: {error}"))?;
    tracing::warn!(
        name = authority.name(),
        fingerprint = authority.fingerprint(),
        "intercepted hosts have certificates of an authority in memory, which ends with this process: programs run by \
         `egret exec` trust it; for others, run `egret ca init` and restart"
    );
    Ok(Some(authority))
}

/// Warns about hosts that the authority may not speak for. Their tunnels are relayed.
fn warn_uncovered(authority: &Authority, hosts: &[HostPattern]) {
    for host in hosts.iter().filter(|host| !authority.constraints().covers_pattern(host)) {
        tracing::warn!(
            %host,
            "the certificate authority was not made for this host, so its tunnels are relayed: run `egret ca init --force` and \
             restart, then give clients the new certificate"
        );
    }
}
