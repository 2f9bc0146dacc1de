//! The config keys of a cluster.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use egret_config::{Duration, Problem, Secret};
use egret_store::shared::Terms;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Minimum length of the key.
const KEY_BYTES_MIN: usize = 32;
/// Number of shards in a Redis Cluster. All gateways must use the same number, whatever the number of
/// masters, which may change. Few are left idle with up to six masters.
pub const SHARDS: u64 = 16;

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
    #[serde(default = "egret_config::secs::<600>")]
    pub keep_for: Duration,
    /// Minimum time for which a store that has lost its state only learns from the gateways what they hold.
    #[serde(default = "egret_config::secs::<10>")]
    pub learn_for: Duration,
}

fn members_expected_default() -> u64 {
    1
}

egret_config::keys! {
    /// A Redis server, version 6.2 or later, or a Valkey server, version 7.2 or later. Set exactly one of
    /// `url`, `sentinel` and `cluster`.
    pub struct RedisConfig {
        /// A single server: `redis://host:port`, `rediss://host:port` with TLS, or `unix:///path`.
        pub url: Option<String>,
        /// Servers whose master Sentinel names.
        pub sentinel: Option<SentinelConfig>,
        /// Nodes of a Redis Cluster, `host:port`. One that answers is enough.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub cluster: Vec<String>,
        /// The user.
        pub username: Option<String>,
        /// The user's password, as `${file:PATH}` or `${env:NAME}`.
        pub password: Option<Secret>,
        /// TLS to the servers, and to the sentinels. `{}` trusts the system's authorities. Default: none,
        /// except with `rediss://`.
        pub tls: Option<RedisTlsConfig>,
    }
}

/// Servers whose master Sentinel names.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SentinelConfig {
    /// The name of the master.
    pub master: String,
    /// The sentinels, `host:port`.
    pub nodes: Vec<String>,
    /// The user at the sentinels. They have users of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub username: Option<String>,
    /// The password at the sentinels, as `${file:PATH}` or `${env:NAME}`. Default: none, even if the servers
    /// have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

egret_config::keys! {
    /// TLS to the servers, and to the sentinels.
    pub struct RedisTlsConfig {
        /// PEM file of certificate authorities to trust instead of the system's.
        pub ca: Option<PathBuf>,
        /// PEM file of the client certificate chain. Requires `key`.
        pub certificate: Option<PathBuf>,
        /// The client certificate's private key in PEM, as `${file:PATH}` or `${env:NAME}`.
        pub key: Option<Secret>,
    }
}

/// The place of a server.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

/// The user of a connection.
#[derive(Debug, Clone, Copy)]
pub(super) struct Login<'a> {
    pub username: Option<&'a str>,
    pub password: Option<&'a Secret>,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

impl Address {
    /// Reads `host:port` as a node of a Redis Cluster names another one. A node that knows no host for it
    /// means its own.
    pub(super) fn other(&self, node: &str) -> Option<Self> {
        let (host, port) = node.rsplit_once(':')?;
        let port = port.parse().ok().filter(|port| *port > 0)?;
        match self {
            Self::Tcp(own, _) if matches!(host, "" | "?") => Some(Self::Tcp(own.clone(), port)),
            _ => Some(Self::Tcp(host.trim_matches(['[', ']']).to_owned(), port)),
        }
    }
}

impl ClusterConfig {
    /// Returns `true` if another config differs in no more than the store's place and credentials, which can
    /// change while Egret runs.
    pub fn is_same_cluster(&self, other: &Self) -> bool {
        let is_split_alike = self.redis.shards() == other.redis.shards();
        is_split_alike && *self == Self { redis: self.redis.clone(), ..other.clone() }
    }

    /// The durations of the protocol.
    pub(crate) fn terms(&self) -> Terms {
        Terms { fallback_ms: millis(self.keep_for), recovery_ms: millis(self.learn_for), ..Terms::default() }
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
        problems.extend(self.redis.problems());
        problems
    }

