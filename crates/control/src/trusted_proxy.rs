//! Users whom an authenticating proxy in front of the control port names: `control.trusted_proxy`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::{HeaderMap, HeaderName};
use egret_config::Problem;
use egret_net::policy::{Net, parse_net};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Maximum length of a user's name. In the name of a version's file each byte takes two, and a file's name
/// has at most 255.
const USER_BYTES_MAX: usize = 96;

/// A proxy in front of the control port that has authenticated the user, such as oauth2-proxy. Its word
/// counts on connections from its own addresses alone.
#[derive(Debug, Clone, PartialEq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrustedProxyConfig {
    /// The proxy's addresses: `10.0.0.7`, or a range such as `10.0.1.0/24` with no other programs. Every
    /// program at these addresses can name any user; on loopback, that is every program of the machine.
    pub from: Vec<String>,
    /// The request field in which the proxy names the user: up to 96 visible ASCII characters, and no comma.
    /// The proxy must remove the field from what clients send.
    #[serde(default = "default_field")]
    pub user: String,
    /// The users who may change what `config_changes` leaves, spelt as in the field. All others only read.
    #[serde(default)]
    pub writers: Vec<String>,
}

fn default_field() -> String {
    "x-forwarded-user".to_owned()
}

impl TrustedProxyConfig {
    /// Returns what is wrong with it.
    pub(crate) fn problems(&self, path: &str) -> Vec<Problem> {
        let mut problems = Vec::new();
        let mut push = |path: String, message: &str| problems.push(Problem::new(path, message));
        if self.from.is_empty() {
            push(format!("{path}.from"), "has no address, so no user is ever named");
        }
        if HeaderName::from_bytes(self.user.as_bytes()).is_err() {
            push(format!("{path}.user"), "is not the name of a header field");
        }
        for (index, writer) in self.writers.iter().enumerate() {
            if !is_user(writer.as_bytes()) {
                let message = "is no user: expected 1 to 96 visible ASCII characters, and no comma";
                push(format!("{path}.writers[{index}]"), message);
            }
        }
        for (index, from) in self.from.iter().enumerate() {
            let path = format!("{path}.from[{index}]");
            match parse_net(from, path.clone()) {
                Ok(net) if is_everybody(&net) => {
                    problems.push(Problem::new(path, "would let everybody name any user"));
                }
                Ok(_) => {}
                Err(problem) => problems.push(problem),
            }
        }
        problems
    }
}

/// Returns `true` for a range with all addresses of IPv4 or of IPv6.
fn is_everybody(net: &Net) -> bool {
    let has = |ends: [IpAddr; 2]| ends.into_iter().all(|address| net.contains(address));
    has([Ipv4Addr::UNSPECIFIED.into(), Ipv4Addr::BROADCAST.into()])
        || has([Ipv6Addr::UNSPECIFIED.into(), Ipv6Addr::from_bits(u128::MAX).into()])
}

/// The compiled rules.
#[derive(Debug)]
pub(crate) struct TrustedProxy {
    from: Vec<Net>,
    field: HeaderName,
    writers: Vec<String>,
}

/// A user whom the proxy has named.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct User {
    /// Visible ASCII characters without commas.
    pub name: Arc<str>,
    /// `true` if the user may change, too.
    pub is_writer: bool,
}

/// The proxy names several users, or none that can be one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the trusted proxy must name one user: up to 96 visible ASCII characters without a comma, in one field `control.trusted_proxy.user`"
)]
pub(crate) struct Misnamed;

impl TrustedProxy {
    /// Compiles a config without problems; `None` for any other.
    pub fn new(config: &TrustedProxyConfig) -> Option<Self> {
        let from = config.from.iter().map(|from| parse_net(from, String::new()).ok());
        Some(Self {
            from: from.collect::<Option<_>>()?,
            field: HeaderName::from_bytes(config.user.as_bytes()).ok()?,
            writers: config.writers.clone(),
        })
    }

    /// Returns the user of a request from this address. `None` if it does not come from the proxy, and if
    /// the proxy says nothing.
    ///
    /// # Errors
    ///
    /// Fails if the proxy does not name exactly one user. A list would let a client prepend a name.
    pub fn user(&self, client: IpAddr, headers: &HeaderMap) -> Result<Option<User>, Misnamed> {
        if !self.from.iter().any(|net| net.contains(client)) {
            return Ok(None);
        }
        let mut values = headers.get_all(&self.field).iter();
        let Some(value) = values.next() else { return Ok(None) };
        let name = value.to_str().ok().filter(|name| is_user(name.as_bytes())).ok_or(Misnamed)?;
        if values.next().is_some() {
            return Err(Misnamed);
        }
        let is_writer = self.writers.iter().any(|writer| writer == name);
        Ok(Some(User { name: name.into(), is_writer }))
    }
}

