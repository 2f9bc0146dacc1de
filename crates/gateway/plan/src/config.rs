//! The config keys of the gateway: `gateway:` and `providers:`.
//!
//! Each struct is the only definition of its keys. The parser, the defaults, the JSON Schema and the
//! reference page come from it.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use egret_accounts::AccountConfigs;
use egret_ca::{InterceptionConfig, ServerConfigs};
use egret_clients::ClientsConfig;
use egret_config::{Duration, Size, UnixName, UnixNameError};
use egret_diagnosis::{Exports, TrafficConfig};
use egret_export::access_log::AccessLogConfig;
use egret_flow::config::FlowConfig;
use egret_match::OtherProduct;
use egret_message::ListenAddress;
use egret_message::authority::{Authority, Host};
use egret_net::config::{DnsConfig, EgressConfig, ListenTlsConfig, ProviderTlsConfig, ProxyConfig, UnixMode};
use egret_net::listen::UnixRights;
use egret_net::os::kernel::TcpListener;
use egret_observe::failure::config::{ErrorsConfig, ProviderErrorsConfig};
use egret_presets::PresetName;
use egret_prices::PricesConfig;
use egret_quota::{QuotaConfigs, Stores};
use egret_store::SharedState;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de};

/// Providers by name, as configured.
pub type Providers = BTreeMap<String, ProviderConfig>;

/// All parts of the config that the gateway uses.
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
    /// `prices:`
    pub prices: &'a PricesConfig,
    /// `flows:`
    pub flows: &'a [FlowConfig],
    /// The stores from which quotas obtain units. None while a config is only validated.
    pub stores: Stores<'a>,
    /// The state that is shared with other gateways. None while a config is only validated.
    pub shared: SharedState<'a>,
    /// The directory for persistent state. `None` while a config is only validated.
    pub data_dir: Option<&'a Path>,
    /// The exporters of the diagnoses.
    pub exports: &'a Exports,
    /// The interception of HTTPS. `None` if nothing is intercepted.
    pub interception: Option<InterceptionParts<'a>>,
    /// Listening sockets that the process was started with. A listener with the address of one uses it.
    pub inherited: &'a [TcpListener],
    /// `control.traffic`, which only a start applies.
    pub traffic: &'a TrafficConfig,
    /// `true` if the only client is an isolated command, see
    /// [`EgressPolicy::isolated`](egret_net::policy::EgressPolicy::isolated).
    pub isolated: bool,
}

/// The interception of HTTPS.
#[derive(Debug, Clone, Copy)]
pub struct InterceptionParts<'a> {
    /// `interception:`
    pub config: &'a InterceptionConfig,
    /// The certificates for the intercepted hosts. `None` while a config is only validated.
    pub configs: Option<&'a ServerConfigs>,
}

