//! Endpoints that require credentials: Basic (RFC 7617), Bearer (RFC 6750), Digest (RFC 7616).

use std::collections::BTreeMap;

use axum::extract::Path;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::any;
use serde_json::json;

use super::answer::{self, Answer, field_value};
use super::call::Call;
use super::digest::{md5, sha256};
use super::endpoint::Endpoint;
use super::error::ProviderError;
use crate::base64;

pub(super) const ENDPOINTS: &[Endpoint] = &[
    Endpoint {
        methods: "any",
        path: "/basic-auth/{user}/{password}",
        parameters: "",
        about: "401 with a challenge unless this user and password are given with Basic authentication.",
        example: "/basic-auth/user/password",
        route: || any(basic),
    },
    Endpoint {
        methods: "any",
        path: "/hidden-basic-auth/{user}/{password}",
        parameters: "",
        about: "As `/basic-auth`, with 404 and without a challenge.",
        example: "/hidden-basic-auth/user/password",
        route: || any(hidden_basic),
    },
    Endpoint {
        methods: "any",
        path: "/bearer",
        parameters: "",
        about: "401 unless any bearer token is given.",
        example: "/bearer",
        route: || any(bearer),
    },
    Endpoint {
        methods: "any",
        path: "/digest-auth/{qop}/{user}/{password}",
        parameters: "`qop` only `auth`",
        about: "401 with a challenge unless this user and password are given with Digest authentication, with MD5.",
        example: "/digest-auth/auth/user/password",
        route: || any(digest_md5),
    },
    Endpoint {
        methods: "any",
        path: "/digest-auth/{qop}/{user}/{password}/{algorithm}",
        parameters: "`algorithm` `MD5` or `SHA-256`",
        about: "The same with this algorithm.",
        example: "/digest-auth/auth/user/password/SHA-256",
        route: || any(digest_by),
    },
];

async fn basic(Path((user, password)): Path<(String, String)>, call: Call) -> Response {
    let (given, is_right) = checked_basic(&call, &user, &password);
    if is_right {
        return known(StatusCode::OK, true, &given);
    }
    let challenge = HeaderValue::from_static("Basic realm=\"Fake Realm\"");
    answer::with(known(StatusCode::UNAUTHORIZED, false, &given), header::WWW_AUTHENTICATE, challenge)
}

async fn hidden_basic(Path((user, password)): Path<(String, String)>, call: Call) -> Answer {
    let (given, is_right) = checked_basic(&call, &user, &password);
    if is_right {
        Ok(known(StatusCode::OK, true, &given))
    } else {
        Err(ProviderError::of(StatusCode::NOT_FOUND))
    }
}

fn known(status: StatusCode, is_right: bool, user: &str) -> Response {
    answer::json(status, &json!({ "authenticated": is_right, "user": user, "authorized": is_right }))
}

/// Returns the given user name, and `true` if user name and password are correct.
fn checked_basic(call: &Call, user: &str, password: &str) -> (String, bool) {
    let given = basic_credentials(call.field(&header::AUTHORIZATION)).unwrap_or_default();
    let is_right = given.0 == user && given.1 == password;
    (given.0, is_right)
}

fn basic_credentials(field: &str) -> Option<(String, String)> {
    let (scheme, credentials) = field.split_once(' ')?;
    let decoded = String::from_utf8(base64::decode(credentials)?).ok()?;
    let (user, password) = decoded.split_once(':')?;
    scheme.eq_ignore_ascii_case("basic").then(|| (user.to_owned(), password.to_owned()))
}

async fn bearer(call: Call) -> Response {
    let mut words = call.field(&header::AUTHORIZATION).split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some("Bearer"), Some(token), None) => {
            answer::json(StatusCode::OK, &json!({ "authenticated": true, "token": token }))
        }
        _ => challenged(HeaderValue::from_static("Bearer")),
    }
}

fn challenged(challenge: HeaderValue) -> Response {
    let refused = ProviderError::of(StatusCode::UNAUTHORIZED).into_response();
    answer::with(refused, header::WWW_AUTHENTICATE, challenge)
}

async fn digest_md5(Path((qop, user, password)): Path<(String, String, String)>, call: Call) -> Answer {
    digest_auth(&qop, &user, &password, "MD5", &call)
}

async fn digest_by(
    Path((qop, user, password, algorithm)): Path<(String, String, String, String)>,
    call: Call,
) -> Answer {
    digest_auth(&qop, &user, &password, &algorithm, &call)
}

fn digest_auth(qop: &str, user: &str, password: &str, algorithm: &str, call: &Call) -> Answer {
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
        return Ok(answer::json(StatusCode::OK, &known));
    }
    let mut random = call.lab.sequences.next();
    let mut token = || format!("{:016x}{:016x}", random.next(), random.next());
    let challenge = format!(
        "Digest qop=auth, realm=\"egret\", algorithm={}, nonce={}, opaque={}",
        algorithm.name(),
        token(),
        token()
    );
    Ok(challenged(field_value(&challenge)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Algorithm {
    Md5,
    Sha256,
}

impl Algorithm {
    fn named(name: &str) -> Option<Self> {
        [Self::Md5, Self::Sha256].into_iter().find(|algorithm| algorithm.name().eq_ignore_ascii_case(name))
    }

    fn name(self) -> &'static str {
        match self {
            Self::Md5 => "MD5",
            Self::Sha256 => "SHA-256",
        }
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
    fn proves(&self, user: &str, password: &str, call: &Call) -> bool {
        let algorithm = Algorithm::named(self.get("algorithm")).unwrap_or(Algorithm::Md5);
        let hash = |parts: &[&str]| algorithm.hash(&parts.join(":"));
        let secret = hash(&[user, self.get("realm"), password]);
        let target = call.uri().path_and_query().map_or("", |target| target.as_str());
        let asked = hash(&[call.method().as_str(), target]);
        let (nonce, qop) = (self.get("nonce"), self.get("qop"));
        let expected = if matches!(qop, "auth" | "auth-int") {
            hash(&[&secret, nonce, self.get("nc"), self.get("cnonce"), qop, &asked])
        } else {
            hash(&[&secret, nonce, &asked])
        };
        self.get("username") == user && self.get("response") == expected
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn basic_credentials_are_read() {
        let both = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(basic_credentials("Basic dXNlcjpwYTpzcw=="), both("user", "pa:ss"));
        assert_eq!(basic_credentials("basic Og=="), both("", ""));
        for field in ["", "Basic", "Basic !", "Basic dXNlcg==", "Bearer dXNlcjpwYXNz"] {
            assert_eq!(basic_credentials(field), None, "{field}");
        }
    }
}
