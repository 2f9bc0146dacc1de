//! The listeners of a plan: their addresses, the names by which clients mean the gateway, and what clients
//! must show there.

use std::net::SocketAddr;
use std::sync::Arc;

use egret_clients::{Clients, Issuer};
use egret_config::Problem;
use egret_message::ListenAddress;
use egret_net::proxy::handshake::SOCKS_TEXT_BYTES_MAX;
use egret_net::tls::{ClientAuthorities, ServerTls};

use crate::config::{GatewayConfig, ListenConfig, Providers, Scheme};
use crate::{ListenerPlan, ListenerRouting, Plan, ok_or_push};

/// Maximum number of listeners, and of names of the gateway.
const LISTENERS_MAX: usize = 1_000;
const NAMES_MAX: usize = 256;

pub(crate) fn compile_listeners(
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
