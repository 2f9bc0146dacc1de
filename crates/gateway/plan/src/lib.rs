//! The plan: the configuration in the form that the workers use. It is validated, compiled once, shared and
//! never changed.
//!
//! A reload compiles a new plan beside the running one. Unchanged parts, such as a provider with its
//! connections and counters, are carried over from the old plan, so nothing of them is lost.

pub mod config;
pub mod interception;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use egret_accounts::token::TokenEndpoint;
use egret_clients::{Clients, Issuer};
use egret_clock::Moment;
use egret_config::Problem;
use egret_diagnosis::{TalliedOrigin, Tallies};
use egret_flow::{FlowParts, Flows};
use egret_http1::{HeadLimits, Method, TrailerNames};
use egret_match::matching::{HostPattern, bare};
use egret_match::named_fields::{NamedFields, NamedLists};
use egret_match::providers::{NamedProvider, ProviderTable, ProviderUrl};
use egret_match::rewrite::Responder;
use egret_message::authority::{Authority, AuthorityError, Host};
use egret_message::{KnownProvider, ListenAddress, Origin, Protocols};
use egret_net::config::{ProviderTlsConfig, ProxyConfig};
use egret_net::policy::{EgressPolicy, EgressTarget};
use egret_net::proxy::handshake::SOCKS_TEXT_BYTES_MAX;
use egret_net::proxy::{Proxy, ProxyRules};
use egret_net::tls::{ClientAuthorities, ClientTls, ServerTls};
use egret_observe::counters::ProviderStats;
use egret_observe::endpoint_stats::EndpointStats;
use egret_observe::failure::ErrorResponses;
use egret_observe::failure::config::ErrorFormat;
use egret_observe::hosts::HostStats;
use egret_observe::stats::ProviderSnapshot;
use egret_presets::Preset;
use egret_prices::Prices;

use crate::config::{
    GatewayConfig, HttpVersions, LimitsConfig, ListenConfig, OnClientClose, Parts, PoolConfig,
    ProviderConfig, Providers, RequestIdsConfig, Rewrite, Scheme, TimeoutsConfig, all_loopback,
};
use crate::interception::InterceptionPlan;

/// The name under which all hosts without a configured provider are counted.
pub const OTHER_HOSTS: &str = "-";

/// The compiled configuration.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "the keys are independent of each other")]
pub struct Plan {
    /// The configured providers, in the order of their numbers.
    pub providers: Vec<Arc<UpstreamPlan>>,
    /// Providers as reached by accounts with a client certificate.
    pub certified: Vec<Certified>,
    /// The names and URLs of the providers, by the same numbers.
    pub table: ProviderTable,
    /// The listening addresses.
    pub listeners: Vec<ListenerPlan>,
    /// The settings of hosts without a configured provider.
    pub other_hosts: Arc<OtherHosts>,
    /// Timeouts of waits for clients.
    pub timeouts: ClientTimeouts,
    /// Limits for clients and providers.
    pub limits: LimitsConfig,
    /// Limits of a head.
    pub head_limits: HeadLimits,
    /// Trailer fields that are forwarded.
    pub trailers: TrailerNames,
    /// Trailer fields of gRPC calls that are forwarded: all that may be trailers, because they are metadata
    /// of the application.
    pub grpc_trailers: TrailerNames,
    /// Header fields with a meaning given by the config.
    pub named_fields: NamedFields,
    /// `true` if responses are rewritten for clients that name the provider by base URL.
    pub rewrites: bool,
    /// `true` if providers receive the client's address in `X-Forwarded-For`.
    pub forwarded_for: bool,
    /// `true` if clients may speak HTTP/2.
    pub http2: bool,
    /// Treatment of calls whose client closes its connection. `None` depends on the method.
    on_client_close: Option<OnClientClose>,
    /// `true` if the endpoints of all exchanges are listed.
    pub discovers: bool,
    /// Which requests have an id, and who learns it.
    pub request_ids: RequestIds,
    /// The gateway's own error responses.
    pub errors: ErrorResponses,
    /// The prices of language models.
    pub prices: Arc<Prices>,
    /// The flows that apply to exchanges.
    pub flows: Flows,
    /// The tunnels that the gateway serves itself. `None` if it relays all of them.
    pub interception: Option<InterceptionPlan>,
    /// Changes with each config of which recorded requests must know nothing, see `begin_generation` of the
    /// gateway.
    pub generation: u64,
    config: GatewayConfig,
}

