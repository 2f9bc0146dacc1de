//! Secrets of Secret Manager, of Google Cloud.

use egret_accounts::CloudIdentity;
use egret_accounts::token::GcpConfig;
use egret_config::{Duration, Problem};
use egret_export::check_url;
use egret_export::fetch::{ServerClient, ServerRequest};
use egret_net::config::ProxyConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::aws::decoded;
use super::error::ManagerError;
use super::identity::prove;
use super::reference::encoded;
use super::times::{lifetime_default, timeout_default};
use super::value::{text_at, word_at};

/// The name of the manager in messages.
const NAME: &str = "Secret Manager";

/// The codes of errors. Others are not shown.
const CODES: [&str; 8] = [
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
];

/// Secret Manager of Google Cloud. `${gcp:projects/P/secrets/S/versions/V}` is a secret, and `#FIELD` behind
/// it a field of a secret in JSON; the version can be `latest`. The identity needs the role
/// `roles/secretmanager.secretAccessor`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GcpSecretsConfig {
    /// Identity that may read the secrets.
    pub identity: GcpConfig,
    /// URL of the service. It is called through `gateway.upstream_proxy`, if that is for it.
    #[serde(default = "url_default")]
    pub url: String,
    /// Time after which secrets are fetched again, at least `1s`. If that fails, the last ones stay in use,
    /// and it is tried again every 30 seconds.
    #[serde(default = "lifetime_default")]
    pub lifetime: Duration,
    /// Maximum time of fetching the token of the identity and all secrets, from `100ms` to `60s`.
    #[serde(default = "timeout_default")]
    pub timeout: Duration,
}

fn url_default() -> String {
    "https://secretmanager.googleapis.com".to_owned()
}

impl GcpSecretsConfig {
    /// Returns the mistakes in it. `at` is its path.
    pub(super) fn problems(&self, at: &str) -> Vec<Problem> {
        CloudIdentity::gcp(&self.identity, &format!("{at}.identity")).err().unwrap_or_default()
    }
}

/// An identity that was proven to Google Cloud.
pub(super) struct GcpSession {
    client: ServerClient,
    /// Beginning of each path, without a slash at its end.
    base: String,
    identity: CloudIdentity,
}

impl GcpSession {
    /// Fetches the token of the identity.
    pub async fn open(config: &GcpSecretsConfig, proxy: Option<&ProxyConfig>) -> Result<Self, ManagerError> {
        let url = check_url(&config.url)?;
        let client = ServerClient::new(&url, None, proxy)?;
        let identity = CloudIdentity::gcp(&config.identity, "secrets.gcp.identity");
        let identity = identity.map_err(ManagerError::of_identity)?;
        prove(&identity, proxy).await?;
        let base = format!("{}/v1", url.path().trim_end_matches('/'));
        Ok(Self { client, base, identity })
    }

    /// Fetches this version of a secret.
    pub async fn read(&mut self, version: &str) -> Result<Zeroizing<String>, ManagerError> {
        let token = self.identity.field().ok_or(ManagerError::NoKeys)?;
        // It was checked to be valid in a header field.
        let token = str::from_utf8(&token).map_err(|_| ManagerError::NoKeys)?;
        let target = format!("{}/{}:access", self.base, encoded(version));
        let fields = [("Authorization", token)];
        let request =
            ServerRequest { method: "GET", target: &target, fields: &fields, body: Zeroizing::default() };
        let response = self.client.send(request).await?;
        if response.status != 200 {
            let code = word_at(&response.body, "/error/status", &CODES);
            return Err(ManagerError::Refused { manager: NAME, status: response.status, code });
        }
        decoded(text_at(&response.body, "/payload/data"), NAME)
    }
}
