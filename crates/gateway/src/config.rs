//! The config keys that the gateway obeys: `gateway:` and `providers:`.
//!
//! Each struct is the one definition of its keys: parser, default, JSON Schema and reference page come from it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use egret_config::{Duration, Secret, Size};
use egret_flow::accounts::AccountConfigs;
use egret_flow::config::FlowConfig;
use egret_flow::diagnosis::Exports;
use egret_flow::quota::QuotaConfigs;
use egret_store::Ledger;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de};

use crate::upstream::authority::{Authority, Host};

/// Providers by name, as the config gives them.
pub type Providers = BTreeMap<String, ProviderConfig>;

/// All parts of the config that the gateway obeys.
#[derive(Debug, Clone, Copy)]
pub struct Parts<'a> {
    /// `gateway:`
    pub gateway: &'a GatewayConfig,
    /// `providers:`
    pub providers: &'a Providers,
    /// `quotas:`
    pub quotas: &'a QuotaConfigs,
    /// `accounts:`
    pub accounts: &'a AccountConfigs,
    /// `flows:`
    pub flows: &'a [FlowConfig],
    /// Where quotas that outlive the process ask for units; none while a config is only checked.
    pub ledger: Option<&'a Ledger>,
    /// Where what outlives the process is kept; none while a config is only checked.
    pub data_dir: Option<&'a Path>,
    /// Where diagnoses send what they make, and what they need for it.
    pub exports: &'a Exports,
}

/// Where the gateway listens and how it treats connections.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct GatewayConfig {
    /// Addresses to listen on. An entry is `host:port`, or a mapping: with `provider`
    /// every request on it goes to that provider, with `tls` its clients speak TLS with the gateway.
    pub listen: Vec<ListenConfig>,
    /// Names by which clients reach the gateway itself, besides `localhost` and the addresses in `listen`; a service name in a
    /// container network, say.
    pub names: Vec<String>,
    /// Worker threads: `auto` is one per core.
    pub workers: Workers,
    /// Allows a listener that is not on loopback to forward to any host. Without it such a gateway only serves configured
    /// providers and hosts that `egress.allow` names.
    pub open_proxy: bool,
    /// Which hosts and addresses may be connected to.
    pub egress: EgressConfig,
    /// How long the gateway waits on its clients, and on providers that set nothing else.
    pub timeouts: TimeoutsConfig,
    /// Bounds on what a peer may send and hold.
    pub limits: LimitsConfig,
    /// How host names are resolved.
    pub dns: DnsConfig,
    /// Protocols that a request may ask its provider to change to (`Upgrade`, RFC 9110 §7.8): a name for any
    /// version, or `name/version`. What goes through a changed connection is seen by no flow. Others are
    /// taken out of the request, which then goes on as an ordinary one. They do not hold where an account
    /// shows a `certificate`: name them under that provider.
    pub upgrades: Vec<String>,
    /// Names of trailer fields that are forwarded (RFC 9110 §6.5); `x-*` matches a prefix. All others are dropped.
    pub trailers: Vec<String>,
    /// Further header fields that name the scheme of where a request goes, in this order, after `x-egret-scheme` and its like:
    /// `x-forwarded-proto`, where what stands before the gateway sets it. Believed, and not forwarded.
    pub scheme_fields: Vec<String>,
    /// Header fields that clients send for Egret alone, such as what its flows match by. Not forwarded.
    pub private_fields: Vec<String>,
    /// Whether redirects and cookies are rewritten for clients that name a provider by base URL: a `Location` or
    /// `Content-Location` at a configured provider leads back through the gateway, the `Path` of a cookie is put below the
    /// provider's name, and its `Domain` is dropped.
    pub rewrite: Rewrite,
    /// Whether the client's address is appended to `X-Forwarded-For`, so that the provider learns of it.
    pub forwarded_for: bool,
    /// How the answers look that the gateway makes itself where something goes wrong.
    pub errors: ErrorsConfig,
    /// A line for every finished exchange. Off by default.
    pub access_log: AccessLogConfig,
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: vec![ListenConfig::from(SocketAddr::from(([127, 0, 0, 1], 8000)))],
            names: Vec::new(),
            workers: Workers::Auto,
            open_proxy: false,
            egress: EgressConfig::default(),
            timeouts: TimeoutsConfig::default(),
            limits: LimitsConfig::default(),
            dns: DnsConfig::default(),
            upgrades: vec!["websocket".to_owned()],
            trailers: [
                "server-timing",
                "etag",
                "digest",
                "content-digest",
                "repr-digest",
                "content-md5",
                "grpc-status",
                "grpc-message",
                "grpc-status-details-bin",
                "x-*",
            ]
            .map(str::to_owned)
            .to_vec(),
            scheme_fields: Vec::new(),
            private_fields: Vec::new(),
            rewrite: Rewrite::On,
            forwarded_for: false,
            errors: ErrorsConfig::default(),
            access_log: AccessLogConfig::default(),
        }
    }
}

