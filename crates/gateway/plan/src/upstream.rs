//! A provider, or a host without one, as the workers reach it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::Moment;
use egret_config::Problem;
use egret_diagnosis::{TalliedOrigin, Tallies};
use egret_match::matching::{HostPattern, bare};
use egret_match::providers::ProviderUrl;
use egret_match::rewrite::Responder;
use egret_message::authority::{Authority, Host};
use egret_message::{Origin, Protocols};
use egret_net::config::ProviderTlsConfig;
use egret_net::policy::{EgressPolicy, EgressTarget};
use egret_net::proxy::{Proxy, ProxyRules};
use egret_net::tls::ClientTls;
use egret_observe::counters::ProviderStats;
use egret_observe::endpoint_stats::EndpointStats;
use egret_observe::failure::config::ErrorFormat;
use egret_observe::hosts::HostStats;
use egret_observe::stats::ProviderSnapshot;
use egret_presets::Preset;

use crate::config::{GatewayConfig, HttpVersions, PoolConfig, ProviderConfig, TimeoutsConfig};
use crate::{Plan, UpstreamTimeouts};

/// The name under which all hosts without a configured provider are counted.
pub const OTHER_HOSTS: &str = "-";

/// A provider, or a host without one, as the workers reach it.
#[derive(Debug, Clone)]
pub struct UpstreamPlan {
    /// The scheme, the host and the port of its URL.
    pub origin: Origin,
    /// The value of `Host` in requests to it.
    pub host_field: Box<[u8]>,
    /// The host without a port, in lower case.
    pub(crate) host_text: Box<str>,
    /// The base path of every request, without a slash at its end.
    pub path_prefix: Box<[u8]>,
    /// Other hosts that credentials may be sent to, from `hosts` in the config, in lower case.
    pub(crate) hosts: Box<[HostPattern]>,
    /// The TLS config, if it is called over TLS.
    pub tls: Option<ClientTls>,
    /// The proxy through which it is reached, if there is one.
    pub proxy: Option<Arc<Proxy>>,
    /// Timeouts of waits for it.
    pub timeouts: UpstreamTimeouts,
    /// Limits of its connections.
    pub pool: PoolConfig,
    /// The version of HTTP that it is called in.
    pub http: HttpVersions,
    /// The policy for connections to it.
    pub policy: Arc<EgressPolicy>,
    /// Protocols that connections to it may be upgraded to.
    pub upgrades: Arc<Protocols>,
    /// The format of errors in its place, if it has one of its own.
    pub error_format: Option<ErrorFormat>,
    /// `true` if the config names it.
    pub configured: bool,
    /// Identifies the provider in the list of called endpoints.
    pub tally_number: u64,
    /// Its name and its URL. A recorded request is sent again to the same destination only.
    pub destination: Arc<str>,
    /// The counters of its exchanges.
    pub stats: Arc<ProviderStats>,
    /// The same provider at its other endpoints. They share its counters. Each has its own connections, up to
    /// the limit.
    pub endpoints: Box<[Arc<Self>]>,
    /// The counters of this endpoint, if the provider has several.
    pub endpoint_stats: Option<Arc<EndpointStats>>,
    /// Number of open connections over all workers, including tunnels.
    pub(crate) open: Arc<AtomicU32>,
    /// The config that it was compiled from. `None` for a host that is not configured.
    pub(crate) source: Option<ProviderConfig>,
}

/// A provider as reached by an account with a client certificate. Its connections are not shared with other
/// accounts.
#[derive(Debug)]
pub struct Certified {
    /// The number of the account.
    pub(crate) account: usize,
    /// The provider, reached with the account's certificate.
    pub upstream: Arc<UpstreamPlan>,
}

/// The settings of hosts without a configured provider.
#[derive(Debug)]
pub struct OtherHosts {
    tls: ClientTls,
    pub(crate) proxies: Arc<ProxyRules>,
    timeouts: UpstreamTimeouts,
    pub(crate) policy: Arc<EgressPolicy>,
    upgrades: Arc<Protocols>,
    /// The counters of the exchanges with each host.
    pub stats: Arc<HostStats>,
}

impl OtherHosts {
    /// Compiles the settings of hosts without a configured provider. The statistics of `previous` are kept.
    pub(crate) fn compile(
        config: &GatewayConfig,
        policy: Arc<EgressPolicy>,
        proxies: Arc<ProxyRules>,
        upgrades: Arc<Protocols>,
        workers: usize,
        previous: Option<&Plan>,
    ) -> Result<Arc<Self>, Vec<Problem>> {
        let tls = ClientTls::compile(&ProviderTlsConfig::default(), "gateway")?;
        let stats = previous.map(|previous| Arc::clone(&previous.other_hosts.stats));
        let stats = stats.unwrap_or_else(|| HostStats::new(OTHER_HOSTS, workers));
        let timeouts = upstream_timeouts(&config.timeouts, None);
        Ok(Arc::new(Self { tls, proxies, timeouts, policy, upgrades, stats }))
    }

