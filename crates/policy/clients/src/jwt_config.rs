//! The config key `jwt` of the clients of a listener, and the places where keys are found.

use std::path::PathBuf;

use egret_config::{Duration, Problem, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use url::{Host, ParseError, Url};

/// Path of an issuer's metadata, behind the path of the issuer itself (OpenID Connect Discovery 1.0 §4).
const METADATA_PATH: &str = "/.well-known/openid-configuration";
/// Maximum length of the texts that are compared with claims, in bytes.
const TEXT_BYTES_MAX: usize = 1_024;
/// Maximum difference of clocks. A token would outlive its end by more.
const LEEWAY_MAX: Duration = Duration::from_secs(300);

/// JSON Web Tokens (RFC 7519) of one issuer, such as an OpenID Connect provider or a Kubernetes cluster. They
/// are signed with RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA, and must have `iss`,
/// `aud` and `exp`. Clients send them as they send `tokens`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JwtConfig {
    /// The issuer: the claim `iss` of its tokens, character for character.
    pub issuer: String,
    /// The name of this gateway, which the claim `aud` must be, or must have in its list.
    pub audience: String,
    /// The issuer's public keys (JWK Set, RFC 7517): an `https` URL, or the path of a file, which every
    /// reload reads again. `http` is possible on loopback. Default: the `jwks_uri` in
    /// `ISSUER/.well-known/openid-configuration`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jwks: Option<String>,
    /// The claim whose text is the client's name: 1 to 255 ASCII characters without control characters and
    /// `*`.
    #[serde(default = "name_default")]
    pub name: String,
    /// Token that Egret itself sends as `Authorization: Bearer` when it fetches the keys. The API server of
    /// Kubernetes asks for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// PEM file of certificate authorities that are trusted in addition to the system's when the keys are
    /// fetched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Difference between the clocks of the issuer and of this machine that tokens are accepted with, at most
    /// `5m`.
    #[serde(default = "egret_config::secs::<30>")]
    pub leeway: Duration,
}

fn name_default() -> String {
    "sub".to_owned()
}

/// The place where the keys of an issuer are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeySource {
    /// A file.
    File(PathBuf),
    /// A JWK Set at this URL.
    Keys(Url),
    /// The metadata of the issuer at this URL, which name the URL of the keys.
    Metadata(Url),
}

impl JwtConfig {
    /// Returns the place of the keys. Reports all mistakes of the key at `at`
    /// (`gateway.listen[0].clients.jwt`).
    pub(crate) fn check(&self, at: &str, problems: &mut Vec<Problem>) -> Option<KeySource> {
        let mut report =
            |key: &str, message: String| problems.push(Problem::new(format!("{at}.{key}"), message));
        for (key, text) in [("issuer", &self.issuer), ("audience", &self.audience), ("name", &self.name)] {
            if !(1..=TEXT_BYTES_MAX).contains(&text.len()) {
                report(key, format!("must have 1 to {TEXT_BYTES_MAX} bytes"));
            }
        }
        if self.leeway > LEEWAY_MAX {
            report("leeway", format!("must be at most `{LEEWAY_MAX}`"));
        }
        let is_sendable = |token: &Secret| token.expose().bytes().all(|byte| byte.is_ascii_graphic());
        if !self.token.as_ref().is_none_or(is_sendable) {
            report("token", "must have visible ASCII characters only".to_owned());
        }
        let (key, source) = self.source();
        match source {
            Ok(KeySource::File(_)) if self.token.is_some() || self.ca.is_some() => {
                report("jwks", "keys in a file are not fetched: leave out `token` and `ca`".to_owned());
                None
            }
            Ok(source) => Some(source),
            Err(error) => {
                report(key, error.to_string());
                None
            }
        }
    }

    /// Returns the key that names the place of the keys, and the place.
    fn source(&self) -> (&'static str, Result<KeySource, KeyUrlError>) {
        match &self.jwks {
            Some(jwks) if jwks.contains("://") => ("jwks", key_url(jwks).map(KeySource::Keys)),
            Some(jwks) => ("jwks", Ok(KeySource::File(jwks.into()))),
            None => {
                let text = format!("{}{METADATA_PATH}", self.issuer.trim_end_matches('/'));
                let has_more = self.issuer.contains(['?', '#']);
                let url = if has_more { Err(KeyUrlError::Query) } else { key_url(&text) };
                ("issuer", url.map(KeySource::Metadata))
            }
        }
    }

