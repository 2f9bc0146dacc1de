//! The config keys of the control port: `control:`.

use std::fmt;
use std::net::SocketAddr;

use egret_config::{Problem, Secret};
use egret_diagnosis::TrafficConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::trusted_proxy::TrustedProxyConfig;

egret_config::keys! {
    /// Health checks, metrics, the API and the page. They reveal which hosts the application calls: keep them
    /// on loopback, or set a token.
    pub struct ControlConfig {
        /// The address to listen on; with port 0 the system chooses a port. Addresses other than loopback
        /// require `token`, `read_token` or `trusted_proxy`.
        #[schemars(extend("x-tier" = "everyday"))]
        pub listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 8001)),
        /// The token that clients must send as `Authorization: Bearer`, on every path except `/healthz`,
        /// `/readyz` and the page's own files.
        #[schemars(extend("x-tier" = "everyday"))]
        pub token: Option<Secret>,
        /// A second token that only reads: GET and HEAD on every path, the config's files and live traffic
        /// included. Every other request with it gets 403. Without `token`, this one is needed wherever
        /// `token` would be, and changes need the token that Egret creates at each start.
        pub read_token: Option<Secret>,
        /// The proxy that names users. Then `token` is not needed off loopback, and requests without a user
        /// or a token are refused.
        pub trusted_proxy: Option<TrustedProxyConfig>,
        /// Further host names, without port, that clients may use, besides `localhost` and the listening
        /// address. Requests for any other host are rejected with 421, because a web page may have caused
        /// them (DNS rebinding).
        pub allowed_hosts: Vec<String>,
        /// The changes of the config that the API accepts. They always need `token`, or else the token that
        /// Egret creates at each start, or a user in `trusted_proxy.writers`.
        pub config_changes: ConfigChanges,
        /// The list of recent exchanges, for the page and `egret tail`.
        pub traffic: TrafficConfig,
    }
}

/// The changes of the config that the API accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ConfigChanges {
    /// None. The config can still be validated. The token then only reads: requests of recorded exchanges
    /// are not sent again either.
    Off,
    /// Other plain values of listed keys that the file has: limits, times, sizes, shares, modes and the log
    /// level. No key, entry or list item can be added or removed, and no text that names or means something
    /// can be new.
    #[default]
    Tune,
    /// All changes except those of `control`, `data_dir` and `secrets`. The holder of the token can then do
    /// what the owner of the file can: read every file that Egret can read, and send every request and
    /// secret anywhere.
    All,
    /// An earlier name of `tune`, for more changes.
    #[schemars(skip)]
    #[serde(rename = "tune")]
    Restricted,
    /// The earlier name of `all`.
    #[schemars(skip)]
    #[serde(rename = "all")]
    Unrestricted,
}

impl ConfigChanges {
    /// The value of today that an earlier name stands for.
    #[must_use]
    pub fn current(self) -> Self {
        match self {
            Self::Restricted => Self::Tune,
            Self::Unrestricted => Self::All,
            current => current,
        }
    }

    /// The advice about an earlier name.
    pub fn advice(self) -> Option<&'static str> {
        match self {
            Self::Restricted => Some(
                "`restricted` is read as `tune`, which accepts fewer changes: write `tune`, or `all` to let the holder of the token do what the owner of this file can",
            ),
            Self::Unrestricted => Some("`unrestricted` is called `all` now: write `all`"),
            Self::Off | Self::Tune | Self::All => None,
        }
    }
}

impl<'de> Deserialize<'de> for ConfigChanges {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        /// The words that a message about any other one lists.
        const WORDS: [&str; 3] = ["off", "tune", "all"];

        struct ConfigChangesVisitor;

        impl<'de> de::Visitor<'de> for ConfigChangesVisitor {
            type Value = ConfigChanges;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("one of `off`, `tune` and `all`")
            }

            fn visit_enum<A: de::EnumAccess<'de>>(self, access: A) -> Result<ConfigChanges, A::Error> {
                let (word, rest) = access.variant::<String>()?;
                de::VariantAccess::unit_variant(rest)?;
                Ok(match word.as_str() {
                    "off" => ConfigChanges::Off,
                    "tune" => ConfigChanges::Tune,
                    "all" => ConfigChanges::All,
                    "restricted" => ConfigChanges::Restricted,
                    "unrestricted" => ConfigChanges::Unrestricted,
                    _ => return Err(de::Error::unknown_variant(&word, &WORDS)),
                })
            }
        }
        deserializer.deserialize_enum("ConfigChanges", &WORDS, ConfigChangesVisitor)
    }
}

/// Maximum length of a DNS name.
const HOST_CHARS_MAX: usize = 253;

