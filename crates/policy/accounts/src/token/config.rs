//! The config keys of accounts that use OAuth 2.0 (RFC 6749), and the URL of the token endpoint.

use std::collections::BTreeMap;

use egret_config::{Duration, Problem, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assertion::AssertionConfig;
use super::aws::step::AwsSource;
use super::endpoint::TokenEndpoint;

/// An access token that Egret fetches, renews before it expires (RFC 6749), and sends in `Authorization` (RFC
/// 6750 §2.1).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OAuth2Config {
    /// Grant type of the token request.
    #[serde(default)]
    pub grant: Grant,
    /// URL of the token endpoint (RFC 6749 §3.2): `https://id.example/oauth/token`. If a provider is
    /// configured for this address, its certificate authorities, timeouts and connection pool are used. Flows
    /// do not apply to these requests.
    pub token_url: String,
    /// Identifier of the client.
    pub client_id: String,
    /// Secret of the client. Omit it for a client without a secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_secret: Option<Secret>,
    /// Refresh token for `grant: refresh_token`. If the token endpoint returns a new one, Egret uses it from
    /// then on and keeps it in memory only, or encrypted on disk in a cluster with a `key`. If the endpoint
    /// accepts each refresh token only once, configure a new one before a restart without such a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refresh_token: Option<Secret>,
    /// Assertion that Egret signs, for `grant: jwt_bearer` and `client_auth: private_key_jwt` (RFC 7523).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assertion: Option<AssertionConfig>,
    /// Token that proves who the client is, issued by somebody else whom the endpoint trusts (RFC 7523 §2.2),
    /// such as the token of a Kubernetes service account: `${file:PATH}`. It replaces `client_secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_assertion: Option<Secret>,
    /// Scopes to request (RFC 6749 §3.3).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scope: Vec<String>,
    /// Audience of the token, for endpoints that expect the parameter `audience`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub audience: Option<String>,
    /// Resources that the token is used for, as absolute URIs (RFC 8707).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resource: Vec<String>,
    /// Additional parameters of the token request, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub parameters: BTreeMap<String, String>,
    /// Method of client authentication (RFC 6749 §2.3.1, RFC 7523 §2.2). A client without a secret sends only
    /// its `client_id`, as with `post`. With `grant: jwt_bearer` it sends it only with `post`.
    #[serde(default)]
    pub client_auth: ClientAuth,
    /// Time before its expiry at which a token is renewed; at most a quarter of its lifetime.
    #[serde(default = "egret_config::secs::<60>")]
    pub renew_before: Duration,
    /// Lifetime of a token whose response contains none.
    #[serde(default = "egret_config::secs::<300>")]
    pub default_life: Duration,
    /// Maximum time that a call waits for a token if there is none. After that it is rejected with 503
    /// `account-unavailable`.
    #[serde(default = "wait_max_default")]
    pub wait_max: Duration,
    /// Maximum duration of a whole token request.
    #[serde(default = "timeout_default")]
    pub timeout: Duration,
    /// Time without requests to the endpoint after a failure. A token that is still valid is used meanwhile;
    /// if there is none, calls are rejected with 503 `account-unavailable`.
    #[serde(default)]
    pub retry: OAuth2RetryConfig,
    /// The identity of AWS whose keys are fetched in place of a token.
    #[serde(skip)]
    pub(super) aws: Option<AwsSource>,
}

/// Grant type of a token request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Grant {
    /// The credentials of the client (RFC 6749 §4.4).
    #[default]
    ClientCredentials,
    /// A refresh token (RFC 6749 §6).
    RefreshToken,
    /// An `assertion` that Egret signs (RFC 7523 §2.1).
    JwtBearer,
    /// The identity of the machine, which the metadata service of its cloud vouches for. Only accounts of
    /// clouds use it.
    #[serde(skip)]
    Metadata(MetadataService),
    /// The installation of a GitHub App, which proves itself by an `assertion`. Only accounts of GitHub use
    /// it.
    #[serde(skip)]
    Installation,
}

/// The metadata service of a cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MetadataService {
    /// Google Cloud.
    Google,
    /// Microsoft Azure.
    Azure,
}

impl MetadataService {
    /// The header field that the service requires. A client that can be made to fetch a URL cannot be made to
    /// send it.
    pub(super) fn field(self) -> (&'static str, &'static str) {
        match self {
            Self::Google => ("Metadata-Flavor", "Google"),
            Self::Azure => ("Metadata", "true"),
        }
    }
}

/// Method of client authentication.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientAuth {
    /// `Authorization: Basic`.
    #[default]
    Basic,
    /// The parameters `client_id` and `client_secret`.
    Post,
    /// An `assertion` that Egret signs (RFC 7523 §2.2).
    PrivateKeyJwt,
}

