//! Endpoints that require credentials: Basic (RFC 7617), Bearer (RFC 6750), Digest (RFC 7616).

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use egret_har::base64;
use egret_items::words;
use serde_json::json;

use crate::call::ProviderCall;
use crate::digest::{md5, sha256};
use crate::endpoint::Endpoint;
use crate::error::{EndpointResult, ProviderError};
use crate::respond::{self, field_value};

pub(crate) const ENDPOINTS: &[Endpoint] = &[
    Endpoint::new("any", "/basic-auth/{user}/{password}", || any(basic))
        .about("401 with a challenge unless this user and password are given with Basic authentication.")
        .example("/basic-auth/user/password"),
    Endpoint::new("any", "/hidden-basic-auth/{user}/{password}", || any(hidden_basic))
        .about("As `/basic-auth`, with 404 and without a challenge.")
        .example("/hidden-basic-auth/user/password"),
    Endpoint::new("any", "/bearer", || any(bearer)).about("401 unless any bearer token is given."),
    Endpoint::new("any", "/digest-auth/{qop}/{user}/{password}", || any(digest_md5))
        .about("401 with a challenge unless this user and password are given with Digest authentication, with MD5.")
        .parameters("`qop` only `auth`")
        .example("/digest-auth/auth/user/password"),
    Endpoint::new("any", "/digest-auth/{qop}/{user}/{password}/{algorithm}", || any(digest_by))
        .about("The same with this algorithm.")
        .parameters("`algorithm` `MD5` or `SHA-256`")
        .example("/digest-auth/auth/user/password/SHA-256"),
];

async fn basic(Path((user, password)): Path<(String, String)>, call: ProviderCall) -> Response {
    let (given, is_right) = checked_basic(&call, &user, &password);
    if is_right {
        return known(StatusCode::OK, true, &given);
    }
    let challenge = HeaderValue::from_static("Basic realm=\"Fake Realm\"");
    respond::with(known(StatusCode::UNAUTHORIZED, false, &given), header::WWW_AUTHENTICATE, challenge)
}

async fn hidden_basic(Path((user, password)): Path<(String, String)>, call: ProviderCall) -> EndpointResult {
    let (given, is_right) = checked_basic(&call, &user, &password);
    if is_right {
        Ok(known(StatusCode::OK, true, &given))
    } else {
        Err(ProviderError::of(StatusCode::NOT_FOUND))
    }
}

fn known(status: StatusCode, is_right: bool, user: &str) -> Response {
    respond::json(status, &json!({ "authenticated": is_right, "user": user, "authorized": is_right }))
}

/// Returns the given user name, and `true` if user name and password are correct.
fn checked_basic(call: &ProviderCall, user: &str, password: &str) -> (String, bool) {
    let given = basic_credentials(call.field(&header::AUTHORIZATION)).unwrap_or_default();
    let is_right = given.0 == user && given.1 == password;
    (given.0, is_right)
}

fn basic_credentials(field: &str) -> Option<(String, String)> {
    let (scheme, credentials) = field.split_once(' ')?;
    let decoded = String::from_utf8(base64::decode_padded(credentials)?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    scheme.eq_ignore_ascii_case("basic").then(|| (user.to_owned(), password.to_owned()))
}

async fn bearer(call: ProviderCall) -> Response {
    let mut words = call.field(&header::AUTHORIZATION).split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("Bearer"), Some(token), None) => {
            respond::json(StatusCode::OK, &json!({ "authenticated": true, "token": token }))
        }
        _ => challenged(HeaderValue::from_static("Bearer")),
    }
}

fn challenged(challenge: HeaderValue) -> Response {
    let refused = ProviderError::of(StatusCode::UNAUTHORIZED).into_response();
    respond::with(refused, header::WWW_AUTHENTICATE, challenge)
}

async fn digest_md5(
    Path((qop, user, password)): Path<(String, String, String)>,
    call: ProviderCall,
) -> EndpointResult {
    digest_auth(&qop, &user, &password, "MD5", &call)
}

async fn digest_by(
    Path((qop, user, password, algorithm)): Path<(String, String, String, String)>,
    call: ProviderCall,
) -> EndpointResult {
    digest_auth(&qop, &user, &password, &algorithm, &call)
}

fn digest_auth(
    qop: &str,
    user: &str,
    password: &str,
    algorithm: &str,
    call: &ProviderCall,
) -> EndpointResult {
    if !qop.eq_ignore_ascii_case("auth") {
        return Err(ProviderError::bad_request(format!("invalid QOP directive: {qop:?} != \"auth\"")));
    }
    let Some(algorithm) = Algorithm::named(algorithm) else {
        return Err(ProviderError::parameter(
            "algorithm",
            format!("{algorithm} must be one of MD5 or SHA-256"),
        ));
    };
    let credentials = Digest::parse(call.field(&header::AUTHORIZATION));
    if credentials.is_some_and(|credentials| credentials.proves(user, password, call)) {
        let known = json!({ "authenticated": true, "user": user, "authorized": true });
        return Ok(respond::json(StatusCode::OK, &known));
    }
    let mut random = call.state.sequences.next();
    let mut token = || format!("{:016x}{:016x}", random.draw(), random.draw());
    let challenge = format!(
        "Digest qop=auth, realm=\"egret\", algorithm={}, nonce={}, opaque={}",
        algorithm.name(),
        token(),
        token()
    );
    Ok(challenged(field_value(&challenge)))
}

words! {
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Algorithm: name {
        Md5 => "MD5",
        Sha256 => "SHA-256",
    }
}

