//! Accounts of Google Cloud: the key of a service account, or the identity of the machine.

use egret_aws::percent_encode;
use egret_config::{Duration, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assertion::AssertionConfig;
use super::config::{Grant, MetadataService, OAuth2Config, timeout_default, wait_max_default};
use super::wiped::WipedText;

/// The scope for a service account without `scopes`: all that its roles allow.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// Maximum number of scopes of one account.
const SCOPES_MAX: usize = 100;
/// The host of the metadata server. Its name would be looked up in the DNS, whose owner could send it
/// elsewhere.
const METADATA_HOST: &str = "169.254.169.254";
/// The name of the same host, as the variable `GCE_METADATA_HOST` may have it.
const METADATA_NAME: &str = "metadata.google.internal";
/// Path of the token of the machine's own service account.
const METADATA_PATH: &str = "/computeMetadata/v1/instance/service-accounts/default/token";

/// An access token of Google Cloud, which Egret fetches and renews before it expires. Set exactly one of
/// `service_account` and `metadata`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GcpConfig {
    /// The key of a service account, as Google's JSON file: `${file:PATH}`. Egret signs an assertion with it
    /// for the file's `token_uri` (RFC 7523 §2.1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<Secret>,
    /// `true` asks the metadata server for the token of the machine's service account, or of the one that GKE
    /// has bound to the pod. In a cluster, each gateway has its own.
    #[serde(default)]
    pub metadata: bool,
    /// Scopes to request. The default is `https://www.googleapis.com/auth/cloud-platform` for a service
    /// account, and the scopes of the machine for `metadata`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub scopes: Vec<String>,
    /// Host of the metadata server, with an optional port. It is called over HTTP, through no proxy. A
    /// metadata address is allowed to this call if it is written here; requests of clients are still denied
    /// it.
    #[serde(default = "metadata_host_default")]
    pub metadata_host: String,
    /// Maximum time that a call waits for a token if there is none. After that it is rejected with 503
    /// `account-unavailable`.
    #[serde(default = "wait_max_default")]
    pub wait_max: Duration,
    /// Maximum duration of a whole token request.
    #[serde(default = "timeout_default")]
    pub timeout: Duration,
}

fn metadata_host_default() -> String {
    METADATA_HOST.to_owned()
}

/// Reason why there is no request for a token of Google Cloud. It shows nothing of the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GcpError {
    /// Neither or both of the two sources.
    #[error("set either `service_account` or `metadata: true`")]
    Source,
    /// The secret is not the file of a key.
    #[error(
        "is not the JSON file of a service account's key: its `type` must be `service_account`, with `client_email`, \
         `private_key` and `token_uri`"
    )]
    KeyFile,
    /// Too many scopes, or one that is not visible ASCII.
    #[error("at most 100 scopes are allowed, each of visible characters without commas")]
    Scopes,
    /// The metadata server has a path, or no host.
    #[error("must be a host with an optional port, as in `169.254.169.254`")]
    MetadataHost,
}

/// The members of the file of a key that are used; all others are ignored.
#[derive(Deserialize)]
struct KeyFile {
    #[serde(rename = "type")]
    kind: String,
    client_email: String,
    private_key: WipedText,
    #[serde(default)]
    private_key_id: Option<String>,
    token_uri: String,
}

impl GcpConfig {
    /// The secret that a token is fetched with. It is never sent.
    pub(crate) fn private_key(&self) -> Option<&Secret> {
        self.service_account.as_ref()
    }

    /// Returns the request for a token, and the config key that names its endpoint; or the key that is wrong,
    /// and the reason.
    pub(crate) fn request(&self) -> Result<(&'static str, OAuth2Config), (&'static str, GcpError)> {
        let is_scope = |scope: &String| {
            !scope.is_empty() && scope.bytes().all(|byte| byte.is_ascii_graphic() && byte != b',')
        };
        if self.scopes.len() > SCOPES_MAX || !self.scopes.iter().all(is_scope) {
            return Err(("scopes", GcpError::Scopes));
        }
        let (key, request) = match (&self.service_account, self.metadata) {
            (Some(secret), false) => ("service_account", self.signed(secret)),
            (None, true) => ("metadata_host", self.of_machine()),
            (Some(_), true) | (None, false) => ("service_account", Err(GcpError::Source)),
        };
        match request {
            Ok(request) => {
                Ok((key, OAuth2Config { wait_max: self.wait_max, timeout: self.timeout, ..request }))
            }
            Err(error) => Err((key, error)),
        }
    }

    /// Returns the request that is signed with the key of a service account.
    fn signed(&self, secret: &Secret) -> Result<OAuth2Config, GcpError> {
        let file = if secret.is_placeholder() {
            // Nothing is known of the key. The endpoint is the one of all keys.
            KeyFile {
                kind: "service_account".to_owned(),
                client_email: "unknown".to_owned(),
                private_key: WipedText(zeroize::Zeroizing::default()),
                private_key_id: None,
                token_uri: "https://oauth2.googleapis.com/token".to_owned(),
            }
        } else {
            serde_json::from_str(secret.expose()).map_err(|_| GcpError::KeyFile)?
        };
        let WipedText(private_key) = file.private_key;
        if file.kind != "service_account" {
            return Err(GcpError::KeyFile);
        }
        let key = if secret.is_placeholder() {
            secret.clone()
        } else {
            Secret::from_value("the `private_key` of the file", private_key.to_string())
        };
        let scope = if self.scopes.is_empty() { SCOPE.to_owned() } else { self.scopes.join(" ") };
        let assertion = AssertionConfig {
            key_id: file.private_key_id,
            claims: [("scope".to_owned(), scope)].into(),
            ..AssertionConfig::new(key)
        };
        let request = OAuth2Config::new(Grant::JwtBearer, file.token_uri, file.client_email);
        Ok(OAuth2Config { assertion: Some(assertion), ..request })
    }