/// How the answers look that the gateway makes itself where something goes wrong.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorsConfig {
    /// What their bodies are.
    pub format: ErrorFormat,
    /// What is answered otherwise than by default, by the name of the error (`dns-failed`), for clients that expect it so. A status that
    /// a remedy names itself comes first.
    pub answers: BTreeMap<String, ErrorAnswerConfig>,
}

/// What the bodies of errors are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ErrorFormat {
    /// A problem document (RFC 9457), `application/problem+json`.
    #[default]
    Problem,
    /// The status and what happened as a line of text: `504: the provider has not answered in time`.
    Text,
}

/// What is answered otherwise than by default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorAnswerConfig {
    /// The status.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 400, max = 599))]
    pub status: Option<u16>,
    /// What is said to have happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
}

/// A line for every finished exchange, written off the hot path.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccessLogConfig {
    /// Where lines go: `off`, `stdout`, or the path of a file that is appended to.
    pub output: AccessLogOutput,
    /// How a line looks.
    pub format: AccessLogFormat,
}

/// Where access-log lines go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum AccessLogOutput {
    /// Nowhere, at no cost.
    #[default]
    Off,
    /// Standard output.
    Stdout,
    /// A file that is appended to, and opened again on reload, so that it can be rotated.
    File(PathBuf),
}

impl<'de> Deserialize<'de> for AccessLogOutput {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match String::deserialize(deserializer)?.as_str() {
            "off" => Self::Off,
            "stdout" => Self::Stdout,
            path => Self::File(path.into()),
        })
    }
}

impl Serialize for AccessLogOutput {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Off => serializer.serialize_str("off"),
            Self::Stdout => serializer.serialize_str("stdout"),
            Self::File(path) => path.serialize(serializer),
        }
    }
}

impl JsonSchema for AccessLogOutput {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "AccessLogOutput".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "description": "`off`, `stdout` or the path of a file." })
    }
}

/// How an access-log line looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AccessLogFormat {
    /// One line of `key=value` pairs.
    #[default]
    Text,
    /// One JSON object a line.
    Json,
}

/// One address to listen on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(with = "ListenSchema")]
pub struct ListenConfig {
    /// The socket address; port 0 lets the system choose.
    pub address: SocketAddr,
    /// The provider that every request on this listener goes to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// The provider that those requests go to instead whose scheme is `https`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_provider: Option<String>,
    /// Whether a provider gets the `Host` that the client has sent, rather than its own.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub keep_host: bool,
    /// The scheme of requests that name none, where no configured provider on their host has one.
    #[serde(skip_serializing_if = "is_http")]
    pub scheme: Scheme,
    /// What is shown to clients, which then have to speak TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenTlsConfig>,
}

/// The scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// In the clear.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_http(scheme: &Scheme) -> bool {
    *scheme == Scheme::Http
}

/// What a listener shows to clients that speak TLS with it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenTlsConfig {
    /// File with the certificate and its chain, in PEM. Read again on every reload.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM: `${file:PATH}` or `${env:NAME}`.
    pub key: Secret,
}

impl From<SocketAddr> for ListenConfig {
    fn from(address: SocketAddr) -> Self {
        Self {
            address,
            provider: None,
            https_provider: None,
            keep_host: false,
            scheme: Scheme::Http,
            tls: None,
        }
    }
}