impl Algorithm {
    fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    fn hash(self, text: &str) -> String {
        match self {
            Self::Md5 => md5(text.as_bytes()),
            Self::Sha256 => sha256(text.as_bytes()),
        }
    }
}

/// The parameters of a Digest field.
struct Digest<'a> {
    parameters: BTreeMap<&'a str, &'a str>,
}

impl<'a> Digest<'a> {
    fn parse(field: &'a str) -> Option<Self> {
        let list = field.strip_prefix("Digest ")?;
        let pairs = list.split(',').map(|pair| pair.trim().split_once('=').unwrap_or((pair.trim(), "")));
        let unquoted = |value: &'a str| {
            value.strip_prefix('"').and_then(|value| value.strip_suffix('"')).unwrap_or(value)
        };
        Some(Self { parameters: pairs.map(|(name, value)| (name.trim(), unquoted(value.trim()))).collect() })
    }

    fn get(&self, name: &str) -> &str {
        self.parameters.get(name).copied().unwrap_or_default()
    }

    /// Returns `true` if the response proves knowledge of the password (RFC 7616 §3.4.1).
    fn proves(&self, user: &str, password: &str, call: &ProviderCall) -> bool {
        let algorithm = Algorithm::named(self.get("algorithm")).unwrap_or(Algorithm::Md5);
        let hash = |parts: &[&str]| algorithm.hash(&parts.join(":"));
        let secret = hash(&[user, self.get("realm"), password]);
        let target = call.uri().path_and_query().map_or("", |target| target.as_str());
        let request = hash(&[call.method().as_str(), target]);
        let (nonce, qop) = (self.get("nonce"), self.get("qop"));
        let expected = if matches!(qop, "auth" | "auth-int") {
            hash(&[&secret, nonce, self.get("nc"), self.get("cnonce"), qop, &request])
        } else {
            hash(&[&secret, nonce, &request])
        };
        self.get("username") == user && self.get("response") == expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture::{get_with, request};

    #[test]
    fn basic_credentials_are_read() {
        let both = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(basic_credentials("Basic dXNlcjpwYTpzcw=="), both("user", "pa:ss"));
        assert_eq!(basic_credentials("basic Og=="), both("", ""));
        for field in ["", "Basic", "Basic !", "Basic dXNlcg==", "Bearer dXNlcjpwYXNz"] {
            assert_eq!(basic_credentials(field), None, "{field}");
        }
    }

    /// Returns `true` if the Digest field proves knowledge of the password for this request.
    fn proves(field: &str, user: &str, password: &str, target: &str) -> bool {
        let call = ProviderCall::new(request("GET", target, &[], ""), std::sync::Arc::default());
        Digest::parse(field).unwrap().proves(user, password, &call)
    }

    #[test]
    fn the_digests_of_the_rfcs_are_accepted() {
        // RFC 2617 §3.5.
        let md5 = "Digest username=\"Mufasa\", realm=\"testrealm@host.com\", nonce=\"dcd98b7102dd2f0e8b11d0f600bfb0c093\", \
            uri=\"/dir/index.html\", qop=auth, nc=00000001, cnonce=\"0a4f113b\", \
            response=\"6629fae49393a05397450978507c4ef1\", opaque=\"5ccc069c403ebaf9f0171e9517f40e41\"";
        assert!(proves(md5, "Mufasa", "Circle Of Life", "/dir/index.html"));
        assert!(!proves(md5, "Mufasa", "Circle of Life", "/dir/index.html"), "another password");
        assert!(!proves(md5, "Scar", "Circle Of Life", "/dir/index.html"), "another user");
        assert!(!proves(md5, "Mufasa", "Circle Of Life", "/dir/"), "another target");
        // RFC 7616 §3.9.1.
        let sha = "Digest username=\"Mufasa\", realm=\"http-auth@example.org\", uri=\"/dir/index.html\", algorithm=SHA-256, \
            nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", nc=00000001, cnonce=\"f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ\", \
            qop=auth, response=\"753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1\"";
        assert!(proves(sha, "Mufasa", "Circle of Life", "/dir/index.html"));
    }

    #[tokio::test]
    async fn credentials_open_the_endpoints_and_nothing_else_does() {
        let status = |target: &'static str, authorization: &'static str| async move {
            let response = get_with(target, &[("authorization", authorization)]).await;
            (response.status, response.field("www-authenticate").to_owned())
        };
        let realm = "Basic realm=\"Fake Realm\"".to_owned();
        let (right, wrong) = ("Basic dXNlcjpwYXNz", "Basic dXNlcjpubw==");
        assert_eq!(status("/basic-auth/user/pass", right).await, (200, String::new()));
        assert_eq!(status("/basic-auth/user/pass", wrong).await, (401, realm));
        assert_eq!(status("/hidden-basic-auth/user/pass", right).await, (200, String::new()));
        assert_eq!(status("/hidden-basic-auth/user/pass", wrong).await, (404, String::new()));
        assert_eq!(status("/bearer", "Bearer token").await, (200, String::new()));
        for other in ["Bearer", "Bearer a b", "bearer token", "Basic token"] {
            assert_eq!(status("/bearer", other).await, (401, "Bearer".into()), "{other}");
        }
        assert_eq!(status("/digest-auth/auth-int/user/pass", "").await.0, 400);
        assert_eq!(status("/digest-auth/auth/user/pass/SHA-1", "").await.0, 400);
        let (code, challenge) = status("/digest-auth/auth/user/pass/sha-256", "Digest x").await;
        assert_eq!(code, 401);
        assert!(
            challenge.starts_with("Digest qop=auth, realm=\"egret\", algorithm=SHA-256, nonce="),
            "{challenge}"
        );
    }
}
