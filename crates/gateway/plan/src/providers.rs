//! Compiles the providers of a plan: each with its endpoints, and the proxies through which they are reached.

use std::net::SocketAddr;
use std::sync::Arc;

use egret_config::Problem;
use egret_match::matching::HostPattern;
use egret_match::providers::ProviderUrl;
use egret_message::{Origin, Protocols};
use egret_net::config::ProxyConfig;
use egret_net::policy::EgressPolicy;
use egret_net::proxy::{Proxy, ProxyRules};
use egret_net::tls::ClientTls;
use egret_observe::counters::ProviderStats;

use crate::config::{GatewayConfig, ProviderConfig};
use crate::upstream::{UpstreamPlan, upstream_timeouts};
use crate::{Plan, ok_or_push};

/// Returns the addresses that this process listens on.
pub(crate) fn own_ports(config: &GatewayConfig, own: &[SocketAddr]) -> Vec<SocketAddr> {
    own.iter().copied().chain(addresses(config)).collect()
}

/// Returns the listeners' addresses of the Internet, which is all that matters to connections to providers.
pub(crate) fn addresses(config: &GatewayConfig) -> impl Iterator<Item = SocketAddr> {
    config.listen.iter().filter_map(|listen| listen.address.internet())
}

/// The proxies of all providers.
pub(crate) struct Proxies {
    /// The proxies of providers without their own, and of other hosts.
    pub general: Arc<ProxyRules>,
    /// Judges the addresses of the proxies.
    policy: Arc<EgressPolicy>,
}

impl Proxies {
    /// Compiles `gateway.upstream_proxy`, or takes it from a plan with the `same` network. `None` if there
    /// are problems.
    pub fn compile(
        config: &GatewayConfig,
        own: &[SocketAddr],
        same: Option<&Plan>,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let policy = Arc::new(EgressPolicy::for_proxies(own_ports(config, own)));
        let general = match (same, &config.upstream_proxy) {
            (Some(same), _) => Arc::clone(&same.other_hosts.proxies),
            (None, None) => Arc::default(),
            (None, Some(proxy)) => compile_proxies(proxy, "gateway.upstream_proxy", &policy, problems)?,
        };
        Some(Self { general, policy })
    }

    /// Returns the proxy through which a provider is reached.
    fn of(
        &self,
        name: &str,
        provider: &ProviderConfig,
        origin: &Origin,
        problems: &mut Vec<Problem>,
    ) -> Option<Arc<Proxy>> {
        let rules = match &provider.proxy {
            Some(own) => compile_proxies(own, &format!("providers.{name}.proxy"), &self.policy, problems)?,
            None => Arc::clone(&self.general),
        };
        rules.choose(origin.tls, &origin.authority)
    }
}

fn compile_proxies(
    config: &ProxyConfig,
    path: &str,
    policy: &Arc<EgressPolicy>,
    problems: &mut Vec<Problem>,
) -> Option<Arc<ProxyRules>> {
    let variable = |name: &str| std::env::var(name).ok();
    ok_or_push(ProxyRules::compile(config, path, policy, variable), problems).map(Arc::new)
}

/// Maximum number of endpoints of a provider, the one at `url` included.
const ENDPOINTS_MAX: usize = 16;

/// The parts of a plan on which all providers rest.
pub(crate) struct ProviderNetwork<'a> {
    pub config: &'a GatewayConfig,
    pub policy: &'a Arc<EgressPolicy>,
    pub proxies: &'a Proxies,
    pub upgrades: &'a Arc<Protocols>,
    pub workers: usize,
    pub previous: Option<&'a Plan>,
}

