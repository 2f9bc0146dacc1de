//! The name and the token by which the command proves to a gateway who it is.

use std::env;

use egret_config::Secret;
use egret_items::opaque;
use egret_settings::config::Config;
use zeroize::Zeroizing;

/// The variable with the token, for users who may not read that of the config.
pub const TOKEN_VARIABLE: &str = "EGRET_CLIENT_TOKEN";

/// A client's name and token.
pub struct ClientProof {
    name: String,
    token: Zeroizing<String>,
}

opaque!(ClientProof { name });

/// The reason why the command cannot prove who it is.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoProof {
    /// The user names no client.
    #[error(
        "the gateway asks its clients who they are (`clients` of the listener): name the client with --client"
    )]
    NoName,
    /// There is no token for this client.
    #[error(
        "there is no token of the client `{0}`: set the variable {TOKEN_VARIABLE}, or name with --config a config that has it"
    )]
    NoToken(String),
}

impl ClientProof {
    /// Finds the token of the client `name`: in the variable, or in the config.
    pub fn find(name: Option<&str>, config: &Config) -> Result<Self, NoProof> {
        Self::of(name, env::var(TOKEN_VARIABLE).ok().map(Zeroizing::new), config)
    }

    /// Returns `true` if the variable has the token, so that no config is needed.
    pub fn is_given() -> bool {
        env::var_os(TOKEN_VARIABLE).is_some_and(|token| !token.is_empty())
    }

    fn of(name: Option<&str>, given: Option<Zeroizing<String>>, config: &Config) -> Result<Self, NoProof> {
        let name = name.ok_or(NoProof::NoName)?;
        let clients = config.gateway.listen.iter().filter_map(|listener| listener.clients.as_ref());
        let mut configured = clients.filter_map(|clients| clients.tokens.get(name));
        let token = given.filter(|token| !token.is_empty()).or_else(|| configured.next().and_then(resolved));
        let token = token.ok_or_else(|| NoProof::NoToken(name.to_owned()))?;
        Ok(Self { name: name.to_owned(), token })
    }

    /// Returns the part of a proxy's URL before the host (RFC 3986 §3.2.1).
    pub fn userinfo(&self) -> String {
        format!("{}:{}@", encoded(&self.name), encoded(&self.token))
    }
}

/// Returns a token of a config, of which no secret was read so far.
fn resolved(token: &Secret) -> Option<Zeroizing<String>> {
    if !token.is_placeholder() {
        return Some(Zeroizing::new(token.expose().to_owned()));
    }
    let token = Secret::resolve(&token.to_string()).ok()?;
    Some(Zeroizing::new(token.expose().to_owned()))
}

/// Encodes all bytes but those that mean the same everywhere in a URL (RFC 3986 §2.3).
fn encoded(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let encode =
        |byte: u8| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") };
    text.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: &str = "
gateway:
  listen:
    - 127.0.0.1:0
    - { address: '127.0.0.1:0', clients: { tokens: { checkout: '${env:CARGO_MANIFEST_DIR}' } } }
";

    #[test]
    fn the_variable_precedes_the_config() {
        let config = Config::parse("egret.yaml", CONFIG).unwrap();
        let given = |text: &str| Some(Zeroizing::new(text.to_owned()));
        let of = |name, given| ClientProof::of(name, given, &config).map(|proof| proof.userinfo());
        assert_eq!(of(Some("checkout"), given("a/b@c:d%e")).unwrap(), "checkout:a%2Fb%40c%3Ad%25e@");
        let own = encoded(env!("CARGO_MANIFEST_DIR"));
        assert_eq!(of(Some("checkout"), None).unwrap(), format!("checkout:{own}@"));
        assert_eq!(of(Some("checkout"), given("")).unwrap(), format!("checkout:{own}@"));
        assert_eq!(of(Some("a b"), given("t")).unwrap(), "a%20b:t@");
        assert_eq!(of(Some("other"), None), Err(NoProof::NoToken("other".to_owned())));
        assert_eq!(of(None, given("t")), Err(NoProof::NoName));
        let proof = ClientProof::of(Some("checkout"), given("hidden"), &config).unwrap();
        assert!(!format!("{proof:?}").contains("hidden"));
    }
}
