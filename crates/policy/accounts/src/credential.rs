//! Compiled credentials, and how they are added to a request that is about to be sent.

use std::fmt;
use std::sync::Arc;

use egret_aws::percent_encode;
use egret_config::Problem;
use egret_har::base64;
use egret_http1::{is_field_value, is_token};
use egret_match::matching::decode;
use egret_message::Fault;
use egret_store::shared::SharedTokens;
use zeroize::Zeroizing;

use super::config::{AccountConfig, ApiKeyConfig, BasicConfig, CertificateConfig};
use super::in_force::SecretsInForce;
use super::outgoing::{Applied, Outgoing};
use super::sigv4::RequestSigner;
use super::token::{OAuth2Config, Token};
use super::unusable::Unusable;

/// A compiled credential. `Debug` never shows the secret.
pub(super) enum Credential {
    /// A header field: its name in lower case, and its value.
    Field(Box<str>, Zeroizing<Vec<u8>>),
    /// A query parameter: its name, and `name=value` as it is sent.
    Query(Box<str>, Zeroizing<Vec<u8>>),
    /// A token that Egret fetches, and the kind of the account.
    Token(&'static str, Arc<Token>),
    /// A signature over the request.
    Signature(Box<RequestSigner>),
    /// A client certificate for the TLS handshake.
    Certificate(CertificateConfig),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind())
    }
}

impl Credential {
    /// Compiles the credential of `config` for the account `name`. `before` is the token that the account
    /// had before a reload; other gateways get the token through `tokens`, and recordings through `in_force`,
    /// so that they do not show it. Returns `None` and adds a problem
    /// if the config is wrong. `at` is the path of the account in the config.
    pub fn compile(
        config: &AccountConfig,
        name: &Arc<str>,
        before: Option<&Arc<Token>>,
        tokens: Option<&Arc<dyn SharedTokens>>,
        in_force: &Arc<SecretsInForce>,
        at: &str,
        problems: &mut Vec<Problem>,
    ) -> Option<Self> {
        let compiled = match config.kinds()[..] {
            ["basic"] => config.basic.as_ref().map(basic),
            ["api_key"] => config.api_key.as_ref().map(api_key),
            ["bearer"] => config
                .bearer
                .as_ref()
                .map(|bearer| field("authorization", "Bearer ", bearer.token.expose(), "token")),
            ["oauth2"] => {
                let (oauth2, at) = (config.oauth2.as_ref()?, format!("{at}.oauth2"));
                let token = Token::compile(name, oauth2, before, tokens, in_force, &at, problems);
                return token.map(|token| Self::Token("oauth2", token));
            }
            ["gcp" | "azure" | "github"] => match config.cloud_request()? {
                Ok((kind, key, request)) => {
                    let at = format!("{at}.{kind}");
                    let mut found = Vec::new();
                    let token = Token::compile(name, &request, before, tokens, in_force, &at, &mut found);
                    problems.extend(found.into_iter().map(|problem| in_cloud_terms(&problem, &at, key)));
                    return token.map(|token| Self::Token(kind, token));
                }
                Err(wrong) => Some(Err(wrong)),
            },
            ["sigv4"] => {
                let sigv4 = config.sigv4.as_ref()?;
                let fetched = |request: &OAuth2Config| {
                    let at = format!("{at}.sigv4.identity");
                    Token::compile(name, request, before, tokens, in_force, &at, problems)
                };
                match RequestSigner::compile(sigv4, fetched) {
                    Ok(signer) => return signer.map(|signer| Self::Signature(Box::new(signer))),
                    Err(wrong) => Some(Err(wrong)),
                }
            }
            ["certificate"] => {
                config.certificate.clone().map(|certificate| Ok(Self::Certificate(certificate)))
            }
            [] => {
                problems.push(Problem::new(at, format!("the credential is missing: set one of {KINDS}")));
                None
            }
            [first, second, ..] => {
                let message = format!("`{first}` and `{second}` exclude each other: use two accounts");
                problems.push(Problem::new(at, message));
                None
            }
            [_] => None,
        };
        let kind = config.kinds().first().copied().unwrap_or_default();
        match compiled? {
            Ok(credential) => Some(credential),
            Err((key, message)) => {
                problems.push(Problem::new(format!("{at}.{kind}.{key}"), message));
                None
            }
        }
    }

