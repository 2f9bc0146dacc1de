//! The config key `interception`: the hosts whose HTTPS is decrypted on its way.

use egret_config::Problem;
use egret_message::authority::Host;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use egret_message::host_pattern::{HostPattern, HostPatterns};

/// Maximum number of `hosts`. Each of them is part of a certificate that is sent in every full handshake.
const HOSTS_MAX: usize = 256;

/// Maximum number of entries in `tunnel`.
const TUNNEL_MAX: usize = 4096;

/// Interception of HTTPS: Egret ends the TLS of a client's tunnel itself, with a certificate of its own
/// authority, so that flows apply to the requests in it. Clients must trust that authority. Tunnels to all
/// other hosts pass through unread.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct InterceptionConfig {
    /// Hosts to intercept, besides configured providers: names, addresses, `*.example.com` for every name
    /// below it, or `*` for every host.
    #[schemars(length(max = 256))]
    pub hosts: Vec<String>,
    /// Hosts never to intercept, written like `hosts`. They take precedence over `hosts` and over providers:
    /// for clients that accept only the certificate they know, and for calls that nobody should read.
    #[schemars(length(max = 4096))]
    pub tunnel: Vec<String>,
    /// Treatment of a tunnel to an intercepted host that carries neither TLS nor HTTP.
    pub unknown: UnknownProtocol,
    /// Treatment of a client that refuses Egret's certificate.
    pub on_refusal: OnRefusal,
}

/// Treatment of a tunnel to an intercepted host that carries neither TLS nor HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum UnknownProtocol {
    /// It passes through unread.
    #[default]
    Tunnel,
    /// It is closed.
    Refuse,
}

/// Treatment of a client that refuses Egret's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnRefusal {
    /// Its connections fail until it trusts the authority.
    #[default]
    Fail,
    /// Its later tunnels to the same host pass through unread. A client can thus evade interception.
    Tunnel,
}

impl InterceptionConfig {
    /// Compiles the key at `path` (`interception`). Reports all problems at once, each with its path.
    pub fn compile(&self, path: &str) -> Result<Interception, Vec<Problem>> {
        let mut problems = Vec::new();
        let hosts = patterns(&self.hosts, &format!("{path}.hosts"), HOSTS_MAX, &mut problems);
        let tunnel = patterns(&self.tunnel, &format!("{path}.tunnel"), TUNNEL_MAX, &mut problems);
        if let Some(index) = tunnel.iter().position(|pattern| *pattern == HostPattern::Any) {
            let message = "`*` would exempt every host: leave out `interception` to intercept none";
            problems.push(Problem::new(format!("{path}.tunnel[{index}]"), message));
        }
        if !problems.is_empty() {
            return Err(problems);
        }
        let intercepted = hosts.iter().cloned().collect();
        let tunnelled = tunnel.iter().cloned().collect();
        Ok(Interception { hosts, tunnel, intercepted, tunnelled })
    }
}

fn patterns(texts: &[String], path: &str, max: usize, problems: &mut Vec<Problem>) -> Vec<HostPattern> {
    if texts.len() > max {
        let message =
            format!("at most {max} hosts are possible: write `*.example.com` for those below one name");
        problems.push(Problem::new(path, message));
        return Vec::new();
    }
    let parsed = texts.iter().enumerate().map(|(index, text)| {
        HostPattern::parse(text).map_err(|error| {
            let message = format!("`{text}` is not a host name, `*.name`, `*` or address: {error}");
            problems.push(Problem::new(format!("{path}[{index}]"), message));
        })
    });
    parsed.filter_map(Result::ok).collect()
}

/// The compiled key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Interception {
    hosts: Vec<HostPattern>,
    tunnel: Vec<HostPattern>,
    intercepted: HostPatterns,
    tunnelled: HostPatterns,
}

impl Interception {
    /// Returns `true` if `hosts` names the host and `tunnel` does not.
    pub fn intercepts(&self, host: &Host) -> bool {
        self.intercepted.matches(host) && !self.tunnels(host)
    }

    /// Returns `true` if `tunnel` names the host, which then is never intercepted, whatever else names it.
    pub fn tunnels(&self, host: &Host) -> bool {
        self.tunnelled.matches(host)
    }

    /// The patterns in `hosts`, in their order.
    pub fn hosts(&self) -> &[HostPattern] {
        &self.hosts
    }

    /// The patterns in `tunnel`, in their order.
    pub fn tunnel(&self) -> &[HostPattern] {
        &self.tunnel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(words: &[&str]) -> Vec<String> {
        words.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn tunnel_takes_precedence() {
        let config = InterceptionConfig {
            hosts: texts(&["*.example.com", "10.0.0.1", "bank.example"]),
            tunnel: texts(&["*.pinned.example.com", "bank.example"]),
            ..InterceptionConfig::default()
        };
        let compiled = config.compile("interception").unwrap();
        for (host, is_intercepted) in [
            ("api.example.com", true),
            ("example.com", false),
            ("pinned.example.com", true),
            ("a.pinned.example.com", false),
            ("bank.example", false),
            ("10.0.0.1", true),
            ("10.0.0.2", false),
        ] {
            let host = Host::parse(host.as_bytes()).unwrap();
            assert_eq!(compiled.intercepts(&host), is_intercepted, "{host}");
        }
        assert!(compiled.tunnels(&Host::parse(b"bank.example").unwrap()));
        assert_eq!(InterceptionConfig::default().compile("").unwrap(), Interception::default());
    }

    #[test]
    fn all_problems_are_reported_with_their_place() {
        let config = InterceptionConfig {
            hosts: texts(&["good.example", "https://a.example", "*.10.0.0.1"]),
            tunnel: texts(&["*", "a b"]),
            ..InterceptionConfig::default()
        };
        let problems = config.compile("interception").unwrap_err();
        let paths: Vec<&str> = problems.iter().map(|problem| problem.path.as_str()).collect();
        let expected = ["interception.hosts[1]", "interception.hosts[2]", "interception.tunnel[1]"];
        assert_eq!(paths, [&expected[..], &["interception.tunnel[0]"]].concat());
        let config = InterceptionConfig { hosts: vec!["a".into(); HOSTS_MAX + 1], ..config };
        assert!(config.compile("i").unwrap_err()[0].message.contains("at most 256"));
    }
}
