//! The config keys of a cluster.

use std::path::PathBuf;

use egret_config::{Duration, Problem, Secret};
use egret_store::shared::Terms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Minimum length of the key.
const KEY_BYTES_MIN: usize = 32;

/// The cluster that shares the quotas with `store: redis`: all gateways with the same `name` and store.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ClusterConfig {
    /// Name of the cluster, 1 to 64 letters, digits, `-` and `_`. It is part of all keys in the store.
    pub name: String,
    /// Name of this gateway. It must be unique among running gateways, and should survive a restart. Default:
    /// the name of the host, and the port of the first listener.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
    /// Minimum number of gateways. `on_store_error: share` divides by it while the store has told no greater
    /// number.
    #[serde(default = "members_expected_default")]
    #[schemars(range(min = 1, max = 100_000))]
    pub members_expected: u64,
    /// A secret of at least 32 bytes that all gateways know. With it, the names of groups in the store say
    /// nothing to its readers, the tokens of accounts are fetched once for all gateways, and purges and
    /// changes of cached responses are told to the others, all encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// The store.
    pub redis: RedisConfig,
    /// Time for which a gateway that cannot reach the store goes on with its units, see `on_store_error:
    /// keep`. All gateways should have the same.
    #[serde(default = "keep_for_default")]
    pub keep_for: Duration,
    /// Minimum time for which a store that has lost its state only learns from the gateways what they hold.
    #[serde(default = "learn_for_default")]
    pub learn_for: Duration,
}

fn members_expected_default() -> u64 {
    1
}

fn keep_for_default() -> Duration {
    Duration::from_secs(600)
}

fn learn_for_default() -> Duration {
    Duration::from_secs(10)
}

/// A Redis server, version 6.2 or later, or a Valkey server, version 7.2 or later. Set exactly one of `url`,
/// `sentinel` and `cluster`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisConfig {
    /// A single server: `redis://host:port`, `rediss://host:port` with TLS, or `unix:///path`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Servers whose master Sentinel names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sentinel: Option<SentinelConfig>,
    /// Nodes of a Redis Cluster, `host:port`. One that answers is enough.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub cluster: Vec<String>,
    /// The user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The user's password, as `${file:PATH}` or `${env:NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
    /// TLS to the servers. Default: none, except with `rediss://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<RedisTlsConfig>,
}

/// Servers whose master Sentinel names.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SentinelConfig {
    /// The name of the master.
    pub master: String,
    /// The sentinels, `host:port`.
    pub nodes: Vec<String>,
}

/// TLS to the servers.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RedisTlsConfig {
    /// PEM file of certificate authorities to trust instead of the system's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file of the client certificate chain. Requires `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The client certificate's private key in PEM, as `${file:PATH}` or `${env:NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
}

/// The place of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl ClusterConfig {
    /// Returns `true` if another config differs in no more than the store's place and credentials, which can
    /// change while Egret runs.
    pub fn is_same_cluster(&self, other: &Self) -> bool {
        *self == Self { redis: self.redis.clone(), ..other.clone() }
    }

    /// The durations of the protocol.
    pub(crate) fn terms(&self) -> Terms {
        Terms { keep_ms: millis(self.keep_for), learn_ms: millis(self.learn_for), ..Terms::default() }
    }

    /// Returns the mistakes.
    pub fn problems(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut problem =
            |key: &str, message: &str| problems.push(Problem::new(format!("cluster.{key}"), message));
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if !(1..=64).contains(&self.name.len()) || !self.name.bytes().all(is_plain) {
            problem("name", "expected 1 to 64 letters, digits, `-` and `_`");
        }
        if self.member.as_ref().is_some_and(|member| !(1..=128).contains(&member.len())) {
            problem("member", "expected 1 to 128 characters");
        }
        if !(1..=100_000).contains(&self.members_expected) {
            problem("members_expected", "expected 1 to 100000");
        }
        if self.key.as_ref().is_some_and(|key| key.expose().len() < KEY_BYTES_MIN) {
            problem("key", "expected at least 32 bytes: `openssl rand -hex 32` makes a key");
        }
        let RedisConfig { url, sentinel, cluster, username, password, tls } = &self.redis;
        let places =
            usize::from(url.is_some()) + usize::from(sentinel.is_some()) + usize::from(!cluster.is_empty());
        if places != 1 {
            problem("redis", "set exactly one of `url`, `sentinel` and `cluster`");
        }
        if let Some(message) = url.as_deref().and_then(|url| server(url).err()) {
            problem("redis.url", message);
        }
        let nodes = sentinel.iter().flat_map(|sentinel| &sentinel.nodes).chain(cluster);
        for node in nodes {
            if host_and_port(node).is_none() {
                problem("redis", &format!("expected `host:port`, found `{node}`"));
            }
        }
        if sentinel.as_ref().is_some_and(|sentinel| sentinel.nodes.is_empty()) {
            problem("redis.sentinel.nodes", "name at least one sentinel, as `host:port`");
        }
        if username.is_some() && password.is_none() {
            problem("redis.username", "a user requires `password`");
        }
        if tls.as_ref().is_some_and(|tls| tls.certificate.is_some() != tls.key.is_some()) {
            problem("redis.tls", "set both `certificate` and `key`, or none of them");
        }
        problems
    }
}