    /// Returns the upstream for `origin`.
    pub fn upstream(&self, origin: Origin) -> UpstreamPlan {
        let stats = self.stats.of(&String::from_utf8_lossy(&origin.host_field()));
        self.counted(origin, stats)
    }

    /// Returns the upstream for `origin`, whose exchanges are counted in `stats`.
    fn counted(&self, origin: Origin, stats: Arc<ProviderStats>) -> UpstreamPlan {
        UpstreamPlan {
            host_field: origin.host_field(),
            host_text: origin.authority.host.to_string().into(),
            path_prefix: Box::default(),
            hosts: Box::default(),
            tls: origin.tls.then(|| self.tls.clone()),
            proxy: self.proxies.choose(origin.tls, &origin.authority),
            timeouts: self.timeouts,
            pool: PoolConfig::default(),
            http: HttpVersions::Auto,
            policy: Arc::clone(&self.policy),
            upgrades: Arc::clone(&self.upgrades),
            error_format: None,
            configured: false,
            tally_number: 0,
            destination: Arc::default(),
            stats,
            endpoints: Box::default(),
            endpoint_stats: None,
            open: Arc::default(),
            source: None,
            origin,
        }
        .numbered()
    }

    /// Returns the upstream of a tunnel to `authority`. The client decides about TLS inside the tunnel.
    /// `provider` is the configured one at that authority, if any; the tunnel counts as one of its
    /// connections.
    pub fn tunnel(&self, authority: Authority, provider: Option<&Arc<UpstreamPlan>>) -> UpstreamPlan {
        let proxy = self.proxies.choose(true, &authority);
        let origin = Origin { tls: false, authority };
        let Some(provider) = provider else { return UpstreamPlan { proxy, ..self.upstream(origin) } };
        let mut plan = self.counted(origin, Arc::clone(&provider.stats));
        plan.configured = true;
        plan.error_format = provider.error_format;
        plan.proxy.clone_from(&provider.proxy);
        plan.timeouts = provider.timeouts;
        plan.pool.connections = provider.pool.connections;
        plan.open = Arc::clone(&provider.open);
        plan.numbered()
    }

    /// Returns the policy for connections to all hosts.
    pub fn policy(&self) -> &EgressPolicy {
        &self.policy
    }

    /// Returns the upstream of a token endpoint at `origin`. It keeps no idle connections, because the next
    /// fetch is far off. A service of this machine is called through no proxy, which has an identity of its
    /// own.
    pub fn endpoint(&self, origin: Origin, is_of_machine: bool) -> UpstreamPlan {
        let pool = PoolConfig { idle: 0, ..PoolConfig::default() };
        let mut plan = self.counted(origin, Arc::clone(self.stats.rest()));
        plan.proxy = plan.proxy.filter(|_| !is_of_machine);
        UpstreamPlan { configured: true, pool, ..plan }
    }

    /// Returns the placeholder upstream under which requests are counted that get a response before they are
    /// routed.
    pub fn unrouted(&self) -> UpstreamPlan {
        let host = Host::Ip(std::net::Ipv4Addr::UNSPECIFIED.into());
        let origin = Origin { tls: false, authority: Authority { host, port: 0 } };
        self.counted(origin, Arc::clone(self.stats.rest()))
    }
}

impl UpstreamPlan {
    /// Returns its name in flows.
    pub fn provider(&self) -> &str {
        if self.configured { self.stats.name() } else { OTHER_HOSTS }
    }