egret_config::keys! {
    /// The gateway's listeners, and its settings for connections.
    pub struct GatewayConfig {
        /// Addresses to listen on. An entry is `host:port`, `unix:` and the path of a Unix socket, or a
        /// mapping. With `provider`, every request on it is sent to that provider. With `tls`, clients must
        /// use TLS. With `socks5`, they must speak SOCKS 5. At most 1,000.
        #[schemars(extend("x-tier" = "everyday"))]
        pub listen: Vec<ListenConfig> = vec![ListenConfig::from(SocketAddr::from(([127, 0, 0, 1], 8000)))],
        /// Names by which clients reach the gateway itself, besides `localhost` and the addresses in
        /// `listen`. For example, a service name in a container network. At most 256.
        pub names: Vec<String>,
        /// Serves clients in HTTP/2 too: where TLS negotiates it, and on other listeners where a connection
        /// begins with its preface. `false` leaves HTTP/1.1 alone.
        pub http2: bool = true,
        /// Number of worker threads. `auto` is one per core.
        pub workers: Workers = Workers::Auto,
        /// Allows a listener that is not on loopback to forward to any host. Without it, such a gateway
        /// serves only configured providers and hosts named in `egress.allow`.
        pub open_proxy: bool,
        /// Hosts and addresses that may be connected to.
        #[schemars(extend("x-tier" = "everyday"))]
        pub egress: EgressConfig,
        /// The proxy through which all hosts are reached, token endpoints, the issuers of clients' tokens and
        /// the servers of exporters included. A provider may have another one under `providers.*.proxy`. The
        /// rules of `egress` apply to the hosts behind it all the same, except for issuers and exporters.
        pub upstream_proxy: Option<ProxyConfig>,
        /// Timeouts for clients, and the defaults for providers.
        pub timeouts: TimeoutsConfig,
        /// Limits for clients and providers.
        pub limits: LimitsConfig,
        /// Resolution of host names.
        pub dns: DnsConfig,
        /// Protocols that a request may upgrade to (`Upgrade`, RFC 9110 §7.8). `name` matches any version,
        /// `name/version` only that one. Other protocols are removed from the request, which is then
        /// forwarded as an ordinary one. Flows do not see the contents of an upgraded connection. This list
        /// does not apply to accounts with a `certificate`: name the protocols under the provider instead.
        pub upgrades: Vec<String> = vec!["websocket".to_owned()],
        /// Names of trailer fields that are forwarded (RFC 9110 §6.5). `x-*` matches a prefix. All others are
        /// dropped.
        pub trailers: Vec<String> = [
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
        /// Additional header fields that name the scheme of a request's destination, in order of precedence,
        /// after `x-egret-scheme` and its equivalents. For example, `x-forwarded-proto` if a proxy in front
        /// of the gateway sets it. These fields are trusted and not forwarded.
        pub scheme_fields: Vec<String>,
        /// Header fields that clients send to Egret only, such as fields that flows match on. They are not
        /// forwarded. `x-team-*` matches a prefix.
        pub private_fields: Vec<String>,
        /// Other products whose clients keep their fields. `lunar` stands for `x-lunar-host`,
        /// `x-lunar-scheme`, `x-lunar-consumer-tag`, the ids `x-lunar-req-id` and `x-lunar-sequence-id`, and
        /// the query parameters of `route_by_query`; `harchiver` for `Mashape-Host-Override` and
        /// `Mashape-Upstream-Protocol`. Fields of a product that is not in the list are not read, and those
        /// that name a host, a scheme or a consumer are removed. Without this key all are read, with a
        /// warning in the log at the first one of each product; a later version will treat a missing key like
        /// `[]`.
        pub compat: Option<Vec<OtherProduct>>,
        /// Rewrites redirects and cookies for clients that name a provider by base URL. A `Location` or
        /// `Content-Location` at a configured provider is changed to lead through the gateway. The `Path` of
        /// a cookie is moved below the provider's name, and its `Domain` is removed.
        pub rewrite: Rewrite = Rewrite::On,
        /// Appends the client's address to `X-Forwarded-For` in requests to providers.
        pub forwarded_for: bool,
        /// Treatment of a call whose client closes its connection, or its sending side, before its response
        /// is complete. Default: `cancel` for the safe methods GET, HEAD, OPTIONS and TRACE, otherwise
        /// `finish`.
        pub on_client_close: Option<OnClientClose>,
        /// Keeps a list of the endpoints that are called, in memory, at most 1 MiB. It has the words of
        /// paths, the statuses, latencies and consumers, but no values of parameters. `egret discover` and
        /// the control API show it.
        pub discovery: bool = true,
        /// The ids that requests carry in responses, logs and records.
        pub request_ids: RequestIdsConfig,
        /// The format and content of the gateway's own error responses.
        pub errors: ErrorsConfig,
        /// One line for every finished exchange. Off by default.
        pub access_log: AccessLogConfig,
    }
}

/// Treatment of a call whose client closes its connection before its response is complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnClientClose {
    /// The call ends at once, and the connection to the provider is closed.
    Cancel,
    /// The call goes on, and its response is sent to the client, which may have closed its sending side only.
    /// A call that has not been sent to a provider yet, or waits to be repeated, ends all the same.
    Finish,
}

egret_config::keys! {
    /// The ids of requests.
    #[derive(Eq)]
    pub struct RequestIdsConfig {
        /// Gives every request an id. The response carries it as `x-egret-request-id`; logs, records and
        /// error responses name it too. An `x-request-id` in a response is the provider's own.
        pub enabled: bool = true,
        /// Request fields that hold the client's own id, in order of precedence. The field is forwarded as it
        /// is. Without a usable id (1 to 128 visible ASCII characters), Egret makes one (UUID version 7, RFC
        /// 9562). Lunar's fields count only where `gateway.compat` lets Egret read them.
        pub fields: Vec<String> =
            ["x-request-id", "x-lunar-req-id", "x-lunar-sequence-id"].map(str::to_owned).to_vec(),
        /// Sends an id that Egret made to the provider, as `x-request-id`.
        pub send: bool,
    }
}