    /// Returns the request to the metadata server.
    fn of_machine(&self) -> Result<OAuth2Config, GcpError> {
        if self.metadata_host.is_empty() || self.metadata_host.contains(['/', '?', '@']) {
            return Err(GcpError::MetadataHost);
        }
        let host = if self.metadata_host == METADATA_NAME { METADATA_HOST } else { &self.metadata_host };
        let mut url = format!("http://{host}{METADATA_PATH}").into_bytes();
        if !self.scopes.is_empty() {
            url.extend_from_slice(b"?scopes=");
            percent_encode(self.scopes.join(",").as_bytes(), &mut url);
        }
        // It is ASCII, unless the host is not: then the URL is rejected as one.
        let url = String::from_utf8_lossy(&url).into_owned();
        // The metadata server knows the client by its connection.
        Ok(OAuth2Config::new(Grant::Metadata(MetadataService::Google), url, METADATA_NAME.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::assertion::test_key::private_key;
    use super::*;

    fn key_file(change: &Value) -> String {
        let mut file = json!({
            "type": "service_account", "client_email": "robot@shop.example", "private_key": private_key(),
            "private_key_id": "k1", "token_uri": "https://oauth2.googleapis.com/token", "project_id": "shop",
        });
        file.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        file.to_string()
    }

    fn gcp(change: &Value, service_account: Option<String>) -> GcpConfig {
        let config: GcpConfig = serde_json::from_value(change.clone()).unwrap();
        let service_account = service_account.map(|text| Secret::from_value("${file:key.json}", text));
        GcpConfig { service_account, ..config }
    }

    #[test]
    fn a_service_account_signs_for_the_endpoint_of_its_file() {
        let (key, request) = gcp(&json!({}), Some(key_file(&json!({})))).request().unwrap();
        assert_eq!((key, request.grant), ("service_account", Grant::JwtBearer));
        assert_eq!(request.token_url, "https://oauth2.googleapis.com/token");
        assert_eq!(request.client_id, "robot@shop.example");
        let assertion = request.assertion.unwrap();
        assert_eq!(assertion.key_id.as_deref(), Some("k1"));
        assert_eq!(assertion.claims["scope"], SCOPE);
        let mut wrong = Vec::new();
        assertion.check(|key, message| wrong.push(format!("{key} {message}")));
        assert_eq!(wrong, [""; 0]);
        let (_, request) =
            gcp(&json!({ "scopes": ["a", "b"] }), Some(key_file(&json!({})))).request().unwrap();
        assert_eq!(request.assertion.unwrap().claims["scope"], "a b");
        let shown = format!("{:?}", gcp(&json!({}), Some(key_file(&json!({})))));
        assert!(!shown.contains("PRIVATE KEY"), "{shown}");
    }

    #[test]
    fn a_machine_asks_its_metadata_server_by_address() {
        let url = |change: &Value| gcp(change, None).request().unwrap().1.token_url;
        let path = "/computeMetadata/v1/instance/service-accounts/default/token";
        assert_eq!(url(&json!({ "metadata": true })), format!("http://169.254.169.254{path}"));
        // The name of the metadata server is not looked up.
        let named = json!({ "metadata": true, "metadata_host": "metadata.google.internal" });
        assert_eq!(url(&named), format!("http://169.254.169.254{path}"));
        let scoped =
            json!({ "metadata": true, "metadata_host": "127.0.0.1:80", "scopes": ["a", "https://b"] });
        assert_eq!(url(&scoped), format!("http://127.0.0.1:80{path}?scopes=a%2Chttps%3A%2F%2Fb"));
    }

    #[test]
    fn a_wrong_source_is_reported_at_its_key() {
        let file = |change: Value| Some(key_file(&change));
        for (change, service_account, key) in [
            (json!({}), None, "service_account"),
            (json!({ "metadata": true }), file(json!({})), "service_account"),
            (json!({}), Some("hunter2".to_owned()), "service_account"),
            (json!({}), file(json!({ "type": "authorized_user" })), "service_account"),
            (json!({}), file(json!({ "token_uri": null })), "service_account"),
            (json!({ "metadata": true, "metadata_host": "a/b" }), None, "metadata_host"),
            (json!({ "metadata": true, "metadata_host": "" }), None, "metadata_host"),
            (json!({ "metadata": true, "scopes": ["a b"] }), None, "scopes"),
        ] {
            let (found, error) = gcp(&change, service_account).request().unwrap_err();
            assert_eq!(found, key, "{change}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn a_key_that_is_not_read_has_no_mistakes() {
        let secret = egret_config::without_secrets(|| Secret::resolve("${env:NONE}").unwrap());
        let config = GcpConfig { service_account: Some(secret), ..gcp(&json!({}), None) };
        let mut problems = Vec::new();
        config.request().unwrap().1.check("at", &mut problems);
        assert_eq!(problems, []);
    }
}