    /// Returns the origin of its endpoints in the list of called ones.
    pub fn tallied_origin(&self) -> TalliedOrigin<'_> {
        TalliedOrigin {
            provider: self.provider(),
            tls: self.origin.tls,
            host: bare(&self.host_text),
            port: self.origin.authority.port,
            prefix: &self.path_prefix,
        }
    }

    /// Sets the number of its origin.
    pub(crate) fn numbered(mut self) -> Self {
        self.tally_number = Tallies::number(self.tallied_origin());
        self.destination =
            format!("{} {}", self.provider(), url_text(&self.origin, &self.path_prefix)).into();
        self
    }

    /// Returns its preset, if it has one.
    pub fn preset(&self) -> Option<&'static Preset> {
        Some(self.source.as_ref()?.preset?.preset())
    }

    /// Returns the target of its connections, as the egress policy judges it.
    pub fn target(&self) -> EgressTarget<'_> {
        EgressTarget { authority: &self.origin.authority, configured: self.configured }
    }

    /// Returns the host without a port, in lower case.
    pub fn host_text(&self) -> &str {
        &self.host_text
    }

    /// Returns what a rewriter of its responses has to know.
    pub fn responder(&self) -> Responder<'_> {
        Responder { origin: &self.origin, host_field: &self.host_field, path_prefix: &self.path_prefix }
    }

    /// Returns `true` if credentials of this provider may also be sent to `host`, which is not its own.
    pub fn is_known_as(&self, host: &Host) -> bool {
        let text = host.to_string();
        self.hosts.iter().any(|pattern| pattern.matches(bare(&text)))
    }

    /// Returns the same provider, reached with the client certificate of an account. Both are counted
    /// together. The bytes of an upgraded connection are sent in that account's name, so only protocols that
    /// the config names for this provider are allowed.
    pub(crate) fn with_tls(&self, tls: &ClientTls) -> Self {
        let named = self.source.as_ref().is_some_and(|source| source.upgrades.is_some());
        let endpoints = self.endpoints.iter().map(|endpoint| Arc::new(endpoint.with_tls(tls)));
        Self {
            tls: Some(tls.clone()),
            upgrades: if named { Arc::clone(&self.upgrades) } else { Arc::default() },
            endpoints: endpoints.collect(),
            ..self.clone()
        }
    }

    /// Returns the same provider at another URL.
    pub(crate) fn at_endpoint(&self, url: ProviderUrl, proxy: Option<Arc<Proxy>>, workers: usize) -> Self {
        let plan = Self {
            host_field: url.origin.host_field(),
            host_text: url.origin.authority.host.to_string().into(),
            proxy,
            path_prefix: url.path,
            origin: url.origin,
            open: Arc::default(),
            ..self.clone()
        };
        Self { endpoint_stats: Some(plan.new_endpoint_stats(workers)), ..plan }
    }

    /// Returns the URLs of its other endpoints.
    pub(crate) fn endpoint_urls(&self) -> Box<[ProviderUrl]> {
        let url =
            |plan: &Arc<Self>| ProviderUrl { origin: plan.origin.clone(), path: plan.path_prefix.clone() };
        self.endpoints.iter().map(url).collect()
    }

    pub(crate) fn new_endpoint_stats(&self, workers: usize) -> Arc<EndpointStats> {
        EndpointStats::new(url_text(&self.origin, &self.path_prefix), workers)
    }

    /// Returns the counters of its exchanges and of its endpoints at `now`.
    pub fn snapshot(&self, now: Moment) -> ProviderSnapshot {
        let others = self.endpoints.iter().map(|endpoint| &endpoint.endpoint_stats);
        let all = std::iter::once(&self.endpoint_stats).chain(others).flatten();
        let endpoints = all.map(|stats| stats.snapshot(now)).collect();
        ProviderSnapshot { endpoints, ..self.stats.snapshot() }
    }

    /// Returns `true` if the limit of open connections is reached.
    pub fn is_full(&self) -> bool {
        self.pool.connections != 0 && self.open.load(Relaxed) >= self.pool.connections
    }

    /// Takes a slot for one more connection. Returns `None` if the limit is reached.
    pub fn try_open(self: &Arc<Self>) -> Option<OpenPlace> {
        let before = self.open.fetch_add(1, Relaxed);
        let place = OpenPlace(Arc::clone(self));
        (self.pool.connections == 0 || before < self.pool.connections).then_some(place)
    }
}

/// The slot of one open connection, released on drop.
#[derive(Debug)]
pub struct OpenPlace(Arc<UpstreamPlan>);

impl Drop for OpenPlace {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, Relaxed);
    }
}

/// Returns the URL of an origin and a base path.
fn url_text(origin: &Origin, base: &[u8]) -> String {
    let Origin { tls, authority } = origin;
    let scheme = if *tls { "https" } else { "http" };
    format!("{scheme}://{authority}{}", String::from_utf8_lossy(base))
}

pub(crate) fn upstream_timeouts(
    timeouts: &TimeoutsConfig,
    provider: Option<&ProviderConfig>,
) -> UpstreamTimeouts {
    let own = provider.map(|provider| provider.timeouts.clone()).unwrap_or_default();
    let preset = provider.and_then(|provider| provider.preset);
    let preset = preset.map(|name| name.preset().timeouts).unwrap_or_default();
    UpstreamTimeouts {
        connect: some(own.connect.unwrap_or(timeouts.connect)),
        tls: some(own.tls.unwrap_or(timeouts.tls)),
        first_byte: some(own.first_byte.or(preset.first_byte).unwrap_or(timeouts.first_byte)),
        idle: some(own.idle.or(preset.idle).unwrap_or(timeouts.idle)),
        total: some(own.total.unwrap_or(timeouts.total)),
    }
}

pub(crate) fn some(duration: egret_config::Duration) -> Option<Duration> {
    (!duration.is_zero()).then(|| duration.get())
}
