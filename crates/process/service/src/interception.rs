//! The authority for intercepted hosts, while Egret runs: the one in the data directory, otherwise one that
//! lives in memory.

use std::sync::Arc;

use egret_ca::{
    Authority, AuthorityError, CaDirectory, CaError, Constraints, ConstraintsError, IN_MEMORY_DAYS,
    MintError, ServerConfigs,
};
use egret_message::host_pattern::{HostPattern, HostPatterns};
use egret_settings::authority::{configured, now, owner, tunnelled};
use egret_settings::config::Config;

/// The reason why intercepted hosts have no certificates.
#[derive(Debug, thiserror::Error)]
pub enum CertificatesError {
    /// The authority in the data directory cannot be used.
    #[error("interception: {0}")]
    Directory(CaError),
    /// No authority can be constrained to the hosts.
    #[error("interception: {0}")]
    Constraints(ConstraintsError),
    /// No authority can be made in memory.
    #[error("interception: {0}")]
    Authority(AuthorityError),
    /// The key of the certificates cannot be made.
    #[error("interception: {0}")]
    Key(MintError),
}

/// The certificates for the hosts of a config.
#[derive(Debug, Clone)]
pub struct Certificates {
    /// The entries of `interception.hosts`, by which hosts share certificates.
    patterns: Vec<HostPattern>,
    /// `true` if clients may speak HTTP/2.
    http2: bool,
    configs: ServerConfigs,
}

impl Certificates {
    /// Returns the certificates for `config`, or `None` if it intercepts nothing. The authority of `previous`
    /// stays, because programs that run already trust it. Logs hosts for which it may not speak.
    pub fn of(config: &Config, previous: Option<&Self>) -> Result<Option<Self>, CertificatesError> {
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
        let http2 = config.gateway.http2;
        let is_same = |previous: &&Self| previous.patterns == patterns && previous.http2 == http2;
        if let Some(previous) = previous.filter(is_same) {
            return Ok(Some(previous.clone()));
        }
        let set: HostPatterns = patterns.iter().cloned().collect();
        let configs = ServerConfigs::new(authority, set, http2).map_err(CertificatesError::Key)?;
        Ok(Some(Self { patterns, http2, configs }))
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
fn authority(config: &Config, hosts: &[HostPattern]) -> Result<Option<Authority>, CertificatesError> {
    match kept(config)? {
        Some(kept) => Ok(Some(kept)),
        None => in_memory(hosts, &tunnelled(config)),
    }
}

/// Returns the authority in the data directory, if there is one.
fn kept(config: &Config) -> Result<Option<Authority>, CertificatesError> {
    let directory = CaDirectory::new(&config.data_dir);
    let kept = directory.load(now()).map_err(CertificatesError::Directory)?;
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
fn in_memory(
    hosts: &[HostPattern],
    tunnelled: &[HostPattern],
) -> Result<Option<Authority>, CertificatesError> {
    let is_certifiable = |host: &&HostPattern| Constraints::new([(*host).clone()]).is_ok();
    let certifiable: Vec<_> = hosts.iter().filter(is_certifiable).cloned().collect();
    if certifiable.is_empty() {
        return Ok(None);
    }
    let constraints = Constraints::new(certifiable).map_err(CertificatesError::Constraints)?;
    let constraints = constraints.without(tunnelled, hosts);
    let authority = Authority::make(&constraints, &owner(), IN_MEMORY_DAYS, now())
        .map_err(CertificatesError::Authority)?;
    tracing::warn!(
        name = authority.name(),
        fingerprint = authority.fingerprint(),
        "using a temporary authority, which only programs run by `egret exec` trust: run `egret ca init` and restart for a \
         permanent one"
    );
    Ok(Some(authority))
}

/// Warns about hosts that the authority may not speak for. Their tunnels are relayed.
fn warn_uncovered(authority: &Authority, hosts: &[HostPattern]) {
    for host in uncovered(authority.constraints(), hosts) {
        tracing::warn!(%host, "{UNCOVERED}");
    }
}

/// The consequence for a host outside of the authority's constraints.
const UNCOVERED: &str = "the certificate authority was not made for this host, so its tunnels are relayed: run \
     `egret ca init --force` and restart, then give clients the new certificate";

/// Returns the hosts that an authority with these constraints may not speak for.
fn uncovered<'a>(
    constraints: &Constraints,
    hosts: &'a [HostPattern],
) -> impl Iterator<Item = &'a HostPattern> {
    hosts.iter().filter(move |host| !constraints.covers_pattern(host))
}

/// Compares the hosts that `config` intercepts with the authority in its data directory, if there is one.
/// Returns a sentence for each host that the authority may not speak for, or one if it cannot be read.
pub fn advice(config: &Config) -> Vec<String> {
    if config.interception.is_none() {
        return Vec::new();
    }
    match CaDirectory::new(&config.data_dir).load(now()) {
        Ok(Some(authority)) => uncovered(authority.constraints(), &configured(config))
            .map(|host| format!("interception: `{host}`: {UNCOVERED}"))
            .collect(),
        Ok(None) => Vec::new(),
        // The config may be that of a service, which runs as its owner.
        Err(error) if error.is_foreign() => Vec::new(),
        Err(error) => vec![format!("interception: {error}")],
    }
}
