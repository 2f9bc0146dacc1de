//! The config keys of listening sockets, name resolution, egress policy and TLS.

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

use egret_config::{Duration, Secret, text_value};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The certificate of a listener whose clients use TLS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListenTlsConfig {
    /// File with the certificate and its chain, in PEM. Every reload reads it again.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM: `${file:PATH}` or `${env:NAME}`.
    pub key: Secret,
}

/// The permissions of the file of a Unix socket, written in octal as of `chmod`: `0660`. Without any, the
/// file's owner may connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnixMode(u32);

/// A text is not the permissions of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected three octal digits behind a zero, in quotes, like \"0660\"")]
pub struct UnixModeError;

impl UnixMode {
    /// The bits.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Returns `true` if nobody but the owner may connect.
    pub const fn is_private(self) -> bool {
        self.0 & 0o022 == 0
    }
}

impl Default for UnixMode {
    fn default() -> Self {
        Self(0o600)
    }
}

impl FromStr for UnixMode {
    type Err = UnixModeError;

    fn from_str(text: &str) -> Result<Self, UnixModeError> {
        let digits = text.strip_prefix('0').filter(|digits| digits.len() == 3);
        let is_octal = |digits: &&str| digits.bytes().all(|byte| matches!(byte, b'0'..=b'7'));
        let bits = digits.filter(is_octal).and_then(|digits| u32::from_str_radix(digits, 8).ok());
        bits.map(Self).ok_or(UnixModeError)
    }
}

impl fmt::Display for UnixMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04o}", self.0)
    }
}

text_value!(
    UnixMode,
    "permissions in octal and in quotes, like \"0660\"",
    schemars::json_schema!({
        "description": "Permissions of a file in octal, like `0660`.",
        "type": "string",
        "pattern": "^0[0-7]{3}$",
    })
);

/// Hosts and addresses that may be connected to. The checks run in this order: `deny`, `allow`, the built-in
/// rules, `default`.
///
/// Built-in rules: cloud-metadata addresses, link-local addresses and the gateway's own ports are denied
/// unless a rule in `allow` names them. While a listener is not on loopback, private ranges are denied too.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct EgressConfig {
    /// The effect of a denial.
    pub mode: EgressMode,
    /// The decision for targets that no rule matches.
    #[schemars(extend("x-tier" = "everyday"))]
    pub default: EgressDefault,
    /// Targets that may be connected to. A rule lifts a built-in denial only if it names it explicitly: a
    /// metadata service by its exact address in `net`, a link-local address by a `net` within the link-local
    /// range, the gateway's own ports by `net` and `ports` together, private ranges by `host` or `net`.
    #[schemars(extend("x-tier" = "everyday"))]
    pub allow: Vec<EgressRule>,
    /// Targets that are always denied.
    pub deny: Vec<EgressRule>,
}

/// The effect of a denial.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressMode {
    /// The connection is not made. The client gets 403 `egress-denied`.
    #[default]
    Enforce,
    /// The connection is made. The denial is counted and logged.
    Report,
    /// Nothing is checked.
    Off,
}

/// The decision for targets that no rule matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressDefault {
    /// The target may be connected to.
    #[default]
    Allow,
    /// Only configured providers and targets named in `allow` may be connected to.
    Deny,
}

egret_config::keys! {
    /// A set of targets. Every part that is given must match. At least one must be given. A text alone is its
    /// `host`.
    #[serde(rename = "short form: host")]
    #[schemars(rename = "EgressRule", transform = egret_config::or_text)]
    pub struct EgressRule {
        /// A host name, `*.example.com` for every name below it, or an IP address. `regex:` introduces a
        /// regular expression for the whole host, whatever its case: a name, or an address as the request has
        /// it.
        #[schemars(extend("x-tier" = "everyday"))]
        pub host: Option<String>,
        /// An address or range (`10.0.0.0/8`, `fd00::/8`), matched against the address that is connected to.
        pub net: Option<String>,
        /// Port numbers.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub ports: Vec<u16>,
    }
}

egret_config::keys! {
    /// Resolution of host names.
    pub struct DnsConfig {
        /// The source of addresses.
        pub resolver: Resolver = Resolver::Dns,
        /// Name servers to ask instead of those in `/etc/resolv.conf` (only with `resolver: dns`).
        pub servers: Vec<SocketAddr>,
        /// Maximum time that an address is cached, whatever its TTL.
        pub ttl_max: Duration = Duration::from_secs(300),
        /// Minimum time that an address is cached. Results of `resolver: system` have no TTL and are cached
        /// for this long.
        pub ttl_min: Duration = Duration::from_secs(1),
        /// Time that a failure is cached.
        pub negative_ttl: Duration = Duration::from_secs(2),
        /// Time for one look-up.
        pub timeout: Duration = Duration::from_secs(5),
        /// Maximum number of cached names.
        #[schemars(range(min = 1))]
        pub entries: u32 = 4_096,
    }
}

/// The source of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resolver {
    /// Egret asks the name servers itself and obeys TTLs. `/etc/hosts` is read first.
    #[default]
    Dns,
    /// The system's `getaddrinfo`, for hosts that rely on nsswitch or mDNS.
    System,
}

egret_config::keys! {
    /// A proxy through which providers are reached, such as a company's only way out. A text alone is its
    /// `url`.
    #[derive(Eq)]
    #[serde(rename = "short form: url")]
    #[schemars(rename = "ProxyConfig", transform = egret_config::or_text)]
    pub struct ProxyConfig {
        /// The proxy: `http://host:port` or `https://host:port` for CONNECT, `socks5h://host:port` for SOCKS
        /// 5. With `socks5://`, Egret looks up the provider's name itself. The default ports are 80, 443 and
        /// 1080. `from_environment` takes the proxies from `HTTPS_PROXY`, `HTTP_PROXY`, `ALL_PROXY` and
        /// `NO_PROXY`. `none` calls directly.
        pub url: String,
        /// The user name for the proxy. Requires `password`.
        pub username: Option<String>,
        /// The password for the proxy: `${file:PATH}` or `${env:NAME}`.
        pub password: Option<Secret>,
        /// Hosts that are called directly: a name with every name below it, `.example.com` for those below
        /// alone, an address, a network, or `*`. A name or address may have a port. Networks match hosts that
        /// are literal addresses. This machine is always called directly.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub no_proxy: Vec<String>,
        /// PEM file of certificate authorities to trust for a proxy at `https://`, besides the system's.
        pub ca: Option<PathBuf>,
    }
}

egret_config::keys! {
    /// TLS to one provider.
    pub struct ProviderTlsConfig {
        /// PEM file of certificate authorities to trust for this provider, besides the system's. It may also
        /// hold the provider's own self-signed certificate: exactly that certificate is then accepted, within
        /// its names and dates.
        pub ca: Option<PathBuf>,
        /// PEM file of the client certificate chain. Requires `key`.
        pub certificate: Option<PathBuf>,
        /// The client certificate's private key in PEM, as `${file:PATH}` or `${env:NAME}`.
        pub key: Option<Secret>,
        /// The name that the provider's certificate must carry and that is sent as SNI. Default: the host of
        /// `url`.
        pub server_name: Option<String>,
        /// Verification of the provider's certificate.
        pub verify: TlsVerify,
    }
}

/// Verification of a provider's certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum TlsVerify {
    /// Chain, name and validity are verified.
    #[default]
    Full,
    /// Nothing is verified: anybody on the way can impersonate the provider, and read and change everything.
    /// Every start logs a warning.
    DangerouslyOff,
}