/// How [`ListenConfig`] may be written.
#[derive(JsonSchema)]
#[serde(untagged, deny_unknown_fields)]
#[expect(dead_code, reason = "describes the two ways of writing for the schema; the parser below reads them")]
enum ListenSchema {
    /// `host:port`
    Address(String),
    /// A listener for one provider, or for clients that speak TLS with the gateway itself.
    Special {
        /// `host:port`
        address: String,
        /// The provider that every request on this listener goes to.
        provider: Option<String>,
        /// The provider that those of them go to instead whose scheme is `https`, by the request or by `scheme`.
        https_provider: Option<String>,
        /// Whether these providers get the `Host` that the client has sent, or that `x-egret-host` names, rather than their own.
        keep_host: Option<bool>,
        /// The scheme of requests that name none, where no configured provider on their host has one; `http` unless it is given.
        scheme: Option<Scheme>,
        /// What is shown to clients, which then have to speak TLS.
        tls: Option<ListenTlsConfig>,
    },
}

impl<'de> Deserialize<'de> for ListenConfig {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl<'de> de::Visitor<'de> for Visitor {
            type Value = ListenConfig;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "an address like `127.0.0.1:8000`, or `{ address: 127.0.0.1:8002, provider: name }`",
                )
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<ListenConfig, E> {
                let address: SocketAddr = text.parse().map_err(|_| {
                    E::custom(format!("`{text}` is not an address to listen on: write IP:port, like `127.0.0.1:8000` or `[::1]:8000`"))
                })?;
                Ok(ListenConfig::from(address))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<ListenConfig, A::Error> {
                #[derive(Deserialize)]
                #[serde(deny_unknown_fields)]
                struct Fields {
                    address: SocketAddr,
                    provider: Option<String>,
                    https_provider: Option<String>,
                    #[serde(default)]
                    keep_host: bool,
                    #[serde(default)]
                    scheme: Scheme,
                    tls: Option<ListenTlsConfig>,
                }
                let Fields { address, provider, https_provider, keep_host, scheme, tls } =
                    Fields::deserialize(de::value::MapAccessDeserializer::new(map))?;
                Ok(ListenConfig { address, provider, https_provider, keep_host, scheme, tls })
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

/// How many worker threads carry traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// One per core that the process may use.
    #[default]
    Auto,
    /// This many, 1 to 256.
    Exactly(u16),
}

impl Workers {
    /// The number of threads to start.
    pub fn count(self) -> usize {
        match self {
            Self::Auto => std::thread::available_parallelism().map_or(1, usize::from).min(256),
            Self::Exactly(count) => usize::from(count),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;

        impl de::Visitor<'_> for Visitor {
            type Value = Workers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto` or a number from 1 to 256")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Workers, E> {
                if text == "auto" {
                    Ok(Workers::Auto)
                } else {
                    Err(E::invalid_value(de::Unexpected::Str(text), &self))
                }
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Workers, E> {
                match u16::try_from(number) {
                    Ok(count @ 1..=256) => Ok(Workers::Exactly(count)),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }

            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Workers, E> {
                match u64::try_from(number) {
                    Ok(number) => self.visit_u64(number),
                    Err(_) => Err(E::invalid_value(de::Unexpected::Signed(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl Serialize for Workers {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::Exactly(count) => serializer.serialize_u16(*count),
        }
    }
}

impl JsonSchema for Workers {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Workers".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "`auto` (one per core) or a number of worker threads.",
            "oneOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1, "maximum": 256 }],
        })
    }
}

/// Which hosts and addresses may be connected to. `deny` is asked first, then `allow`, then what is built in, then `default`.
///
/// Built in: cloud-metadata and link-local addresses and the gateway's own ports are denied unless a rule of `allow` names
/// them; while a listener is not on loopback, private ranges are denied too.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EgressConfig {
    /// What a denial does.
    pub mode: EgressMode,
    /// What happens to a target that no rule names.
    pub default: EgressDefault,
    /// Targets that may be connected to. What is built in is lifted only as far as a rule names it: a metadata service by its very
    /// address in `net`, link-local by a `net` within it, the gateway's own ports by `net` and `ports` together, private
    /// ranges by `host` or `net`.
    pub allow: Vec<EgressRule>,
    /// Targets that may never be connected to.
    pub deny: Vec<EgressRule>,
}

/// Whether responses are rewritten for clients that name a provider by base URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rewrite {
    /// Redirects and cookies are as the client has to see them.
    #[default]
    On,
    /// They are as the provider has sent them.
    Off,
}

/// What a denial does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressMode {
    /// The connection is not made; the client gets 403 `egress-denied`.
    #[default]
    Enforce,
    /// The connection is made; the denial is counted and logged.
    Report,
    /// Nothing is checked.
    Off,
}

/// What happens to a target that no rule names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressDefault {
    /// It may be connected to.
    #[default]
    Allow,
    /// Only targets that `allow` names, and configured providers, may be connected to.
    Deny,
}

/// A set of targets: every part that is given must match. At least one must be given.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EgressRule {
    /// A host name, `*.example.com` for every name below it, or an IP address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// An address or range (`10.0.0.0/8`, `fd00::/8`), matched against the address actually connected to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub net: Option<String>,
    /// Ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<u16>,
}

/// How long to wait. `0s` means without end.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TimeoutsConfig {
    /// For a client's whole request head, from its first byte.
    pub head: Duration,
    /// For the next request on a kept-alive client connection.
    pub keep_alive: Duration,
    /// For a client that closed its sending side to be given the answer under way.
    pub half_close: Duration,
    /// For exchanges in flight when the gateway is told to stop.
    pub drain: Duration,
    /// For a TCP connection to a provider, all its addresses together.
    pub connect: Duration,
    /// For the TLS handshake with a provider.
    pub tls: Duration,
    /// For the first byte of the response, from the end of the request.
    pub first_byte: Duration,
    /// For the next byte of a body or tunnel, either way.
    pub idle: Duration,
    /// For a whole exchange.
    pub total: Duration,
}

impl Default for TimeoutsConfig {
    fn default() -> Self {
        Self {
            head: Duration::from_secs(10),
            keep_alive: Duration::from_secs(75),
            half_close: Duration::from_secs(5),
            drain: Duration::from_secs(30),
            connect: Duration::from_secs(5),
            tls: Duration::from_secs(10),
            first_byte: Duration::from_secs(120),
            idle: Duration::from_secs(120),
            total: Duration::from_secs(0),
        }
    }
}

/// Bounds on what a peer may send and hold. Everything has one.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Client connections open at once, tunnels included; more are answered 503 and closed.
    #[schemars(range(min = 1))]
    pub connections: u32,
    /// Exchanges under way at once, all workers together; 0 is without end. Above it an exchange is answered
    /// 429 `too-many-in-flight`. One counts until its response has ended, or the protocol to which it was
    /// upgraded, or its tunnel by CONNECT.
    pub exchanges: u32,
    /// Requests on one client connection, after which it is closed; 0 is without end.
    pub requests_per_connection: u32,
    /// A request line (414 above) or status line (502 above).
    pub start_line: Size,
    /// A head, start line included (431 above, 502 from a provider). At most `256KiB`.
    pub head: Size,
    /// Fields in a head (431 above, 502 from a provider). At most 256.
    #[schemars(range(min = 1, max = 256))]
    pub fields: u16,
    /// Informational responses (1xx) that a provider may send before the final one.
    pub informational: u8,
    /// Memory for bodies that are gathered, since a flow wants to see them whole or send them again, all
    /// workers together; at least `1MiB`. A request whose body does not fit is answered 503 `bodies-full`.
    /// One that is kept for a repetition alone goes on and cannot be repeated, and a response goes on as if
    /// it were too long to be changed.
    pub gathered: Size,
    /// The slowest that a client may send a body or take a response, in bytes per second; `0B` is off. What
    /// it sends is judged every 10 s. What it takes is judged while something waits for it, over 10 s and the
    /// time in which it would take half of what the system buffers.
    pub body_rate: Size,
    /// Authorities without a configured provider for which idle connections are kept.
    #[schemars(range(min = 1))]
    pub dynamic_upstreams: u32,
}

impl Default for LimitsConfig {
    fn default() -> Self {
        Self {
            connections: 20_000,
            exchanges: 0,
            requests_per_connection: 0,
            start_line: Size::from_kib(8),
            head: Size::from_kib(32),
            fields: 128,
            informational: 16,
            gathered: Size::from_kib(64 * 1024),
            body_rate: Size::from_bytes(64),
            dynamic_upstreams: 1_024,
        }
    }
}

/// How host names are resolved.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DnsConfig {
    /// Who answers.
    pub resolver: Resolver,
    /// Name servers to ask instead of those of `/etc/resolv.conf` (only with `resolver: dns`).
    pub servers: Vec<SocketAddr>,
    /// The longest that an answer is kept, whatever its TTL says.
    pub ttl_max: Duration,
    /// The shortest that an answer is kept. Answers of `resolver: system` carry no TTL and are kept this long.
    pub ttl_min: Duration,
    /// How long a failure is kept.
    pub negative_ttl: Duration,
    /// For one look-up.
    pub timeout: Duration,
    /// Names kept.
    #[schemars(range(min = 1))]
    pub entries: u32,
}

impl Default for DnsConfig {
    fn default() -> Self {
        Self {
            resolver: Resolver::Dns,
            servers: Vec::new(),
            ttl_max: Duration::from_secs(300),
            ttl_min: Duration::from_secs(1),
            negative_ttl: Duration::from_secs(2),
            timeout: Duration::from_secs(5),
            entries: 4_096,
        }
    }
}

/// Who answers look-ups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resolver {
    /// Egret asks the name servers itself and obeys TTLs; `/etc/hosts` is read first.
    #[default]
    Dns,
    /// The system's `getaddrinfo`, for hosts that rely on nsswitch or mDNS.
    System,
}

/// A third-party API.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProviderConfig {
    /// Where it is: `http://` or `https://`, host, optional port, optional path that is put before every request's path.
    pub url: String,
    /// Further hosts that are this provider's: `api.example.com`, or `*.example.com` for every name below it. Only a listener with
    /// `keep_host` lets a client choose the host, and then a credential is added under the host of `url` and under these alone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// How long to wait on it; what is not given comes from `gateway.timeouts`.
    #[serde(default)]
    pub timeouts: ProviderTimeoutsConfig,
    /// How its certificate is checked, and what the gateway shows of its own.
    #[serde(default)]
    pub tls: ProviderTlsConfig,
    /// Connections to it.
    #[serde(default)]
    pub pool: PoolConfig,
    /// Protocols that requests may ask it to change to, in the place of `gateway.upgrades`; for connections
    /// that show the `certificate` of an account too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrades: Option<Vec<String>>,
}

/// How long to wait on one provider; what is not given comes from `gateway.timeouts`.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderTimeoutsConfig {
    /// For a TCP connection, all addresses together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connect: Option<Duration>,
    /// For the TLS handshake.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Duration>,
    /// For the first byte of the response, from the end of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_byte: Option<Duration>,
    /// For the next byte of a body, either way.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Duration>,
    /// For a whole exchange.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<Duration>,
}

/// Whether what is sent to `url` can be read on its way: it is neither `https` nor a host on this machine.
pub fn is_in_clear(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let Ok(authority) = Authority::parse(authority.as_bytes(), Some(80)) else { return false };
    match authority.host {
        Host::Name(name) => &*name != "localhost" && !name.ends_with(".localhost"),
        Host::Ip(ip) => !is_loopback(ip),
    }
}

/// TLS towards one provider.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ProviderTlsConfig {
    /// PEM file of certificate authorities that are trusted for this provider besides the system's, or of the
    /// provider's own certificate where that is self-signed: just this one is believed then, for its names
    /// and dates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// PEM file of the client certificate chain, with `key`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<PathBuf>,
    /// The client certificate's private key in PEM, as `${file:PATH}` or `${env:NAME}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<Secret>,
    /// The name that the provider's certificate must carry and that is sent as SNI, where it is not the URL's host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// Whether the provider's certificate is checked.
    pub verify: TlsVerify,
}

/// Whether a provider's certificate is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TlsVerify {
    /// Chain, name and validity are checked.
    #[default]
    Full,
    /// Nothing is checked: whoever answers is believed and can read and change everything. Warned of at every start.
    DangerouslyOff,
}

/// Connections kept to one provider.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct PoolConfig {
    /// Connections open at once, all workers together, tunnels to it included; 0 is without end. Above it an
    /// exchange or CONNECT is answered 503 `pool-full`.
    pub connections: u32,
    /// Idle connections kept per worker.
    pub idle: u32,
    /// How long an idle connection is kept; a provider's `Keep-Alive: timeout` shortens it.
    pub idle_timeout: Duration,
}

impl Default for PoolConfig {
    fn default() -> Self {
        Self { connections: 0, idle: 512, idle_timeout: Duration::from_secs(60) }
    }
}

/// Whether every listener is on loopback, which decides what egress policy and the control port dare.
pub fn all_loopback(listen: &[ListenConfig]) -> bool {
    listen.iter().all(|listen| is_loopback(listen.address.ip()))
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