egret_config::keys! {
    /// Backoff after a failure of the token endpoint: a random time of about `base`, doubled with each
    /// further failure. After a failure that a retry is unlikely to fix, such as a wrong secret, ten times as
    /// long.
    #[derive(Copy, Eq)]
    pub struct OAuth2RetryConfig {
        /// Wait after the first failure.
        pub base: Duration = Duration::from_secs(1),
        /// Maximum wait.
        pub max: Duration = Duration::from_secs(60),
    }
}

pub(super) fn wait_max_default() -> Duration {
    Duration::from_secs(10)
}

pub(super) fn timeout_default() -> Duration {
    Duration::from_secs(10)
}

/// Parameters with a separate config key.
const OWN_PARAMETERS: [&str; 10] = [
    "grant_type",
    "client_id",
    "client_secret",
    "client_assertion",
    "client_assertion_type",
    "assertion",
    "refresh_token",
    "scope",
    "audience",
    "resource",
];
/// Maximum number of additional parameters, scopes and resources of one account.
const LIST_MAX: usize = 100;

impl OAuth2Config {
    /// Creates the config of a request for a token, with all defaults.
    pub(super) fn new(grant: Grant, token_url: String, client_id: String) -> Self {
        Self {
            grant,
            token_url,
            client_id,
            client_secret: None,
            refresh_token: None,
            assertion: None,
            client_assertion: None,
            scope: Vec::new(),
            audience: None,
            resource: Vec::new(),
            parameters: BTreeMap::new(),
            client_auth: ClientAuth::default(),
            renew_before: egret_config::secs::<60>(),
            default_life: egret_config::secs::<300>(),
            wait_max: wait_max_default(),
            timeout: timeout_default(),
            retry: OAuth2RetryConfig::default(),
            aws: None,
        }
    }

    /// The secrets of the token request. An assertion of somebody else is not one of them: it is another one
    /// from time to time, for the same client.
    pub(crate) fn secrets(&self) -> impl Iterator<Item = &Secret> {
        self.client_secret.iter().chain(&self.refresh_token)
    }

    /// The private key, which is never sent.
    pub(crate) fn private_key(&self) -> Option<&Secret> {
        self.assertion.as_ref().map(|assertion| &assertion.key)
    }

    /// `true` if the token is that of the machine, so no other gateway may have it.
    pub(crate) fn is_of_machine(&self) -> bool {
        matches!(self.grant, Grant::Metadata(_))
    }

    /// `true` if other gateways may have what is fetched: a token, and not that of the machine.
    pub(super) fn is_shareable(&self) -> bool {
        !self.is_of_machine() && self.aws.is_none()
    }

    /// `true` if only the proof of the client differs from `before`: the token that the last one has brought
    /// stays valid.
    pub(super) fn is_same_client(&self, before: &Self) -> bool {
        let is_same_aws = match (&self.aws, &before.aws) {
            (Some(aws), Some(before)) => aws.is_same_identity(before),
            (aws, before) => aws.is_none() && before.is_none() && self.client_assertion.is_some(),
        };
        let Self { client_assertion, aws, .. } = self.clone();
        is_same_aws && Self { client_assertion, aws, ..before.clone() } == *self
    }

