//! The config key `clients` of a listener.

use std::collections::BTreeMap;
use std::path::PathBuf;

use egret_config::{Problem, Secret, UnixName};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::jwt_config::JwtConfig;

/// Maximum number of clients of a listener.
const CLIENTS_MAX: usize = 10_000;
/// Maximum length of a client's name in the config, in bytes.
const NAME_BYTES_MAX: usize = 64;
/// Lengths of a token, in bytes. A shorter one could be guessed.
pub(crate) const TOKEN_BYTES_MIN: usize = 16;
const TOKEN_BYTES_MAX: usize = 512;

egret_config::keys! {
    /// The proof that the clients of a listener must give: a token with each request (one of `tokens`, or a
    /// `jwt`), a certificate (`ca`), or on a Unix socket the user that they run as (`users`). The name that a
    /// client proves is the consumer of its requests.
    #[derive(Eq)]
    pub struct ClientsConfig {
        /// The token of each client, by the client's name: `${env:NAME}` or `${file:PATH}`. 16 to 512 visible
        /// ASCII characters. Clients send it as `Proxy-Authorization: Bearer TOKEN`, as a proxy's user and
        /// password (`http://NAME:TOKEN@host:port`), or as `x-egret-token: TOKEN`. It is not forwarded.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub tokens: BTreeMap<String, Secret>,
        /// Earlier tokens that are still accepted, by the client's name, while clients change to the new one.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub old_tokens: BTreeMap<String, Secret>,
        /// JSON Web Tokens that are accepted as well.
        pub jwt: Option<JwtConfig>,
        /// The users of the system that a client runs as, by the client's name: a name or a number, or a list
        /// of them. Only on a Unix socket (`address: unix:PATH`), on Linux. The system says who has
        /// connected, so clients send nothing.
        #[serde(skip_serializing_if = "BTreeMap::is_empty")]
        pub users: BTreeMap<String, Vec<UnixName>>,
        /// File with the authorities that sign the certificates of clients, in PEM. Requires `tls`. A client
        /// without a valid certificate gets no connection. Every reload reads the file again.
        pub ca: Option<PathBuf>,
        /// The part of a client's certificate that is its name.
        #[serde(skip_serializing_if = "NameFrom::is_default")]
        pub name_from: NameFrom,
    }
}

/// The part of a certificate that names its client.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NameFrom {
    /// The first DNS name among the subject's alternative names.
    #[default]
    Dns,
    /// The first URI among the subject's alternative names, as SPIFFE has it.
    Uri,
    /// The common name of the subject.
    CommonName,
}

impl NameFrom {
    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde requires this signature")]
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl ClientsConfig {
    /// Reports all mistakes of the key at `at` (`gateway.listen[0].clients`) outside of `jwt`, on a listener
    /// that uses TLS if `has_tls`.
    pub(crate) fn check(&self, at: &str, has_tls: bool, problems: &mut Vec<Problem>) {
        let mut report =
            |key: &str, message: &str| problems.push(Problem::new(format!("{at}{key}"), message));
        let has_tokens = !self.tokens.is_empty() || self.jwt.is_some();
        if !self.users.is_empty() && (has_tokens || self.ca.is_some()) {
            report(".users", "not allowed beside `tokens`, `jwt` or `ca`");
        }
        match (has_tokens, &self.ca) {
            (false, None) if self.users.is_empty() => {
                report(
                    "",
                    "expected `tokens`, `jwt`, `ca` or `users`, which say how clients prove who they are",
                );
            }
            (true, Some(_)) => report("", "`ca` is not allowed beside `tokens` or `jwt`"),
            (false, Some(_)) if !has_tls => {
                report(".ca", "requires `tls`: without it, a client shows no certificate");
            }
            _ => {}
        }
        let users = self.users.values().map(Vec::len).sum();
        for (key, count) in [(".tokens", self.tokens.len()), (".users", users)] {
            if count > CLIENTS_MAX {
                report(key, "at most 10,000 clients are allowed");
            }
        }
        if self.ca.is_none() && self.name_from != NameFrom::default() {
            report(".name_from", "requires `ca`");
        }
        let names = self.tokens.keys().map(|name| ("tokens", name));
        for (key, name) in
            names.chain(self.users.keys().map(|name| ("users", name))).filter(|(_, name)| !is_name(name))
        {
            report(
                &format!(".{key}.{name}"),
                "a client's name has up to 64 letters, digits, `-`, `_` and `.`, and starts with a letter or digit",
            );
        }
        for name in self.old_tokens.keys().filter(|name| !self.tokens.contains_key(*name)) {
            report(&format!(".old_tokens.{name}"), "this client has no token in `tokens`");
        }
        for (key, tokens) in [("tokens", &self.tokens), ("old_tokens", &self.old_tokens)] {
            for (name, token) in tokens {
                if !is_token(token.expose().as_bytes()) {
                    report(
                        &format!(".{key}.{name}"),
                        "the token must have 16 to 512 visible ASCII characters: make one with `openssl rand -hex 32`",
                    );
                }
            }
        }
    }
}

fn is_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let starts_well = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    starts_well && name.len() <= NAME_BYTES_MAX && name.bytes().all(is_plain)
}

