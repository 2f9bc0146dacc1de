//! Compiles a plan, and finds the problems of a configuration.

use std::net::SocketAddr;
use std::sync::Arc;

use egret_accounts::token::TokenEndpoint;
use egret_config::Problem;
use egret_flow::{FlowParts, Flows};
use egret_http1::{HeadLimits, TrailerNames};
use egret_match::named_fields::{NamedFields, NamedLists};
use egret_match::providers::{NamedProvider, ProviderTable, ProviderUrl};
use egret_message::authority::AuthorityError;
use egret_message::{KnownProvider, Origin, Protocols};
use egret_net::config::ProviderTlsConfig;
use egret_net::policy::EgressPolicy;
use egret_net::tls::ClientTls;
use egret_observe::failure::ErrorResponses;
use egret_prices::Prices;

use crate::config::{
    GatewayConfig, LimitsConfig, Parts, ProviderConfig, Providers, Rewrite, TimeoutsConfig, all_loopback,
};
use crate::interception::InterceptionPlan;
use crate::listeners::compile_listeners;
use crate::providers::{ProviderNetwork, Proxies, addresses, own_ports};
use crate::upstream::{Certified, OtherHosts, UpstreamPlan, some};
use crate::{ClientTimeouts, Plan, RequestIds, bytes, ok_or_push};

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