    /// Returns `true` if a token that one of the configs accepts is judged by the other one in the same way.
    pub(crate) fn judges_like(&self, other: &Self) -> bool {
        self.issuer == other.issuer
            && self.audience == other.audience
            && self.name == other.name
            && self.leeway == other.leeway
    }
}

/// Parses the URL of keys or metadata. An attacker on the way who could change them could prove any name.
pub(crate) fn key_url(text: &str) -> Result<Url, KeyUrlError> {
    let url = Url::parse(text).map_err(KeyUrlError::Parse)?;
    let is_local = match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        None => false,
    };
    match url.scheme() {
        "https" => {}
        "http" if is_local => {}
        _ => return Err(KeyUrlError::Scheme),
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(KeyUrlError::User);
    }
    Ok(url)
}

/// The reason why keys cannot be fetched from a URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum KeyUrlError {
    /// It is not a URL.
    #[error("not a URL: {0}; without `jwks`, the issuer is the URL of an OpenID Connect provider")]
    Parse(ParseError),
    /// Others could change the keys on their way.
    #[error("keys are fetched over `https`, or over `http` from loopback")]
    Scheme,
    /// It contains a user or password.
    #[error("the URL must not contain a user or password: use `token`")]
    User,
    /// An issuer has a query or fragment.
    #[error("an issuer without `jwks` must not have a query or fragment")]
    Query,
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn config(change: &Value) -> JwtConfig {
        let mut config = json!({ "issuer": "https://id.example/realms/a/", "audience": "egret" });
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn keys_are_in_the_place_that_the_config_names() {
        let source = |change: Value| config(&change).check("j", &mut Vec::new()).unwrap();
        let url = |text: &str| Url::parse(text).unwrap();
        let metadata = "https://id.example/realms/a/.well-known/openid-configuration";
        assert_eq!(source(json!({})), KeySource::Metadata(url(metadata)));
        let keys = "https://id.example/keys?policy=a";
        assert_eq!(source(json!({ "jwks": keys })), KeySource::Keys(url(keys)));
        for local in ["http://127.0.0.1:8080/keys", "http://[::1]/keys", "http://localhost/keys"] {
            assert_eq!(source(json!({ "jwks": local })), KeySource::Keys(url(local)));
        }
        let file = json!({ "jwks": "/etc/keys.json", "issuer": "kubernetes/serviceaccount" });
        assert_eq!(source(file), KeySource::File("/etc/keys.json".into()));
        assert_eq!((&*config(&json!({})).name, config(&json!({})).leeway), ("sub", Duration::from_secs(30)));
    }

    #[test]
    fn invalid_settings_are_reported_at_their_keys() {
        for (change, expected) in [
            (json!({ "issuer": "" }), vec!["j.issuer", "j.issuer"]),
            (json!({ "issuer": "id.example" }), vec!["j.issuer"]),
            (json!({ "issuer": "http://id.example" }), vec!["j.issuer"]),
            (json!({ "issuer": "https://id.example/?a" }), vec!["j.issuer"]),
            (json!({ "jwks": "http://id.example/keys" }), vec!["j.jwks"]),
            (json!({ "jwks": "http://127.0.0.1.example/keys" }), vec!["j.jwks"]),
            (json!({ "jwks": "ftp://127.0.0.1/keys" }), vec!["j.jwks"]),
            (json!({ "jwks": "https://me:hunter2@id.example/keys" }), vec!["j.jwks"]),
            (json!({ "jwks": "keys.json", "ca": "ca.pem" }), vec!["j.jwks"]),
            (json!({ "audience": "" }), vec!["j.audience"]),
            (json!({ "audience": "a".repeat(1_025) }), vec!["j.audience"]),
            (json!({ "name": "" }), vec!["j.name"]),
            (json!({ "leeway": "301s" }), vec!["j.leeway"]),
        ] {
            let mut problems = Vec::new();
            config(&change).check("j", &mut problems);
            assert!(!format!("{problems:?}").contains("hunter2"));
            let found: Vec<String> = problems.into_iter().map(|problem| problem.path).collect();
            assert_eq!(found, expected, "{change}");
        }
    }
}