fn is_token(token: &[u8]) -> bool {
    (TOKEN_BYTES_MIN..=TOKEN_BYTES_MAX).contains(&token.len()) && token.iter().all(u8::is_ascii_graphic)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(value: &str) -> Secret {
        Secret::from_value("${env:TOKEN}", value.to_owned())
    }

    fn tokens(name: &str, value: &str) -> ClientsConfig {
        let tokens = [(name.to_owned(), secret(value))].into();
        ClientsConfig { tokens, ..ClientsConfig::default() }
    }

    fn problems(config: &ClientsConfig, has_tls: bool) -> Vec<String> {
        let mut problems = Vec::new();
        config.check("c", has_tls, &mut problems);
        problems.into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn a_good_config_has_tokens_or_an_authority() {
        assert!(problems(&tokens("checkout", "0123456789abcdef"), false).is_empty());
        let ca = ClientsConfig { ca: Some("ca.pem".into()), ..ClientsConfig::default() };
        assert!(problems(&ca, true).is_empty());
        assert_eq!(problems(&ca, false), ["c.ca"]);
        assert_eq!(problems(&ClientsConfig::default(), true), ["c"]);
        let both = ClientsConfig { ca: ca.ca.clone(), ..tokens("checkout", "0123456789abcdef") };
        assert_eq!(problems(&both, true), ["c"]);
        let jwt = serde_json::json!({ "issuer": "https://id.example", "audience": "egret" });
        let jwt: Option<JwtConfig> = serde_json::from_value(jwt).unwrap();
        let beside = ClientsConfig { jwt: jwt.clone(), ..tokens("checkout", "0123456789abcdef") };
        assert!(problems(&beside, false).is_empty());
        let alone = ClientsConfig { jwt: jwt.clone(), ..ClientsConfig::default() };
        assert!(problems(&alone, false).is_empty());
        assert_eq!(problems(&ClientsConfig { jwt, ..ca.clone() }, true), ["c"]);
        let users = [("checkout".to_owned(), vec![UnixName::Id(1001)])];
        let users = ClientsConfig { users: users.into(), ..ClientsConfig::default() };
        assert!(problems(&users, false).is_empty());
        assert_eq!(problems(&ClientsConfig { ca: ca.ca, ..users }, true), ["c.users"]);
    }

    #[test]
    fn names_and_tokens_have_limits_and_no_message_shows_a_token() {
        for (name, value) in [
            ("a b", "0123456789abcdef"),
            ("-a", "0123456789abcdef"),
            ("a", "0123456789abcde"),
            ("a", "0123456789abcde "),
            ("a", "0123456789abcdeé"),
        ] {
            let mut found = Vec::new();
            tokens(name, value).check("c", false, &mut found);
            assert_eq!(found.len(), 1, "{name} {value}");
            assert!(!format!("{found:?}").contains(value));
        }
        assert_eq!(problems(&tokens("a", &"x".repeat(513)), false), ["c.tokens.a"]);
        let stray = ClientsConfig {
            old_tokens: [("b".to_owned(), secret("0123456789abcdef"))].into(),
            name_from: NameFrom::Uri,
            ..tokens("a", "0123456789abcdef")
        };
        assert_eq!(problems(&stray, true), ["c.name_from", "c.old_tokens.b"]);
    }
}