    /// Returns warnings about a valid config.
    pub fn warnings(&self) -> Vec<Problem> {
        let RedisConfig { password, sentinel, .. } = &self.redis;
        let mut warnings = Vec::new();
        let in_clear = self.redis.remote_in_clear();
        let has_password =
            password.is_some() || sentinel.as_ref().is_some_and(|sentinel| sentinel.password.is_some());
        if let Some(server) = in_clear.filter(|_| has_password) {
            let message = format!(
                "the password is sent to `{server}` in the clear: anyone on the network path can read it; use `rediss://` or set `tls`"
            );
            warnings.push(Problem::new("cluster.redis.password", message));
        }
        warnings
    }
}

impl RedisConfig {
    /// Returns the mistakes.
    fn problems(&self) -> Vec<Problem> {
        let Self { url, sentinel, cluster, username, password, tls } = self;
        let mut problems = Vec::new();
        let mut problem = |key: &str, message: &str| {
            problems.push(Problem::new(format!("cluster.redis{key}"), message));
        };
        let places =
            usize::from(url.is_some()) + usize::from(sentinel.is_some()) + usize::from(!cluster.is_empty());
        if places != 1 {
            problem("", "set exactly one of `url`, `sentinel` and `cluster`");
        }
        if let Some(message) = url.as_deref().and_then(|url| server(url).err()) {
            problem(".url", message);
        }
        if let Some(sentinel) = sentinel {
            if sentinel.master.is_empty() {
                problem(".sentinel.master", "expected the name that the sentinels have for the master");
            }
            if sentinel.nodes.is_empty() {
                problem(".sentinel.nodes", "name at least one sentinel, as `host:port`");
            }
            if sentinel.username.is_some() && sentinel.password.is_none() {
                problem(".sentinel.username", "a user requires `password`");
            }
        }
        let of_sentinel = sentinel.iter().flat_map(|sentinel| &sentinel.nodes);
        let nodes = of_sentinel.map(|node| (".sentinel.nodes", node));
        for (key, node) in nodes.chain(cluster.iter().map(|node| (".cluster", node))) {
            if host_and_port(node).is_none() {
                problem(key, &format!("expected `host:port`, found `{node}`"));
            }
        }
        if username.is_some() && password.is_none() {
            problem(".username", "a user requires `password`");
        }
        if tls.as_ref().is_some_and(|tls| tls.certificate.is_some() != tls.key.is_some()) {
            problem(".tls", "set both `certificate` and `key`, or none of them");
        }
        if tls.is_some() && matches!(self.server(), Some(Address::Unix(_))) {
            problem(".tls", "a Unix socket has no TLS: remove this key");
        }
        problems
    }

    /// A server on another machine to which connections have no TLS.
    fn remote_in_clear(&self) -> Option<Address> {
        let is_remote = |server: &Address| match server {
            Address::Unix(_) => false,
            Address::Tcp(host, _) => {
                host != "localhost" && !host.parse::<IpAddr>().is_ok_and(|ip| ip.to_canonical().is_loopback())
            }
        };
        let mut servers = self.server().into_iter().chain(self.nodes());
        servers.find(is_remote).filter(|_| !self.has_tls())
    }

    /// Returns `true` if connections use TLS.
    pub(super) fn has_tls(&self) -> bool {
        self.tls.is_some() || self.url.as_ref().is_some_and(|url| url.starts_with("rediss://"))
    }

    /// The single server, if there is no more.
    pub(super) fn server(&self) -> Option<Address> {
        self.url.as_deref().and_then(|url| server(url).ok())
    }

    /// The sentinels, or the nodes of a Redis Cluster.
    pub(super) fn nodes(&self) -> Vec<Address> {
        let nodes = self.sentinel.as_ref().map_or(&self.cluster, |sentinel| &sentinel.nodes);
        let nodes = nodes.iter().filter_map(|node| host_and_port(node));
        nodes.map(|(host, port)| Address::Tcp(host, port)).collect()
    }