impl ControlConfig {
    /// Checks everything that the parser cannot. Returns every problem, by path from the root of the config.
    pub fn validate(&self) -> Vec<Problem> {
        let mut problems = Vec::new();
        if self.is_exposed() {
            let message = format!(
                "`{}` is not on loopback: anyone on the network could read the control port; set `control.token`",
                self.listen
            );
            problems.push(Problem::new("control.listen", message));
        }
        // Other characters cannot be sent in an Authorization field, so the token would never match.
        let is_sendable = |token: &Secret| token.expose().bytes().all(|byte| byte.is_ascii_graphic());
        for (path, token) in [("control.token", &self.token), ("control.read_token", &self.read_token)] {
            if token.as_ref().is_some_and(|token| !is_sendable(token)) {
                let message = "must consist of printable ASCII characters without spaces";
                problems.push(Problem::new(path, message));
            }
        }
        if let (Some(token), Some(read_token)) = (&self.token, &self.read_token)
            && token.expose() == read_token.expose()
        {
            let message = "is the same as `control.token`, so those who have it could change everything";
            problems.push(Problem::new("control.read_token", message));
        }
        for (index, host) in self.allowed_hosts.iter().enumerate() {
            if !is_host_name(host) {
                let message =
                    "is not a host name: expected one like `egret.internal`, without scheme, port or `*`";
                problems.push(Problem::new(format!("control.allowed_hosts[{index}]"), message));
            }
        }
        problems.extend(self.trusted_proxy.iter().flat_map(|proxy| proxy.problems("control.trusted_proxy")));
        problems.extend(self.traffic.problems("control.traffic"));
        problems
    }

    /// Returns `true` if anyone on the network could read the port.
    pub(crate) fn is_exposed(&self) -> bool {
        self.is_open() && !self.listen.ip().to_canonical().is_loopback()
    }

    /// Returns `true` if every client that reaches the port may read it, apart from private paths.
    pub(crate) fn is_open(&self) -> bool {
        self.token.is_none() && self.read_token.is_none() && self.trusted_proxy.is_none()
    }
}

/// Returns `true` for labels of letters, digits, hyphens and underscores, separated by dots.
fn is_host_name(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    name.len() <= HOST_CHARS_MAX
        && name.split('.').all(|label| !label.is_empty() && label.bytes().all(is_letter))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(config: &ControlConfig) -> Vec<String> {
        config.validate().into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn the_default_is_loopback_and_valid() {
        assert_eq!(ControlConfig::default().validate(), []);
    }

    #[test]
    fn an_address_off_loopback_needs_a_token() {
        for listen in ["0.0.0.0:8001", "[::]:8001", "192.0.2.1:8001", "[::ffff:192.0.2.1]:8001"] {
            let open = ControlConfig { listen: listen.parse().unwrap(), ..ControlConfig::default() };
            assert_eq!(paths(&open), ["control.listen"], "{listen}");
            let token = || Some(Secret::resolve("${env:HOME}").unwrap());
            let guarded = ControlConfig { token: token(), ..open.clone() };
            assert_eq!(guarded.validate(), [], "{listen}");
            let read_only = ControlConfig { read_token: token(), ..open };
            assert_eq!(read_only.validate(), [], "{listen}");
        }
        for listen in ["127.0.0.9:0", "[::1]:8001", "[::ffff:127.0.0.1]:8001"] {
            let loopback = ControlConfig { listen: listen.parse().unwrap(), ..ControlConfig::default() };
            assert_eq!(loopback.validate(), [], "{listen}");
        }
    }

    #[test]
    fn a_token_that_only_reads_is_another_one_and_can_be_sent() {
        let secret = |value: &str| Some(Secret::from_value("test", value.to_owned()));
        let with = |token: &str, read_token: &str| {
            let (token, read_token) = (secret(token), secret(read_token));
            paths(&ControlConfig { token, read_token, ..ControlConfig::default() })
        };
        assert_eq!(with("a", "b"), [""; 0]);
        assert_eq!(with("a", "a"), ["control.read_token"]);
        assert_eq!(with("a b", "é"), ["control.token", "control.read_token"]);
    }

    #[test]
    fn an_allowed_host_is_a_bare_name() {
        let hosts =
            ["egret.internal", "egret_1", "", "http://egret", "egret:8001", "*", "*.example.com", "a..b"];
        let config =
            ControlConfig { allowed_hosts: hosts.map(str::to_owned).to_vec(), ..ControlConfig::default() };
        assert_eq!(
            paths(&config),
            (2..8).map(|index| format!("control.allowed_hosts[{index}]")).collect::<Vec<_>>()
        );
    }

    #[test]
    fn unknown_keys_are_refused() {
        assert!(serde_json::from_str::<ControlConfig>(r#"{ "tokn": "${env:HOME}" }"#).is_err());
        let config: ControlConfig = serde_json::from_str(r#"{ "listen": "127.0.0.1:9001" }"#).unwrap();
        assert_eq!(config.listen.port(), 9001);
    }
}