/// Which requests have an id, and who learns it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestIds {
    /// No request has one.
    Off,
    /// Every request has one, and the client learns it.
    Kept,
    /// As `Kept`, and the provider learns those that the gateway makes.
    Sent,
}

impl RequestIds {
    fn of(config: &RequestIdsConfig) -> Self {
        match config {
            ids if !ids.enabled => Self::Off,
            ids if ids.send => Self::Sent,
            _ => Self::Kept,
        }
    }
}

/// The ways in which the clients of a listener name a provider.
#[derive(Debug, Clone, Copy)]
pub enum ListenerRouting {
    /// The usual ones.
    Usual,
    /// Query parameters as well.
    WithQuery,
    /// None: the system redirects connections here whose clients know nothing of a gateway.
    Redirected,
    /// One: the handshake of SOCKS 5 names it, as a CONNECT does.
    Socks,
}

/// One listening address.
#[derive(Debug)]
pub struct ListenerPlan {
    /// The bound address.
    pub address: ListenAddress,
    /// The provider that receives every request of this listener.
    pub provider: Option<usize>,
    /// The provider that receives the `https` requests instead.
    pub https_provider: Option<usize>,
    /// `true` if these providers get the client's `Host`.
    pub keep_host: bool,
    /// `true` if requests that name no scheme count as `https`.
    pub secure: bool,
    /// The ways in which clients name a provider, unless there is only one.
    pub routing: ListenerRouting,
    /// The TLS config for clients, if the listener uses TLS.
    pub tls: Option<ServerTls>,
    /// The clients that may use the listener, if they have to prove who they are.
    pub clients: Option<Arc<Clients>>,
    /// Values of `Host` that name the gateway itself, in lower case.
    own_hosts: Vec<Box<[u8]>>,
}

/// Timeouts of waits for clients. `None` is unlimited.
#[derive(Debug, Clone, Copy)]
pub struct ClientTimeouts {
    /// Time for a request's head, from its first byte.
    pub head: Option<Duration>,
    /// Time between two requests of a connection.
    pub keep_alive: Option<Duration>,
    /// Time within which a client that has closed its sending side must take more of its response.
    pub half_close: Option<Duration>,
    /// Time for exchanges in flight when the gateway stops.
    pub drain: Option<Duration>,
    /// Time without a byte from or to a client.
    pub idle: Option<Duration>,
}

/// Timeouts of waits for a provider. `None` is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UpstreamTimeouts {
    /// Time for a connection, including name resolution.
    pub connect: Option<Duration>,
    /// Time for the TLS handshake.
    pub tls: Option<Duration>,
    /// Time until the first byte of the response.
    pub first_byte: Option<Duration>,
    /// Time without a byte from or to the provider.
    pub idle: Option<Duration>,
    /// Time for the whole call.
    pub total: Option<Duration>,
}

/// A provider, or a host without one, as the workers reach it.
#[derive(Debug, Clone)]
pub struct UpstreamPlan {
    /// The scheme, the host and the port of its URL.
    pub origin: Origin,
    /// The value of `Host` in requests to it.
    pub host_field: Box<[u8]>,
    /// The host without a port, in lower case.
    host_text: Box<str>,
    /// The base path of every request, without a slash at its end.
    pub path_prefix: Box<[u8]>,
    /// Other hosts that credentials may be sent to, from `hosts` in the config, in lower case.
    hosts: Box<[HostPattern]>,
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
    open: Arc<AtomicU32>,
    /// The config that it was compiled from. `None` for a host that is not configured.
    source: Option<ProviderConfig>,
}

/// A provider as reached by an account with a client certificate. Its connections are not shared with other
/// accounts.
#[derive(Debug)]
pub struct Certified {
    /// The number of the account.
    account: usize,
    /// The provider, reached with the account's certificate.
    pub upstream: Arc<UpstreamPlan>,
}

/// The settings of hosts without a configured provider.
#[derive(Debug)]
pub struct OtherHosts {
    tls: ClientTls,
    proxies: Arc<ProxyRules>,
    timeouts: UpstreamTimeouts,
    policy: Arc<EgressPolicy>,
    upgrades: Arc<Protocols>,
    /// The counters of the exchanges with each host.
    pub stats: Arc<HostStats>,
}