impl RedisConfig {
    /// Returns `true` if connections use TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some() || self.url.as_ref().is_some_and(|url| url.starts_with("rediss://"))
    }

    /// The places at which to begin the search for the master.
    pub(super) fn addresses(&self) -> Vec<Address> {
        let nodes = self.sentinel.as_ref().map_or(&self.cluster, |sentinel| &sentinel.nodes);
        let tcp = nodes.iter().filter_map(|node| host_and_port(node));
        let tcp = tcp.map(|(host, port)| Address::Tcp(host, port));
        self.url.iter().filter_map(|url| server(url).ok()).chain(tcp).collect()
    }
}

/// Reads the URL of a single server.
fn server(url: &str) -> Result<Address, &'static str> {
    if let Some(path) = url.strip_prefix("unix://") {
        let is_absolute = path.starts_with('/');
        return if is_absolute { Ok(Address::Unix(path.into())) } else { Err("expected `unix:///path`") };
    }
    let rest = url.strip_prefix("redis://").or_else(|| url.strip_prefix("rediss://"));
    let rest = rest.ok_or("expected `redis://host:port`, `rediss://host:port` or `unix:///path`")?;
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    if rest.contains('@') {
        return Err("a URL is shown in logs: use `username` and `password` instead");
    }
    if rest.contains('/') {
        return Err("Egret uses database 0: remove the path");
    }
    let (host, port) = host_and_port(rest)
        .or_else(|| host_and_port(&format!("{rest}:6379")))
        .ok_or("expected `redis://host:port`")?;
    Ok(Address::Tcp(host, port))
}

/// Splits `host:port` and `[IPv6]:port`.
pub(super) fn host_and_port(text: &str) -> Option<(String, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let port: u16 = port.parse().ok().filter(|port| *port > 0)?;
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    let is_name = |host: &&str| !host.is_empty() && !host.contains([':', '/', ' ']);
    let host = bare.or_else(|| Some(host).filter(is_name))?;
    Some((host.to_owned(), port))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.get().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_of_a_server_is_read_as_people_write_it() {
        let tcp = |host: &str, port| Ok(Address::Tcp(host.to_owned(), port));
        assert_eq!(server("redis://redis.internal:6380"), tcp("redis.internal", 6_380));
        assert_eq!(server("rediss://redis.internal/"), tcp("redis.internal", 6_379));
        assert_eq!(server("redis://[::1]:7000"), tcp("::1", 7_000));
        assert_eq!(server("unix:///run/redis.sock"), Ok(Address::Unix("/run/redis.sock".into())));
        for url in ["", "redis.internal:6380", "http://h:1", "redis://u:p@h:1", "redis://h:1/2", "redis://:1"]
        {
            assert!(server(url).is_err(), "{url}");
        }
    }

    #[test]
    fn contradictions_are_refused_with_their_place() {
        let problems = |text: &str| {
            let config: ClusterConfig = serde_json::from_str(text).unwrap();
            let problems = config.problems().into_iter();
            problems.map(|problem| format!("{}: {}", problem.path, problem.message)).collect::<Vec<_>>()
        };
        assert_eq!(problems(r#"{"name":"a","redis":{"url":"redis://h:1"}}"#), Vec::<String>::new());
        assert_eq!(
            problems(r#"{"name":"a","redis":{}}"#),
            ["cluster.redis: set exactly one of `url`, `sentinel` and `cluster`"]
        );
        assert_eq!(
            problems(r#"{"name":"a b","redis":{"cluster":["h:1","h"]}}"#),
            [
                "cluster.name: expected 1 to 64 letters, digits, `-` and `_`",
                "cluster.redis: expected `host:port`, found `h`"
            ]
        );
    }
}