    /// Number of shards.
    pub(super) fn shards(&self) -> u64 {
        if self.cluster.is_empty() { 1 } else { SHARDS }
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
fn host_and_port(text: &str) -> Option<(String, u16)> {
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
                "cluster.redis.cluster: expected `host:port`, found `h`"
            ]
        );
        assert_eq!(
            problems(
                r#"{"name":"a","redis":{"url":"unix:///r","tls":{},"sentinel":{"master":"","nodes":[],"username":"u"}}}"#
            ),
            [
                "cluster.redis: set exactly one of `url`, `sentinel` and `cluster`",
                "cluster.redis.sentinel.master: expected the name that the sentinels have for the master",
                "cluster.redis.sentinel.nodes: name at least one sentinel, as `host:port`",
                "cluster.redis.sentinel.username: a user requires `password`",
                "cluster.redis.tls: a Unix socket has no TLS: remove this key",
            ]
        );
    }

    #[test]
    fn a_password_in_the_clear_warns_unless_the_server_is_local() {
        let warnings = |redis: &str| {
            let text = format!(r#"{{"name":"a","redis":{redis}}}"#);
            let config: ClusterConfig = serde_json::from_str(&text).unwrap();
            config.warnings().into_iter().map(|warning| warning.path).collect::<Vec<_>>()
        };
        let secret = r#""password":"${env:PATH}""#;
        for quiet in
            ["redis://localhost", "redis://127.0.0.1:1", "redis://[::1]:1", "rediss://h:1", "unix:///r"]
        {
            assert_eq!(
                warnings(&format!(r#"{{"url":"{quiet}",{secret}}}"#)),
                Vec::<String>::new(),
                "{quiet}"
            );
        }
        assert_eq!(warnings(r#"{"url":"redis://h:1"}"#), Vec::<String>::new());
        assert_eq!(warnings(&format!(r#"{{"url":"redis://h:1",{secret}}}"#)), ["cluster.redis.password"]);
        assert_eq!(warnings(&format!(r#"{{"cluster":["h:1"],{secret}}}"#)), ["cluster.redis.password"]);
        let tls = format!(r#"{{"cluster":["h:1","i:1"],"tls":{{}},{secret}}}"#);
        assert_eq!(warnings(&tls), Vec::<String>::new());
    }

    #[test]
    fn a_store_with_another_number_of_segments_is_another_cluster() {
        let config = |redis: &str| -> ClusterConfig {
            serde_json::from_str(&format!(r#"{{"name":"a","redis":{redis}}}"#)).unwrap()
        };
        let single = config(r#"{"url":"redis://h:1"}"#);
        assert!(single.is_same_cluster(&config(r#"{"url":"rediss://i:2"}"#)));
        assert!(single.is_same_cluster(&config(r#"{"sentinel":{"master":"m","nodes":["h:1"]}}"#)));
        assert!(!single.is_same_cluster(&config(r#"{"cluster":["h:1"]}"#)));
        assert!(!single.is_same_cluster(&ClusterConfig { name: "b".to_owned(), ..single.clone() }));
    }

    #[test]
    fn a_node_names_another_by_address_or_port() {
        let node = Address::Tcp("10.0.0.1".to_owned(), 7_000);
        let tcp = |host: &str| Some(Address::Tcp(host.to_owned(), 7_001));
        assert_eq!(node.other("10.0.0.2:7001"), tcp("10.0.0.2"));
        assert_eq!(node.other(":7001"), tcp("10.0.0.1"));
        assert_eq!(node.other("?:7001"), tcp("10.0.0.1"));
        assert_eq!(node.other("2001:db8::2:7001"), tcp("2001:db8::2"));
        assert_eq!(node.other("10.0.0.2:0"), None);
        assert_eq!(node.other("10.0.0.2"), None);
    }
}