/// A listener for one provider, with other ways of routing, or for clients that use TLS to the gateway
/// itself. A text alone is its `address`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields, remote = "Self")]
#[schemars(rename = "ListenConfig", transform = egret_config::or_text)]
#[expect(clippy::struct_excessive_bools, reason = "the keys are independent of each other")]
pub struct ListenConfig {
    /// `host:port`, or `unix:` and the absolute path of a Unix socket, like `unix:/run/egret/egret.sock`.
    /// Egret makes the file, replaces one that no process accepts connections on, and removes it at the end.
    /// Clients name the gateway `localhost`. With port 0 the system chooses a port.
    #[schemars(with = "String")]
    pub address: ListenAddress,
    /// The permissions of the file of a Unix socket, in octal and in quotes, as of `chmod`. Who may write to
    /// it may connect. If that is not the owner alone, the listener counts as one that is not on loopback.
    /// Default: `"0600"`, for the user that Egret runs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix_mode: Option<UnixMode>,
    /// The group of the file of a Unix socket: a name or a number. Egret must be a member of it, or be
    /// privileged. Default: the group that Egret runs as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix_group: Option<UnixName>,
    /// The provider that every request on this listener is sent to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider: Option<String>,
    /// Provider for requests whose scheme is `https`, by their target or by `scheme`. Other requests go to
    /// `provider`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub https_provider: Option<String>,
    /// Forwards the `Host` that the client sent, or that `x-egret-host` names, instead of the provider's own.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub keep_host: bool,
    /// The scheme of requests that name none, unless a configured provider at their host has one. Default:
    /// `http`.
    #[serde(default, skip_serializing_if = "is_http")]
    pub scheme: Scheme,
    /// Lets requests name their host, scheme and consumer by the query parameters `egret_host`,
    /// `egret_scheme` and `egret_consumer`, or, with `lunar` in `gateway.compat`, `lunar_original_host`,
    /// `lunar_original_scheme` and `lunar_consumer_tag`. They are not forwarded. Not with `provider`.
    /// Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub route_by_query: bool,
    /// Serves connections that the system redirects here, such as iptables with `REDIRECT`. Their clients
    /// know nothing of a gateway: the host is the one that they name in TLS (SNI) or in `Host`, else the
    /// address that they have connected to. Not with `provider`, `route_by_query` or `tls`. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub redirect: bool,
    /// Serves clients that speak SOCKS 5 (RFC 1928) instead of HTTP, with CONNECT alone. A connection is
    /// treated as a CONNECT to the host of its handshake: intercepted, or relayed unread. With `clients`, the
    /// token is the password (RFC 1929), so it has at most 255 characters. Not with `provider`, `scheme`,
    /// `route_by_query`, `redirect` or `tls`. Default: `false`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub socks5: bool,
    /// The certificate for clients, which must then use TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ListenTlsConfig>,
    /// The proof that clients must give of who they are. Without it, everybody who reaches the listener may
    /// use it, and name any consumer. Not with `redirect`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub clients: Option<ClientsConfig>,
}

egret_config::or_text_alone! {
    ListenConfig,
    "an address like `127.0.0.1:8000` or `unix:/run/egret/egret.sock`, or `{ address: 127.0.0.1:8002, provider: name }`",
    |text: &str| text.parse::<ListenAddress>().map(ListenConfig::from)
}

impl Serialize for ListenConfig {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        Self::serialize(self, serializer)
    }
}

/// The scheme of a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// Unencrypted.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
fn is_http(scheme: &Scheme) -> bool {
    *scheme == Scheme::Http
}

impl From<SocketAddr> for ListenConfig {
    fn from(address: SocketAddr) -> Self {
        ListenAddress::from(address).into()
    }
}

impl From<ListenAddress> for ListenConfig {
    fn from(address: ListenAddress) -> Self {
        Self {
            address,
            unix_mode: None,
            unix_group: None,
            provider: None,
            https_provider: None,
            keep_host: false,
            scheme: Scheme::Http,
            route_by_query: false,
            redirect: false,
            socks5: false,
            tls: None,
            clients: None,
        }
    }
}