    /// The kind of credential, by its config key.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Field(name, value) if &**name == "authorization" && value.starts_with(b"Basic ") => "basic",
            Self::Field(name, value) if &**name == "authorization" && value.starts_with(b"Bearer ") => {
                "bearer"
            }
            Self::Field(..) | Self::Query(..) => "api_key",
            Self::Token(kind, _) => kind,
            Self::Signature(_) => "sigv4",
            Self::Certificate(_) => "certificate",
        }
    }

    /// Maximum length of a body that the credential must see, in bytes.
    pub fn body_bytes_max(&self) -> usize {
        match self {
            Self::Signature(signer) => signer.body_bytes_max(),
            Self::Field(..) | Self::Query(..) | Self::Token(..) | Self::Certificate(_) => 0,
        }
    }

    /// Adds the credential to the request. It replaces any field or parameter of the same name.
    pub fn apply(&self, outgoing: &Outgoing<'_>, applied: &mut Applied) -> Result<(), Unusable> {
        match self {
            Self::Field(name, value) => applied.fields.set(name.as_bytes(), value),
            Self::Query(name, pair) => applied.target = Some(with_parameter(outgoing, name, pair)),
            Self::Token(_, token) => {
                let value = token.field().ok_or(Fault("there is no token yet".into()))?;
                applied.fields.set(b"authorization", &value);
            }
            Self::Signature(signer) => signer.sign(outgoing, applied)?,
            Self::Certificate(_) => {}
        }
        Ok(())
    }
}

/// All kinds, for the message about an account that has none.
const KINDS: &str =
    "`basic`, `api_key`, `bearer`, `oauth2`, `gcp`, `azure`, `github`, `sigv4`, `certificate`";

/// Returns a problem of a token's request under the config key of the cloud's account that causes it: one of
/// the same name, or the one that names the endpoint.
pub(super) fn in_cloud_terms(problem: &Problem, at: &str, endpoint: &str) -> Problem {
    let key = problem.path.strip_prefix(at).and_then(|key| key.strip_prefix('.')).unwrap_or_default();
    let key = match key {
        "client_id" | "wait_max" | "timeout" => key,
        "scope" => "resource",
        // The other endpoint is the file with the key.
        "assertion.key" if endpoint == "authority" => "certificate.key",
        "assertion.key" if endpoint == "url" => "key",
        _ => endpoint,
    };
    Problem::new(format!("{at}.{key}"), problem.message.as_str())
}

/// A config key, and the problem with its value.
type Wrong = (&'static str, String);

fn basic(config: &BasicConfig) -> Result<Credential, Wrong> {
    if config.user.contains(':') || config.user.bytes().any(|byte| byte.is_ascii_control()) {
        return Err((
            "user",
            "a user must not contain a colon or a control character (RFC 7617 §2)".to_owned(),
        ));
    }
    let password = config.password.as_ref().map_or("", |password| password.expose());
    if password.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(("password", "a password must not contain a control character (RFC 7617 §2)".to_owned()));
    }
    let pair = Zeroizing::new(format!("{}:{password}", config.user));
    let mut value = Zeroizing::new(b"Basic ".to_vec());
    base64::encode(pair.as_bytes(), &mut value);
    Ok(Credential::Field("authorization".into(), value))
}

fn api_key(config: &ApiKeyConfig) -> Result<Credential, Wrong> {
    match (&config.header, &config.query) {
        (Some(header), None) => {
            if !is_token(header.as_bytes()) || is_framing(header) {
                return Err(("header", format!("`{header}` is not a header field that may carry a key")));
            }
            field(&header.to_ascii_lowercase(), &config.prefix, config.value.expose(), "value")
        }
        (None, Some(_)) if !config.prefix.is_empty() => {
            Err(("prefix", "only for a key in a header field".to_owned()))
        }
        (None, Some(name)) if name.is_empty() => {
            Err(("query", "the name of the parameter must not be empty".to_owned()))
        }
        (None, Some(name)) => {
            let mut pair = Zeroizing::new(Vec::new());
            percent_encode(name.as_bytes(), &mut pair);
            pair.push(b'=');
            percent_encode(config.value.expose().as_bytes(), &mut pair);
            Ok(Credential::Query(name.as_str().into(), pair))
        }
        _ => Err(("value", "set either `header` or `query`: it names the place of the key".to_owned())),
    }
}

/// Returns a credential in a header field. `key` is the config key of its secret part.
fn field(name: &str, prefix: &str, secret: &str, key: &'static str) -> Result<Credential, Wrong> {
    let value = Zeroizing::new([prefix.as_bytes(), secret.as_bytes()].concat());
    if secret.bytes().any(|byte| byte.is_ascii_control()) || !is_field_value(&value) {
        let message =
            "contains a control character, perhaps a line end, which is not allowed in a header field";
        return Err((key, message.to_owned()));
    }
    Ok(Credential::Field(name.into(), value))
}