fn is_user(name: &[u8]) -> bool {
    (1..=USER_BYTES_MAX).contains(&name.len())
        && name.iter().all(|byte| byte.is_ascii_graphic() && *byte != b',')
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    fn config(from: &[&str], user: &str, writers: &[&str]) -> TrustedProxyConfig {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        TrustedProxyConfig { from: owned(from), user: user.to_owned(), writers: owned(writers) }
    }

    fn user_of(client: &str, values: &[&[u8]]) -> Result<Option<(String, bool)>, Misnamed> {
        let config = config(&["10.0.0.0/8", "fd00::7"], "x-forwarded-user", &["alice@example.com"]);
        assert_eq!(config.problems("p"), []);
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("x-forwarded-user", HeaderValue::from_bytes(value).unwrap());
        }
        let user = TrustedProxy::new(&config).unwrap().user(client.parse().unwrap(), &headers)?;
        Ok(user.map(|user| (user.name.to_string(), user.is_writer)))
    }

    #[test]
    fn a_user_is_named_by_the_proxy_alone() {
        let alice: &[&[u8]] = &[b"alice@example.com"];
        let named = |name: &str, is_writer| Ok(Some((name.to_owned(), is_writer)));
        for client in ["10.1.2.3", "::ffff:10.1.2.3", "fd00::7"] {
            assert_eq!(user_of(client, alice), named("alice@example.com", true), "{client}");
        }
        for client in ["11.0.0.1", "127.0.0.1", "fd00::8", "::10.0.0.1", "::1"] {
            assert_eq!(user_of(client, alice), Ok(None), "{client}");
            assert_eq!(user_of(client, &[b"", b"a,b"]), Ok(None), "it is not even read: {client}");
        }
        for other in ["bob@example.com", "ALICE@example.com", "alice@example.com.evil.example"] {
            assert_eq!(user_of("10.0.0.1", &[other.as_bytes()]), named(other, false));
        }
        assert_eq!(user_of("10.0.0.1", &[]), Ok(None));
    }

    #[test]
    fn lists_and_bad_bytes_name_nobody() {
        let long = [b'a'; USER_BYTES_MAX + 1];
        let alice: &[u8] = b"alice@example.com";
        for values in [
            &[b"".as_slice()] as &[&[u8]],
            &[alice, alice],
            &[alice, b"bob"],
            &[alice, b""],
            &[b"alice@example.com,bob"],
            &[b"alice@example.com,"],
            &[b"alice@example.com bob"],
            &[b"alice@example.com\t"],
            &["alic\u{e9}@example.com".as_bytes()],
            &[b"\xff"],
            &[&long],
        ] {
            assert_eq!(user_of("10.0.0.1", values), Err(Misnamed), "{values:?}");
        }
        assert!(user_of("10.0.0.1", &[&long[1..]]).unwrap().is_some());
    }

    #[test]
    fn each_problem_of_the_config_has_its_place() {
        let paths = |config: TrustedProxyConfig| -> Vec<String> {
            config.problems("p").into_iter().map(|problem| problem.path).collect()
        };
        assert_eq!(
            paths(config(&[], "a b", &["a", "", "b,c"])),
            ["p.from", "p.user", "p.writers[1]", "p.writers[2]"]
        );
        let wrong =
            ["0.0.0.0/0", "::/0", "proxy.example", "10.0.0.1/8", "10.0.0.1", "::ffff:0:0/96", "::/000"];
        assert_eq!(
            paths(config(&wrong, "x-user", &[])),
            ["p.from[0]", "p.from[1]", "p.from[2]", "p.from[3]", "p.from[5]", "p.from[6]"]
        );
        assert!(TrustedProxy::new(&config(&["proxy.example"], "x-user", &[])).is_none());
    }

    proptest! {
        #[test]
        fn a_name_that_is_accepted_is_one_plain_word(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let Ok(value) = HeaderValue::from_bytes(&bytes) else { return Ok(()) };
            if let Ok(Some((name, _))) = user_of("10.0.0.1", &[value.as_bytes()]) {
                prop_assert_eq!(name.as_bytes(), &bytes[..]);
                prop_assert!(name.bytes().all(|byte| (0x21..0x7f).contains(&byte) && byte != b','));
                prop_assert!((1..=USER_BYTES_MAX).contains(&name.len()));
            }
        }
    }
}