impl ListenConfig {
    /// Returns the permissions of its Unix socket. `None` if it has an address of the Internet.
    ///
    /// # Errors
    ///
    /// Fails if the system does not know the group.
    pub fn unix_rights(&self) -> Result<Option<UnixRights>, UnixNameError> {
        let group = self.unix_group.as_ref().map(UnixName::group).transpose()?;
        let mode = self.unix_mode.unwrap_or_default().bits();
        Ok(self.address.unix().map(|_| UnixRights { mode, group }))
    }
}

/// Number of worker threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Workers {
    /// One per core available to the process, at most 256.
    #[default]
    Auto,
    /// This number, from 1 to 256.
    Exactly(u16),
}

impl Workers {
    /// Returns the number of threads to start.
    pub fn count(self) -> usize {
        match self {
            Self::Auto => std::thread::available_parallelism().map_or(1, usize::from).min(256),
            Self::Exactly(count) => usize::from(count),
        }
    }
}

impl<'de> Deserialize<'de> for Workers {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ListenVisitor;

        impl de::Visitor<'_> for ListenVisitor {
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
        }
        deserializer.deserialize_any(ListenVisitor)
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

/// Rewriting of responses for clients that name a provider by base URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Rewrite {
    /// Redirects and cookies are rewritten to match the client's URL.
    #[default]
    On,
    /// Redirects and cookies are forwarded unchanged.
    Off,
}

egret_config::keys! {
    /// Timeouts. `0s` means no limit.
    pub struct TimeoutsConfig {
        /// Time for a client's whole request head, from its first byte.
        pub head: Duration = Duration::from_secs(10),
        /// Time until the next request on a kept-alive client connection.
        pub keep_alive: Duration = Duration::from_secs(75),
        /// Time within which a client that has closed its sending side must take more of its response, with
        /// `on_client_close: finish`.
        pub half_close: Duration = Duration::from_secs(5),
        /// Time for exchanges in progress when the gateway is told to stop.
        pub drain: Duration = Duration::from_secs(30),
        /// Time to open a TCP connection to a provider, all its addresses together. Through a proxy, time
        /// until the tunnel is open. In HTTP/2 also the time that a call waits for room on a connection.
        pub connect: Duration = Duration::from_secs(5),
        /// Time for the TLS handshake with a provider.
        pub tls: Duration = Duration::from_secs(10),
        /// Time until the first byte of the response, from the end of the request.
        pub first_byte: Duration = Duration::from_secs(120),
        /// Time until the next byte of a body or tunnel, in either direction.
        pub idle: Duration = Duration::from_secs(120),
        /// Time for a whole exchange.
        pub total: Duration = Duration::from_secs(0),
    }
}

egret_config::keys! {
    /// Limits for clients and providers. Every resource has one.
    pub struct LimitsConfig {
        /// Maximum number of open client connections, including tunnels. Further ones get 503 and are closed.
        #[schemars(range(min = 1))]
        pub connections: u32 = 20_000,
        /// Maximum number of exchanges in progress, over all workers. 0 means no limit. Above it an exchange
        /// gets 429 `too-many-in-flight`. An exchange counts until its response has ended. An upgraded
        /// connection or a CONNECT tunnel counts until it closes.
        pub exchanges: u32 = 0,
        /// Number of requests on one client connection, after which it is closed. 0 means no limit.
        pub requests_per_connection: u32 = 0,
        /// Maximum size of a request line (414 above it) or status line (502 above it).
        pub start_line: Size = Size::from_kib(8),
        /// Maximum size of a head, including the start line (431 above it, 502 for a provider's). At most
        /// `256KiB`.
        pub head: Size = Size::from_kib(32),
        /// Maximum number of fields in a head (431 above it, 502 for a provider's). At most 256.
        #[schemars(range(min = 1, max = 256))]
        pub fields: u16 = 128,
        /// Maximum number of informational responses (1xx) that a provider may send before the final one.
        pub informational: u8 = 16,
        /// Memory for gathered bodies, over all workers. A body is gathered if a flow needs the whole of it
        /// or may send it again. At least `1MiB`. A request whose body does not fit gets 503 `bodies-full`. A
        /// body that is kept only for a retry is forwarded and cannot be retried. A response is forwarded as
        /// if it were too long to be changed.
        pub gathered: Size = Size::from_kib(64 * 1024),
        /// Minimum rate at which a client must send a body or read a response, in bytes per second. `0B`
        /// disables the check. Sending is checked every 10 s. Reading is checked while data waits for the
        /// client, over 10 s plus the time in which it would read half of the data that the system buffers.
        pub body_rate: Size = Size::from_bytes(64),
        /// Maximum number of hosts without a configured provider for which idle connections are kept.
        #[schemars(range(min = 1))]
        pub dynamic_upstreams: u32 = 1_024,
        /// Maximum number of hosts without a configured provider that metrics tell apart by the label `host`.
        /// All further ones are counted together, without that label. `0` counts all of them together.
        pub hosts_counted: u32 = 100,
    }
}