/// Returns `true` for a field that routes or frames a message, or that applies to one connection only.
fn is_framing(name: &str) -> bool {
    const NAMES: [&str; 11] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "via",
        "expect",
        "proxy-connection",
    ];
    NAMES.iter().any(|framing| framing.eq_ignore_ascii_case(name))
}

/// Returns path and query with `pair` appended, and without any other parameter called `name`.
fn with_parameter(outgoing: &Outgoing<'_>, name: &str, pair: &[u8]) -> Vec<u8> {
    let mut target = outgoing.path.to_vec();
    let mut separator = b'?';
    let others = outgoing.query.unwrap_or_default().split(|byte| *byte == b'&');
    for other in others.filter(|other| !other.is_empty()) {
        let end = other.iter().position(|byte| *byte == b'=').unwrap_or(other.len());
        if is_named(&other[..end], name.as_bytes()) {
            continue;
        }
        target.push(separator);
        target.extend_from_slice(other);
        separator = b'&';
    }
    target.push(separator);
    target.extend_from_slice(pair);
    target
}

/// Returns `true` if an encoded parameter name decodes to `name`.
fn is_named(encoded: &[u8], name: &[u8]) -> bool {
    let spaced: Vec<u8> = encoded.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    let mut decoded = Vec::with_capacity(spaced.len());
    decode(&spaced, |bytes| decoded.extend_from_slice(bytes));
    decoded == name
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use egret_message::{Changes, Fields};

    fn outgoing<'a>(path: &'a [u8], query: Option<&'a [u8]>, changes: &'a Changes) -> Outgoing<'a> {
        Outgoing {
            now: egret_clock::Timestamp::default(),
            tls: true,
            method: b"GET",
            host: b"one.example",
            base: b"",
            path,
            query,
            fields: Fields::new(&[], b"", changes),
            body: Some(b""),
        }
    }

    fn with_key(path: &str, query: Option<&str>) -> String {
        let mut pair = Vec::new();
        percent_encode(b"key=&", &mut pair);
        let pair = [b"key=", &*pair].concat();
        let changes = Changes::default();
        let outgoing = outgoing(path.as_bytes(), query.map(str::as_bytes), &changes);
        String::from_utf8(with_parameter(&outgoing, "key", &pair)).unwrap()
    }

    #[test]
    fn a_key_in_the_query_replaces_all_of_its_name() {
        for (query, expected) in [
            (None, "/a?key=key%3D%26"),
            (Some(""), "/a?key=key%3D%26"),
            (Some("key"), "/a?key=key%3D%26"),
            (Some("key=1&key=2"), "/a?key=key%3D%26"),
            (Some("b=1&ke%79=2&keys=3&c"), "/a?b=1&keys=3&c&key=key%3D%26"),
            (Some("%6&%&key%"), "/a?%6&%&key%&key=key%3D%26"),
        ] {
            assert_eq!(with_key("/a", query), expected, "{query:?}");
        }
    }

    #[test]
    fn neither_debug_nor_kind_shows_a_credential() {
        let secret = Zeroizing::new(b"Basic aHVudGVyMg==".to_vec());
        let credential = Credential::Field("authorization".into(), secret);
        assert_eq!((format!("{credential:?}").as_str(), credential.kind()), ("basic", "basic"));
    }

    #[test]
    fn a_field_that_frames_or_routes_holds_no_key() {
        for name in ["Host", "content-length", "Transfer-Encoding", "connection", "a b", ""] {
            let config = ApiKeyConfig {
                header: Some(name.to_owned()),
                query: None,
                prefix: String::new(),
                value: egret_config::Secret::from_value("test", "k".to_owned()),
            };
            assert!(api_key(&config).is_err(), "{name}");
        }
    }

    proptest! {
        #[test]
        fn other_parameters_stay_as_they_are(query in "[a-zA-Z0-9%&=+._-]{0,40}") {
            let target = with_key("/a", Some(&query));
            let (left, key) = target.rsplit_once("key=").unwrap();
            prop_assert_eq!(key, "key%3D%26");
            let left = left.strip_prefix("/a").unwrap().trim_start_matches('?').trim_end_matches('&');
            let kept: Vec<&str> = query
                .split('&')
                .filter(|pair| !pair.is_empty() && !is_named(pair.split('=').next().unwrap().as_bytes(), b"key"))
                .collect();
            prop_assert_eq!(left, kept.join("&"));
        }
    }
}