impl OtherHosts {
    /// Compiles the settings of hosts without a configured provider. The statistics of `previous` are kept.
    fn compile(
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
    fn numbered(mut self) -> Self {
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
    fn with_tls(&self, tls: &ClientTls) -> Self {
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
    fn at_endpoint(&self, url: ProviderUrl, proxy: Option<Arc<Proxy>>, workers: usize) -> Self {
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
    fn endpoint_urls(&self) -> Box<[ProviderUrl]> {
        let url =
            |plan: &Arc<Self>| ProviderUrl { origin: plan.origin.clone(), path: plan.path_prefix.clone() };
        self.endpoints.iter().map(url).collect()
    }

    fn new_endpoint_stats(&self, workers: usize) -> Arc<EndpointStats> {
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

/// Returns all problems of a configuration: dangling names, bad URLs, unreadable certificates, rules without
/// effect.
pub fn validate(parts: Parts<'_>) -> Vec<Problem> {
    Plan::compile(parts, &[], 1, None).err().unwrap_or_default()
}

impl Plan {
    /// Compiles a configuration. Its listeners are bound, so their addresses are real and no port is 0,
    /// unless the config is only validated. Unchanged parts of `previous` are kept.
    pub fn compile(
        parts: Parts<'_>,
        own: &[SocketAddr],
        workers: usize,
        previous: Option<&Self>,
    ) -> Result<Self, Vec<Problem>> {
        let Parts { gateway: config, providers, isolated, .. } = parts;
        let mut problems = Vec::new();
        check_limits(&config.limits, &mut problems);
        let same_network = previous.filter(|previous| reaches_alike(&previous.config, config));
        let policy = match same_network {
            Some(previous) => Some(Arc::clone(&previous.other_hosts.policy)),
            None => ok_or_push(compile_policy(config, own, isolated), &mut problems).map(Arc::new),
        };
        let proxies = Proxies::compile(config, own, same_network, &mut problems);
        let origins = provider_origins(providers, &mut problems);
        let listeners = compile_listeners(config, providers, previous, &mut problems);
        let named_fields = named_fields(config, &mut problems);
        let errors = ErrorResponses::compile(&config.errors, &mut problems);
        let upgrades = Arc::new(Protocols::compile(&config.upgrades, "gateway.upgrades", &mut problems));
        let prices = Arc::new(ok_or_push(Prices::compile(parts.prices), &mut problems).unwrap_or_default());
        let flows = compile_flows(parts, &origins, &prices, workers, previous);
        let flows = ok_or_push(flows, &mut problems).unwrap_or_default();
        let interception = InterceptionPlan::compile(parts.interception, &mut problems);
        let (Some(policy), Some(proxies)) = (policy, proxies) else { return Err(problems) };

        let network = ProviderNetwork {
            config,
            policy: &policy,
            proxies: &proxies,
            upgrades: &upgrades,
            workers,
            previous,
        };
        let mut plans: Vec<Arc<UpstreamPlan>> = Vec::with_capacity(origins.len());
        let mut named = Vec::with_capacity(origins.len());
        for (name, provider, url) in origins {
            let known = same_network.and_then(|previous| previous.provider(name));
            if let Some(known) =
                known.filter(|known| known.source.as_ref() == Some(provider) && !reads_files(provider))
            {
                named.push(NamedProvider {
                    name: name.as_str().into(),
                    url,
                    endpoints: known.endpoint_urls(),
                });
                plans.push(Arc::clone(known));
                continue;
            }
            let Some(plan) = network.provider(name, provider, &url, &mut problems) else { continue };
            named.push(NamedProvider { name: name.as_str().into(), url, endpoints: plan.endpoint_urls() });
            plans.push(Arc::new(plan));
        }
        let same_hosts = same_network.map(|same| Arc::clone(&same.other_hosts));
        let other_hosts = same_hosts.or_else(|| {
            let rules = proxies.general;
            let compiled = OtherHosts::compile(config, policy, rules, upgrades, workers, previous);
            ok_or_push(compiled, &mut problems)
        });
        let certified = certified(&flows, &plans, &mut problems);
        check_token_endpoints(&flows, &mut problems);
        let (Some(other_hosts), true) = (other_hosts, problems.is_empty()) else { return Err(problems) };
        other_hosts.stats.set_max(usize::try_from(config.limits.hosts_counted).unwrap_or(usize::MAX));
        Ok(Self {
            providers: plans,
            certified,
            table: ProviderTable::new(named),
            listeners,
            other_hosts,
            timeouts: client_timeouts(&config.timeouts),
            limits: config.limits.clone(),
            head_limits: head_limits(&config.limits),
            trailers: TrailerNames::new(config.trailers.iter().map(String::as_str)),
            grpc_trailers: TrailerNames::new(["*"]),
            named_fields,
            rewrites: config.rewrite == Rewrite::On,
            forwarded_for: config.forwarded_for,
            http2: config.http2,
            on_client_close: config.on_client_close,
            discovers: config.discovery,
            request_ids: RequestIds::of(&config.request_ids),
            errors,
            prices,
            flows,
            interception,
            generation: previous.map_or(0, |previous| previous.generation),
            config: config.clone(),
        })
    }

    /// Returns the maximum number of bytes that all gathered bodies together may take.
    pub fn gathered_bytes(&self) -> usize {
        bytes(self.limits.gathered.bytes())
    }

    /// Returns `true` if a call with this method goes on although its client has closed the connection.
    pub fn finishes_without_client(&self, method: Method) -> bool {
        self.on_client_close.map_or(!method.is_safe(), |choice| choice == OnClientClose::Finish)
    }

    /// Returns the listener with that address, if the plan still has it.
    pub fn listener(&self, address: ListenAddress) -> Option<&ListenerPlan> {
        self.listeners.iter().find(|listener| listener.address == address)
    }

    /// Returns the issuers whose tokens prove clients, and of several with the same keys the first.
    pub fn issuers(&self) -> Vec<Arc<Issuer>> {
        let mut issuers: Vec<Arc<Issuer>> = Vec::new();
        for issuer in self.listeners.iter().filter_map(|listener| listener.clients.as_ref()?.issuer()) {
            if !issuers.iter().any(|known| known.shares_keys(issuer)) {
                issuers.push(Arc::clone(issuer));
            }
        }
        issuers
    }

    /// Returns the number, among the upstreams of a view, of `provider` as that account reaches it, if the
    /// account has a client certificate.
    pub fn certified(&self, account: usize, provider: &str) -> Option<usize> {
        let is_it = |certified: &Certified| {
            certified.account == account && certified.upstream.stats.name() == provider
        };
        Some(self.providers.len() + self.certified.iter().position(is_it)?)
    }

    fn provider(&self, name: &str) -> Option<&Arc<UpstreamPlan>> {
        self.table.by_name(name.as_bytes()).map(|index| &self.providers[index])
    }
}

impl ListenerPlan {
    /// Returns `true` if `host`, the value of a `Host` field, names the gateway itself.
    pub fn is_own_host(&self, host: &[u8]) -> bool {
        self.own_hosts.iter().any(|own| own.eq_ignore_ascii_case(host))
    }

    /// Returns `true` if `host`, the value of a `Host` field, is the address that the client has connected
    /// to, on a wildcard listener: every address of this machine names the gateway there. Only the connection
    /// knows its `local` one.
    pub fn is_own_address(&self, host: &[u8], local: impl FnOnce() -> Option<SocketAddr>) -> bool {
        let canonical = |address: SocketAddr| (address.ip().to_canonical(), address.port());
        self.address.internet().is_some_and(|address| address.ip().is_unspecified())
            && Authority::parse(host, Some(80))
                .ok()
                .and_then(|authority| authority.socket_address())
                .is_some_and(|address| local().is_some_and(|local| canonical(local) == canonical(address)))
    }
}

/// Returns the values of `Host` that name the gateway on the listener at `address`. A Unix socket has no
/// address to name, so its clients write `localhost`, mostly without a port.
fn own_hosts(address: ListenAddress, names: &[String]) -> Vec<Box<[u8]>> {
    let address = address.internet();
    let port = address.map_or(80, |address| address.port());
    let mut hosts: Vec<String> = vec!["localhost".to_owned()];
    hosts.extend(address.map(bracketed));
    if address.is_some_and(|address| address.ip().is_unspecified()) {
        hosts.extend(["127.0.0.1".to_owned(), "[::1]".to_owned()]);
    }
    hosts.extend(names.iter().map(|name| name.to_ascii_lowercase()));
    let with_port = hosts.iter().map(|host| format!("{host}:{port}"));
    let without_port = hosts.iter().filter(|_| port == 80).cloned();
    with_port.chain(without_port).map(|host| host.into_bytes().into_boxed_slice()).collect()
}

fn bracketed(address: SocketAddr) -> String {
    if address.is_ipv6() { format!("[{}]", address.ip()) } else { address.ip().to_string() }
}

/// Compiles the egress policy, which denies connections to the gateway's own ports.
fn compile_policy(
    config: &GatewayConfig,
    own: &[SocketAddr],
    isolated: bool,
) -> Result<EgressPolicy, Vec<Problem>> {
    let is_exposed = !all_loopback(&config.listen);
    let own = own_ports(config, own);
    let policy = EgressPolicy::compile(&config.egress, is_exposed, config.open_proxy, own)?;
    Ok(if isolated { policy.isolated() } else { policy })
}

/// Returns the addresses that this process listens on.
fn own_ports(config: &GatewayConfig, own: &[SocketAddr]) -> Vec<SocketAddr> {
    own.iter().copied().chain(addresses(config)).collect()
}

/// The proxies of all providers.
struct Proxies {
    /// The proxies of providers without their own, and of other hosts.
    general: Arc<ProxyRules>,
    /// Judges the addresses of the proxies.
    policy: Arc<EgressPolicy>,
}

impl Proxies {
    /// Compiles `gateway.upstream_proxy`, or takes it from a plan with the `same` network. `None` if there
    /// are problems.
    fn compile(
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

/// Returns the URL of an origin and a base path.
fn url_text(origin: &Origin, base: &[u8]) -> String {
    let Origin { tls, authority } = origin;
    let scheme = if *tls { "https" } else { "http" };
    format!("{scheme}://{authority}{}", String::from_utf8_lossy(base))
}

/// Maximum number of endpoints of a provider, the one at `url` included.
const ENDPOINTS_MAX: usize = 16;

/// The parts of a plan on which all providers rest.
struct ProviderNetwork<'a> {
    config: &'a GatewayConfig,
    policy: &'a Arc<EgressPolicy>,
    proxies: &'a Proxies,
    upgrades: &'a Arc<Protocols>,
    workers: usize,
    previous: Option<&'a Plan>,
}

impl ProviderNetwork<'_> {
    /// Compiles the plan of the provider at `url`. Returns `None` if its TLS config has problems.
    fn provider(
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

/// Maximum number of listeners, and of names of the gateway.
const LISTENERS_MAX: usize = 1_000;
const NAMES_MAX: usize = 256;

fn compile_listeners(
    config: &GatewayConfig,
    providers: &Providers,
    previous: Option<&Plan>,
    problems: &mut Vec<Problem>,
) -> Vec<ListenerPlan> {
    if config.listen.is_empty() {
        problems
            .push(Problem::new("gateway.listen", "at least one address is required, like `127.0.0.1:8000`"));
    }
    let counts = [("listen", config.listen.len(), LISTENERS_MAX), ("names", config.names.len(), NAMES_MAX)];
    for (key, _, max) in counts.iter().filter(|(_, count, max)| count > max) {
        problems.push(Problem::new(format!("gateway.{key}"), format!("at most {max} are possible")));
    }
    let names = config.names.get(..NAMES_MAX).unwrap_or(&config.names);
    let mut issuers = previous.map(Plan::issuers).unwrap_or_default();
    let mut listeners: Vec<ListenerPlan> = Vec::new();
    for (number, listen) in config.listen.iter().enumerate().take(LISTENERS_MAX) {
        let ListenConfig { address, provider, https_provider, keep_host, scheme, .. } = listen;
        let is_fixed = address.internet().is_none_or(|address| address.port() != 0);
        if is_fixed && listeners.iter().any(|known| known.address == *address) {
            problems.push(Problem::new(
                format!("gateway.listen[{number}]"),
                format!("{address} is listed twice"),
            ));
        }
        let mut find = |key: &str, name: &Option<String>| {
            let name = name.as_ref()?;
            let index = providers.keys().position(|known| known == name);
            if index.is_none() {
                let path = format!("gateway.listen[{number}].{key}");
                let names = providers.keys().map(String::as_str);
                problems.push(Problem::unknown_name(path, "provider", name, names));
            }
            index
        };
        let (http, https) = (find("provider", provider), find("https_provider", https_provider));
        let at = format!("gateway.listen[{number}]");
        check_keys(listen, &at, problems);
        check_passwords(listen, &at, problems);
        let (tls, clients) = compile_identity(listen, config.http2, &at, &issuers, problems);
        let issuer = clients.as_ref().and_then(|clients| clients.issuer());
        let others = listeners.iter().filter_map(|other| other.clients.as_ref()?.issuer());
        if issuer.is_some_and(|issuer| others.clone().any(|other| issuer.contradicts(other))) {
            let message =
                "another listener has the same issuer and keys: write the same `token` and `ca` for both";
            problems.push(Problem::new(format!("{at}.clients.jwt"), message));
        }
        issuers.extend(issuer.cloned());
        listeners.push(ListenerPlan {
            address: *address,
            provider: http,
            https_provider: https,
            keep_host: *keep_host,
            secure: *scheme == Scheme::Https,
            routing: routing(listen),
            tls,
            clients,
            own_hosts: own_hosts(*address, names),
        });
    }
    listeners
}

/// Reports the keys of the listener at `at` that do not go with its other keys.
fn check_keys(listen: &ListenConfig, at: &str, problems: &mut Vec<Problem>) {
    let mut forbid = |is_forbidden: bool, keys: &[(&str, bool)], message: &str| {
        for (key, _) in keys.iter().filter(|(_, is_given)| *is_given && is_forbidden) {
            problems.push(Problem::new(format!("{at}.{key}"), message));
        }
    };
    let has_provider = listen.provider.is_some();
    let (provider, tls) = (("provider", has_provider), ("tls", listen.tls.is_some()));
    let by_query = ("route_by_query", listen.route_by_query);
    let has_users = listen.clients.as_ref().is_some_and(|clients| !clients.users.is_empty());
    let is_unix = listen.address.unix().is_some();
    forbid(
        !is_unix,
        &[
            ("unix_mode", listen.unix_mode.is_some()),
            ("unix_group", listen.unix_group.is_some()),
            ("clients.users", has_users),
        ],
        "only allowed on a Unix socket, a listener with `address: unix:PATH`",
    );
    forbid(
        is_unix,
        &[("redirect", listen.redirect)],
        "not allowed on a Unix socket: the system redirects connections of the Internet alone",
    );
    forbid(
        !cfg!(target_os = "linux"),
        &[("redirect", listen.redirect)],
        "only allowed on Linux: other systems do not tell which address the client has called",
    );
    forbid(
        !has_provider,
        &[("https_provider", listen.https_provider.is_some()), ("keep_host", listen.keep_host)],
        "only allowed on a listener with a `provider`",
    );
    forbid(
        has_provider,
        &[by_query],
        "not allowed on a listener with a `provider`, which receives every request",
    );
    forbid(
        listen.redirect,
        &[provider, by_query, tls, ("clients", listen.clients.is_some())],
        "not allowed with `redirect`: the clients of such a listener know nothing of it",
    );
    forbid(
        listen.socks5,
        &[provider, ("scheme", listen.scheme != Scheme::Http), by_query, ("redirect", listen.redirect), tls],
        "not allowed with `socks5`: the clients of such a listener only open tunnels",
    );
    if let Err(error) = listen.unix_rights() {
        problems.push(Problem::new(format!("{at}.unix_group"), error.to_string()));
    }
}

/// Reports the proofs of the listener at `at` that are too long for a password of SOCKS.
fn check_passwords(listen: &ListenConfig, at: &str, problems: &mut Vec<Problem>) {
    let Some(clients) = listen.clients.as_ref().filter(|_| listen.socks5) else { return };
    if clients.jwt.is_some() {
        let message =
            "not allowed with `socks5`: a JSON Web Token is too long for a password there (RFC 1929)";
        problems.push(Problem::new(format!("{at}.clients.jwt"), message));
    }
    for (key, tokens) in [("tokens", &clients.tokens), ("old_tokens", &clients.old_tokens)] {
        for (name, _) in tokens.iter().filter(|(_, token)| token.expose().len() > SOCKS_TEXT_BYTES_MAX) {
            let message = "too long for `socks5`: a password there has at most 255 characters (RFC 1929)";
            problems.push(Problem::new(format!("{at}.clients.{key}.{name}"), message));
        }
    }
}

/// Returns the ways in which the clients of a listener name a provider. A valid listener has at most one of
/// the keys.
fn routing(listen: &ListenConfig) -> ListenerRouting {
    if listen.socks5 {
        ListenerRouting::Socks
    } else if listen.redirect {
        ListenerRouting::Redirected
    } else if listen.route_by_query {
        ListenerRouting::WithQuery
    } else {
        ListenerRouting::Usual
    }
}

/// Compiles what a listener shows to its clients, and what it asks of them.
fn compile_identity(
    listen: &ListenConfig,
    http2: bool,
    at: &str,
    issuers: &[Arc<Issuer>],
    problems: &mut Vec<Problem>,
) -> (Option<ServerTls>, Option<Arc<Clients>>) {
    let at_clients = format!("{at}.clients");
    let at_ca = format!("{at_clients}.ca");
    let file = listen.clients.as_ref().and_then(|clients| clients.ca.as_deref());
    let authorities = file.map(|file| ClientAuthorities { file, at: &at_ca });
    let tls = listen.tls.as_ref().and_then(|tls| {
        ok_or_push(ServerTls::compile(tls, &format!("{at}.tls"), authorities, http2), problems)
    });
    let clients = listen.clients.as_ref().and_then(|clients| {
        let authorities = tls.as_ref().and_then(ServerTls::client_authorities);
        let has_tls = listen.tls.is_some();
        ok_or_push(Clients::compile(clients, &at_clients, authorities, has_tls, issuers), problems)
    });
    (tls, clients.map(Arc::new))
}

fn head_limits(limits: &LimitsConfig) -> HeadLimits {
    HeadLimits {
        start_line: bytes(limits.start_line.bytes()),
        head: bytes(limits.head.bytes()),
        fields: usize::from(limits.fields),
    }
}

fn check_limits(limits: &LimitsConfig, problems: &mut Vec<Problem>) {
    let mut check = |key: &str, good: bool, message: &str| {
        if !good {
            problems.push(Problem::new(format!("gateway.limits.{key}"), message));
        }
    };
    check("connections", limits.connections >= 1, "must be at least 1");
    check("fields", (1..=256).contains(&limits.fields), "must be from 1 to 256");
    check("head", (1024..=262_144).contains(&limits.head.bytes()), "must be from `1KiB` to `256KiB`");
    check("start_line", limits.start_line.bytes() >= 64, "must be at least `64B`");
    check(
        "start_line",
        limits.start_line <= limits.head,
        "must not exceed `limits.head`: the start line is part of the head",
    );
    check("gathered", limits.gathered.bytes() >= 1 << 20, "must be at least `1MiB`");
    check("dynamic_upstreams", limits.dynamic_upstreams >= 1, "must be at least 1");
}

/// A provider's name, config and URL.
type ProviderOrigin<'a> = (&'a String, &'a ProviderConfig, ProviderUrl);

fn provider_origins<'a>(providers: &'a Providers, problems: &mut Vec<Problem>) -> Vec<ProviderOrigin<'a>> {
    let mut origins = Vec::with_capacity(providers.len());
    for (name, provider) in providers {
        check_provider_name(name, problems);
        if !(1..=1_000).contains(&provider.pool.streams_per_connection) {
            let at = format!("providers.{name}.pool.streams_per_connection");
            problems.push(Problem::new(at, "must be from 1 to 1000"));
        }
        if provider.base_url().is_empty() {
            problems.push(missing_url(name, provider));
            continue;
        }
        match ProviderUrl::parse(provider.base_url()) {
            Ok(url) => origins.push((name, provider, url)),
            Err(error) => problems.push(Problem::new(format!("providers.{name}.url"), error.to_string())),
        }
    }
    origins
}

/// The problem of a provider without a URL.
fn missing_url(name: &str, provider: &ProviderConfig) -> Problem {
    let example = provider.preset.and_then(|preset| preset.preset().url_example.as_deref());
    let message = match example {
        Some(example) => {
            format!("the key `url` is missing: this API has another one for each customer, like `{example}`")
        }
        None => "the key `url` is missing".to_owned(),
    };
    Problem::new(format!("providers.{name}"), message)
}

/// Returns `true` if both configs reach all hosts in the same way, apart from the settings of the individual
/// providers.
fn reaches_alike(before: &GatewayConfig, now: &GatewayConfig) -> bool {
    before.egress == now.egress
        && before.open_proxy == now.open_proxy
        && addresses(before).eq(addresses(now))
        && all_loopback(&before.listen) == all_loopback(&now.listen)
        && before.timeouts == now.timeouts
        && before.upgrades == now.upgrades
        && before.upstream_proxy == now.upstream_proxy
        // A reload reads the file again.
        && now.upstream_proxy.as_ref().is_none_or(|proxy| proxy.ca.is_none())
}

/// Returns the listeners' addresses of the Internet, which is all that matters to connections to providers.
fn addresses(config: &GatewayConfig) -> impl Iterator<Item = SocketAddr> {
    config.listen.iter().filter_map(|listen| listen.address.internet())
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

/// Compiles the header fields to which the config gives a meaning.
fn named_fields(config: &GatewayConfig, problems: &mut Vec<Problem>) -> NamedFields {
    let ids = &config.request_ids;
    let lists = NamedLists {
        scheme: &config.scheme_fields,
        private: &config.private_fields,
        request_id: if ids.enabled { &ids.fields } else { &[] },
        compat: config.compat.as_deref(),
    };
    NamedFields::compile(lists, problems)
}

/// Returns the origin of an account's token endpoint.
pub fn token_origin(endpoint: &TokenEndpoint) -> Result<Origin, AuthorityError> {
    let TokenEndpoint { tls, authority, .. } = endpoint;
    Origin::parse(*tls, authority.as_bytes())
}

/// Reports token endpoints with an invalid host.
fn check_token_endpoints(flows: &Flows, problems: &mut Vec<Problem>) {
    for account in flows.accounts.iter() {
        let mut endpoints = account.token().into_iter().flat_map(|token| token.endpoints());
        if let Some(error) = endpoints.find_map(|endpoint| token_origin(endpoint).err()) {
            let (name, kind) = (account.name(), account.kind());
            let key = if kind == "oauth2" { ".token_url" } else { "" };
            let at = format!("accounts.{name}.{kind}{key}");
            problems.push(Problem::new(at, format!("invalid host: {error}")));
        }
    }
}

/// Returns the upstreams of accounts with a client certificate.
fn certified(flows: &Flows, plans: &[Arc<UpstreamPlan>], problems: &mut Vec<Problem>) -> Vec<Certified> {
    let mut certified = Vec::new();
    for (number, account) in flows.accounts.iter().enumerate() {
        let Some(shown) = account.certificate() else { continue };
        for plan in plans.iter().filter(|plan| account.is_for(plan.stats.name())) {
            let tls = plan.source.as_ref().map(|source| source.tls.clone()).unwrap_or_default();
            let tls = ProviderTlsConfig {
                certificate: Some(shown.certificate.clone()),
                key: Some(shown.key.clone()),
                ..tls
            };
            let at = format!("accounts.{}.certificate", account.name());
            let Some(tls) = ok_or_push(ClientTls::compile(&tls, &at), problems) else { break };
            certified.push(Certified { account: number, upstream: Arc::new(plan.with_tls(&tls)) });
        }
    }
    certified
}

fn compile_flows(
    parts: Parts<'_>,
    origins: &[ProviderOrigin<'_>],
    prices: &Arc<Prices>,
    workers: usize,
    previous: Option<&Plan>,
) -> Result<Flows, Vec<Problem>> {
    let host = |name: &String| {
        let known = origins.iter().find(|(known, _, _)| *known == name);
        known.map(|(_, _, url)| url.origin.authority.host.to_string())
    };
    let hosts: Vec<Option<String>> = parts.providers.keys().map(host).collect();
    let named = parts.providers.iter().zip(&hosts);
    let known: Vec<_> = named
        .map(|((name, provider), host)| KnownProvider {
            name,
            host: host.as_deref(),
            tls: provider.base_url().starts_with("https://"),
        })
        .collect();
    let Parts { providers, flows, quotas, accounts, stores, shared, data_dir, exports, .. } = parts;
    let presets: Vec<_> = providers.values().map(|provider| provider.preset).collect();
    let parts = FlowParts {
        flows,
        quotas,
        accounts,
        providers: &known,
        presets: &presets,
        prices,
        stores,
        shared,
        data_dir,
        exports,
    };
    Flows::compile(parts, workers, previous.map(|previous| &previous.flows))
}

/// Checks a provider's name. It is a path segment of the gateway's own URL and a metrics label, so only plain
/// characters are allowed.
fn check_provider_name(name: &str, problems: &mut Vec<Problem>) {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    if !starts_well || name.len() > 64 || !name.bytes().all(plain) {
        problems.push(Problem::new(
            format!("providers.{name}"),
            "a provider's name is part of URLs: use up to 64 letters, digits, `-`, `_` and `.`, starting with a letter or digit",
        ));
    }
}

/// Returns `true` if the provider's config refers to files, which a reload must read again even if the config
/// has not changed.
fn reads_files(provider: &ProviderConfig) -> bool {
    let proxy_ca = provider.proxy.as_ref().and_then(|proxy| proxy.ca.as_ref());
    provider.tls.ca.is_some() || provider.tls.certificate.is_some() || proxy_ca.is_some()
}

fn client_timeouts(timeouts: &TimeoutsConfig) -> ClientTimeouts {
    ClientTimeouts {
        head: some(timeouts.head),
        keep_alive: some(timeouts.keep_alive),
        half_close: some(timeouts.half_close),
        drain: some(timeouts.drain),
        idle: some(timeouts.idle),
    }
}

fn upstream_timeouts(timeouts: &TimeoutsConfig, provider: Option<&ProviderConfig>) -> UpstreamTimeouts {
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

fn some(duration: egret_config::Duration) -> Option<Duration> {
    (!duration.is_zero()).then(|| duration.get())
}

fn bytes(size: u64) -> usize {
    usize::try_from(size).unwrap_or(usize::MAX)
}

fn ok_or_push<T>(result: Result<T, Vec<Problem>>, problems: &mut Vec<Problem>) -> Option<T> {
    match result {
        Ok(value) => Some(value),
        Err(found) => {
            problems.extend(found);
            None
        }
    }
}