egret_config::keys! {
    /// A third-party API. A text alone is its `url`.
    #[serde(rename = "short form: url")]
    #[schemars(rename = "ProviderConfig", transform = egret_config::or_text)]
    pub struct ProviderConfig {
        /// The base URL: `http://` or `https://`, a host, an optional port, and an optional path that is put
        /// before every request's path. Required, unless `preset` has one.
        #[serde(skip_serializing_if = "String::is_empty")]
        #[schemars(extend("x-tier" = "everyday"))]
        pub url: String,
        /// The well-known provider that this is. Its preset sets the URL and the timeouts that are left out,
        /// and tells remedies the provider's own rules: the fields of its limits, the refusals that time
        /// ends, and how it recognises a repeated call.
        #[schemars(extend("x-tier" = "everyday"))]
        pub preset: Option<PresetName>,
        /// Other base URLs of the same API, such as its other regions: at most 15, with the scheme of `url`.
        /// They take the same requests and credentials, and count as the same provider. Each call goes to the
        /// one, among them and `url`, that responds soonest and is well. A call that cannot connect goes to
        /// another one, and so does each attempt of `retry`.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub endpoints: Vec<String>,
        /// Additional hosts of this provider: `api.example.com`, or `*.example.com` for every name below it,
        /// or another pattern as under `match.host` of a flow. They matter on listeners with `keep_host`,
        /// where a client chooses the host: a credential is then added only for the host of `url` and for
        /// these.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub hosts: Vec<String>,
        /// Timeouts for this provider. Missing values come from its `preset`, then from `gateway.timeouts`.
        #[schemars(extend("x-tier" = "everyday"))]
        pub timeouts: ProviderTimeoutsConfig,
        /// Verification of its certificate, and the client certificate shown to it.
        pub tls: ProviderTlsConfig,
        /// The proxy through which it is reached, instead of `gateway.upstream_proxy`. `none` for none.
        pub proxy: Option<ProxyConfig>,
        /// Connections to it.
        pub pool: PoolConfig,
        /// The version of HTTP that it is called in, whatever its clients speak. `auto` is HTTP/1.1, but
        /// HTTP/2 for gRPC (`content-type: application/grpc`), and where the provider offers nothing else in
        /// TLS. `1` is HTTP/1.1. `2` is HTTP/2 where the provider offers it in TLS, otherwise HTTP/1.1; a
        /// provider at `http://` must speak HTTP/2 from the first byte. Requests that upgrade are sent in
        /// HTTP/1.1. Only those for WebSocket are sent in HTTP/2 where other requests are, if the provider
        /// allows it (RFC 8441).
        pub http: HttpVersions,
        /// Protocols that requests to it may upgrade to, instead of `gateway.upgrades`. This list also
        /// applies to connections that show the `certificate` of an account.
        pub upgrades: Option<Vec<String>>,
        /// The gateway's own error responses in its place.
        pub errors: ProviderErrorsConfig,
    }
}

impl ProviderConfig {
    /// The base URL: its own, else that of its preset. Empty if there is neither.
    pub fn base_url(&self) -> &str {
        let preset = || self.preset?.preset().url.as_deref();
        if self.url.is_empty() { preset().unwrap_or_default() } else { &self.url }
    }
}

/// The version of HTTP that a provider is called in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum HttpVersions {
    /// HTTP/1.1, unless a request needs HTTP/2 or the provider offers nothing else.
    #[default]
    Auto,
    /// HTTP/1.1.
    One,
    /// HTTP/2, unless a request needs HTTP/1.1 or the provider offers nothing else.
    Two,
}

impl<'de> Deserialize<'de> for HttpVersions {
    fn deserialize<D: de::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HttpVisitor;