    /// Adds each mistake to `problems`; `at` is the path of this config.
    pub(super) fn check(&self, at: &str, problems: &mut Vec<Problem>) {
        let mut check = |key: &str, is_good: bool, message: &str| {
            if !is_good {
                problems.push(Problem::new(format!("{at}.{key}"), message));
            }
        };
        let needs_refresh_token = self.grant == Grant::RefreshToken;
        check("client_id", !self.client_id.is_empty(), "the client's identifier must not be empty");
        check(
            "refresh_token",
            self.refresh_token.is_some() || !needs_refresh_token,
            "required for `grant: refresh_token`",
        );
        check(
            "refresh_token",
            self.refresh_token.is_none() || needs_refresh_token,
            "only for `grant: refresh_token`",
        );
        let is_signed = matches!(self.grant, Grant::JwtBearer | Grant::Installation)
            || self.client_auth == ClientAuth::PrivateKeyJwt;
        check(
            "assertion",
            self.assertion.is_some() || !is_signed,
            "required for `grant: jwt_bearer` and `client_auth: private_key_jwt`",
        );
        check(
            "assertion",
            self.assertion.is_none() || is_signed,
            "only for `grant: jwt_bearer` and `client_auth: private_key_jwt`",
        );
        check(
            "client_secret",
            self.client_secret.is_none()
                || self.client_assertion.is_none() && self.client_auth != ClientAuth::PrivateKeyJwt,
            "not with `client_assertion` or `client_auth: private_key_jwt`, which replace it",
        );
        check(
            "client_assertion",
            self.client_assertion.is_none() || self.client_auth != ClientAuth::PrivateKeyJwt,
            "not with `client_auth: private_key_jwt`, with which Egret signs one",
        );
        if let Some(assertion) = &self.assertion {
            assertion.check(|key, message| check(&format!("assertion.{key}"), false, &message));
        }
        check(
            "renew_before",
            !self.renew_before.is_zero(),
            "must be greater than 0: renewing an expired token would delay calls",
        );
        check("default_life", !self.default_life.is_zero(), "must be greater than 0");
        check("wait_max", !self.wait_max.is_zero(), "must be greater than 0");
        check("timeout", !self.timeout.is_zero(), "must be greater than 0");
        check(
            "retry.base",
            !self.retry.base.is_zero(),
            "must be greater than 0: a failing endpoint must not be called again at once",
        );
        check("retry.max", self.retry.max >= self.retry.base, "must not be less than `base`");
        // RFC 6749 §3.3: visible characters without `"` and `\`.
        let is_scope = |scope: &String| {
            !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
        };
        check(
            "scope",
            self.scope.iter().all(is_scope),
            "each entry must be one scope: visible characters without `\"` and `\\`",
        );
        check("scope", self.scope.len() <= LIST_MAX, "at most 100 entries are allowed");
        check("resource", self.resource.len() <= LIST_MAX, "at most 100 entries are allowed");
        check("parameters", self.parameters.len() <= LIST_MAX, "at most 100 entries are allowed");
        for name in self.parameters.keys() {
            let message = format!("`{name}` has its own config key: use that instead");
            check(&format!("parameters.{name}"), !OWN_PARAMETERS.contains(&name.as_str()), &message);
        }
        if let Err(error) = TokenEndpoint::parse(&self.token_url) {
            check("token_url", false, &error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn problems(change: &Value) -> Vec<String> {
        let mut config = json!({ "token_url": "https://id.example/token", "client_id": "me" });
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        let config: OAuth2Config = serde_json::from_value(config).unwrap();
        let mut problems = Vec::new();
        config.check("at", &mut problems);
        problems.into_iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect()
    }

    #[test]
    fn invalid_settings_are_reported_at_their_keys() {
        assert_eq!(problems(&json!({})), [""; 0]);
        for (change, start) in [
            (
                json!({ "token_url": "ftp://id.example/" }),
                "at.token_url: a token endpoint's URL must begin with",
            ),
            (
                json!({ "token_url": "https:///token" }),
                "at.token_url: a token endpoint's URL must contain a host",
            ),
            (
                json!({ "token_url": "https://id.example/#a" }),
                "at.token_url: a token endpoint's URL must not contain a fragment",
            ),
            (
                json!({ "token_url": "https://id.example/a b" }),
                "at.token_url: a token endpoint's URL must be ASCII without spaces",
            ),
            (
                json!({ "token_url": "https://id.exam\r\nple/" }),
                "at.token_url: a token endpoint's URL must be ASCII without spaces",
            ),
            (json!({ "client_id": "" }), "at.client_id: "),
            (json!({ "grant": "refresh_token" }), "at.refresh_token: required for `grant: refresh_token`"),
            (json!({ "refresh_token": "${env:PATH}" }), "at.refresh_token: only for"),
            (json!({ "scope": ["a b"] }), "at.scope: each entry must be one scope"),
            (json!({ "scope": ["\u{e4}"] }), "at.scope: each entry must be one scope"),
            (json!({ "parameters": { "client_secret": "x" } }), "at.parameters.client_secret: "),
            (json!({ "grant": "jwt_bearer" }), "at.assertion: required for"),
            (json!({ "client_auth": "private_key_jwt" }), "at.assertion: required for"),
            (
                json!({ "client_auth": "private_key_jwt", "assertion": { "key": "${env:PATH}" } }),
                "at.assertion.key: is not a private key in PEM",
            ),
            (
                json!({ "client_secret": "${env:PATH}", "client_assertion": "${env:PATH}" }),
                "at.client_secret: not with `client_assertion`",
            ),
            (json!({ "parameters": { "assertion": "x" } }), "at.parameters.assertion: "),
            (json!({ "renew_before": "0s" }), "at.renew_before: "),
            (json!({ "default_life": "0s" }), "at.default_life: "),
            (json!({ "wait_max": "0s" }), "at.wait_max: "),
            (json!({ "timeout": "0s" }), "at.timeout: "),
            (json!({ "retry": { "base": "0s" } }), "at.retry.base: "),
            (json!({ "retry": { "max": "500ms" } }), "at.retry.max: must not be less than"),
        ] {
            let found = problems(&change);
            assert!(found.len() == 1 && found[0].starts_with(start), "{change}: {found:?}");
        }
    }
}