impl ProviderNetwork<'_> {
    /// Compiles the plan of the provider at `url`. Returns `None` if its TLS config has problems.
    pub fn provider(
        &self,
        name: &str,
        provider: &ProviderConfig,
        url: &ProviderUrl,
        problems: &mut Vec<Problem>,
    ) -> Option<UpstreamPlan> {
        let tls = ok_or_push(ClientTls::compile(&provider.tls, &format!("providers.{name}.tls")), problems);
        let tls = if url.origin.tls { Some(tls?) } else { None };
        let known = self.previous.and_then(|previous| previous.provider(name));
        let stats = known.map(|known| Arc::clone(&known.stats));
        let plan = UpstreamPlan {
            host_field: url.origin.host_field(),
            host_text: url.origin.authority.host.to_string().into(),
            path_prefix: url.path.clone(),
            hosts: ok_or_push(host_patterns(name, &provider.hosts), problems).unwrap_or_default(),
            tls,
            proxy: self.proxies.of(name, provider, &url.origin, problems),
            timeouts: upstream_timeouts(&self.config.timeouts, Some(provider)),
            pool: provider.pool.clone(),
            http: provider.http,
            policy: Arc::clone(self.policy),
            upgrades: upgrades_of(name, provider, self.upgrades, problems),
            error_format: provider.errors.format,
            configured: true,
            tally_number: 0,
            destination: Arc::default(),
            stats: stats.unwrap_or_else(|| ProviderStats::new(name, self.workers)),
            endpoints: Box::default(),
            endpoint_stats: None,
            open: Arc::default(),
            source: Some(provider.clone()),
            origin: url.origin.clone(),
        };
        let mut plan = plan.numbered();
        if !provider.endpoints.is_empty() {
            plan.destination = format!("{} {}", plan.destination, provider.endpoints.join(" ")).into();
        }
        let endpoints = self.endpoints(&plan, name, provider, problems);
        let has_several = !endpoints.is_empty();
        let endpoint_stats = has_several.then(|| plan.new_endpoint_stats(self.workers));
        Some(UpstreamPlan { endpoints, endpoint_stats, ..plan })
    }

    /// Compiles the other endpoints of the provider with this `plan`.
    fn endpoints(
        &self,
        plan: &UpstreamPlan,
        name: &str,
        provider: &ProviderConfig,
        problems: &mut Vec<Problem>,
    ) -> Box<[Arc<UpstreamPlan>]> {
        if provider.endpoints.len() >= ENDPOINTS_MAX {
            problems.push(Problem::new(format!("providers.{name}.endpoints"), "at most 15 are possible"));
        }
        let mut known = vec![(plan.origin.clone(), plan.path_prefix.clone())];
        let mut endpoints = Vec::new();
        for (number, text) in provider.endpoints.iter().enumerate().take(ENDPOINTS_MAX) {
            let url = match ProviderUrl::parse(text) {
                Err(error) => Err(error.to_string()),
                Ok(url) if url.origin.tls != plan.origin.tls => {
                    Err("must have the scheme of `url`".to_owned())
                }
                Ok(url) if known.contains(&(url.origin.clone(), url.path.clone())) => {
                    Err("is listed twice, or is the `url` of the provider".to_owned())
                }
                Ok(url) => Ok(url),
            };
            match url {
                Ok(url) => {
                    known.push((url.origin.clone(), url.path.clone()));
                    let proxy = self.proxies.of(name, provider, &url.origin, problems);
                    endpoints.push(Arc::new(plan.at_endpoint(url, proxy, self.workers)));
                }
                Err(why) => {
                    problems.push(Problem::new(format!("providers.{name}.endpoints[{number}]"), why));
                }
            }
        }
        endpoints.into()
    }
}

/// Parses the additional hosts of a provider.
fn host_patterns(provider: &str, hosts: &[String]) -> Result<Box<[HostPattern]>, Vec<Problem>> {
    let (mut patterns, mut problems) = (Vec::new(), Vec::new());
    for (number, host) in hosts.iter().enumerate() {
        match HostPattern::parse(host) {
            Ok(pattern) => patterns.push(pattern),
            Err(why) => {
                problems.push(Problem::new(format!("providers.{provider}.hosts[{number}]"), why.to_string()));
            }
        }
    }
    if problems.is_empty() { Ok(patterns.into()) } else { Err(problems) }
}

/// Returns the protocols that connections to a provider may be upgraded to: those of its own config,
/// otherwise the general ones.
fn upgrades_of(
    name: &str,
    provider: &ProviderConfig,
    others: &Arc<Protocols>,
    problems: &mut Vec<Problem>,
) -> Arc<Protocols> {
    let Some(names) = &provider.upgrades else { return Arc::clone(others) };
    Arc::new(Protocols::compile(names, &format!("providers.{name}.upgrades"), problems))
}