        impl de::Visitor<'_> for HttpVisitor {
            type Value = HttpVersions;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("`auto`, `1` or `2`")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<HttpVersions, E> {
                match text {
                    "auto" => Ok(HttpVersions::Auto),
                    "1" => Ok(HttpVersions::One),
                    "2" => Ok(HttpVersions::Two),
                    _ => Err(E::invalid_value(de::Unexpected::Str(text), &self)),
                }
            }

            fn visit_u64<E: de::Error>(self, number: u64) -> Result<HttpVersions, E> {
                match number {
                    1 => Ok(HttpVersions::One),
                    2 => Ok(HttpVersions::Two),
                    _ => Err(E::invalid_value(de::Unexpected::Unsigned(number), &self)),
                }
            }
        }
        deserializer.deserialize_any(HttpVisitor)
    }
}

impl Serialize for HttpVersions {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Auto => serializer.serialize_str("auto"),
            Self::One => serializer.serialize_u8(1),
            Self::Two => serializer.serialize_u8(2),
        }
    }
}

impl JsonSchema for HttpVersions {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "HttpVersions".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "`auto`, `1` (HTTP/1.1) or `2` (HTTP/2).",
            "oneOf": [{ "const": "auto" }, { "type": "integer", "minimum": 1, "maximum": 2 }],
        })
    }
}

egret_config::keys! {
    /// Timeouts for one provider. Missing values come from its `preset`, then from `gateway.timeouts`. A text
    /// alone is its `total`.
    #[serde(rename = "short form: total")]
    #[schemars(rename = "ProviderTimeoutsConfig", transform = egret_config::or_text)]
    pub struct ProviderTimeoutsConfig {
        /// Time to open a TCP connection, all addresses together.
        #[schemars(extend("x-tier" = "everyday"))]
        pub connect: Option<Duration>,
        /// Time for the TLS handshake.
        pub tls: Option<Duration>,
        /// Time until the first byte of the response, from the end of the request.
        #[schemars(extend("x-tier" = "everyday"))]
        pub first_byte: Option<Duration>,
        /// Time until the next byte of a body, in either direction.
        pub idle: Option<Duration>,
        /// Time for a whole exchange.
        #[schemars(extend("x-tier" = "everyday"))]
        pub total: Option<Duration>,
    }
}

/// Returns `true` if data sent to `url` can be read on the way: it is not `https`, and its host is not this
/// machine.
pub fn is_in_clear(url: &str) -> bool {
    let Some(rest) = url.strip_prefix("http://") else { return false };
    let authority = rest.split('/').next().unwrap_or_default();
    let Ok(authority) = Authority::parse(authority.as_bytes(), Some(80)) else { return false };
    match authority.host {
        Host::Name(name) => &*name != "localhost" && !name.ends_with(".localhost"),
        Host::Ip(ip) => !is_loopback(ip),
    }
}

egret_config::keys! {
    /// Connections to one provider.
    pub struct PoolConfig {
        /// Maximum number of open connections, over all workers, including tunnels. 0 means no limit. Above
        /// it an exchange or CONNECT gets 503 `pool-full`. In HTTP/2 a call first waits for room on the
        /// connections of its worker, if that has any, for `timeouts.connect`.
        pub connections: u32 = 0,
        /// Maximum number of idle connections per worker. A worker that has more calls at the same time than
        /// this opens and closes connections all the time.
        pub idle: u32 = 2_048,
        /// Time that an idle connection is kept. A provider's `Keep-Alive: timeout` shortens it.
        pub idle_timeout: Duration = Duration::from_secs(60),
        /// Maximum number of calls at the same time on a connection that speaks HTTP/2, unless the provider
        /// admits fewer. Further ones open another connection, or wait if that is one too many. From 1 to
        /// 1,000.
        #[schemars(range(min = 1, max = 1000))]
        pub streams_per_connection: u32 = 100,
    }
}

/// Returns `true` if every listener is on loopback, or a Unix socket for its owner alone. The egress policy
/// and the control port are less strict then. Containers can reach a socket that is open to others.
pub fn all_loopback(listen: &[ListenConfig]) -> bool {
    listen.iter().all(|listen| match listen.address {
        ListenAddress::Internet(address) => is_loopback(address.ip()),
        ListenAddress::Unix(_) => listen.unix_mode.unwrap_or_default().is_private(),
    })
}

fn is_loopback(address: IpAddr) -> bool {
    address.to_canonical().is_loopback()
}
