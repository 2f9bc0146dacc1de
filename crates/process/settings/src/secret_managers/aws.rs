//! Secrets of AWS Secrets Manager.

use std::sync::Arc;

use data_encoding::BASE64;
use egret_accounts::token::AwsIdentityConfig;
use egret_accounts::{CloudIdentity, Sigv4Config};
use egret_aws::{SignableRequest, Signer, sha256};
use egret_config::{Duration, Problem, Secret, Size};
use egret_export::check_url;
use egret_export::fetch::{ServerClient, ServerRequest};
use egret_net::config::ProxyConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::ManagerError;
use super::identity::{now, prove};
use super::times::{lifetime_default, timeout_default};
use super::value::{object, text_at, word_at};

/// The name of the manager in messages.
const NAME: &str = "AWS Secrets Manager";

/// The media type of requests.
const MEDIA_TYPE: &str = "application/x-amz-json-1.1";

/// The operation.
const OPERATION: &str = "secretsmanager.GetSecretValue";

/// The codes of errors. Others are not shown.
const CODES: [&str; 14] = [
    "AccessDeniedException",
    "DecryptionFailure",
    "ExpiredTokenException",
    "IncompleteSignatureException",
    "InternalServiceError",
    "InvalidParameterException",
    "InvalidRequestException",
    "InvalidSignatureException",
    "MissingAuthenticationTokenException",
    "ResourceNotFoundException",
    "ServiceUnavailable",
    "ThrottlingException",
    "UnrecognizedClientException",
    "ValidationException",
];

/// AWS Secrets Manager. `${aws:NAME#FIELD}` is a field of a secret in JSON, and `${aws:NAME}` a whole secret;
/// an ARN can be in the place of the name. The identity needs `secretsmanager:GetSecretValue`, and
/// `kms:Decrypt` for a key of its own. Set either `access_key_id` and `secret_access_key`, or an `identity`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AwsSecretsConfig {
    /// Region of the secrets: `eu-central-1`.
    pub region: String,
    /// Id of the access key: `${env:AWS_ACCESS_KEY_ID}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_key_id: Option<Secret>,
    /// The secret key: `${env:AWS_SECRET_ACCESS_KEY}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_access_key: Option<Secret>,
    /// Session token of a temporary key: `${env:AWS_SESSION_TOKEN}`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_token: Option<Secret>,
    /// Identity that temporary keys are fetched for: of a workload, a machine, a container or a program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<AwsIdentityConfig>,
    /// URL of the service. The default is `https://secretsmanager.REGION.amazonaws.com`. It is called
    /// through `gateway.upstream_proxy`, if that is for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Time after which secrets are fetched again, at least `1s`. If that fails, the last ones stay in use,
    /// and it is tried again every 30 seconds.
    #[serde(default = "lifetime_default")]
    pub lifetime: Duration,
    /// Maximum time of fetching the keys of the identity and all secrets, from `100ms` to `60s`.
    #[serde(default = "timeout_default")]
    pub timeout: Duration,
}

impl AwsSecretsConfig {
    /// The URL of the service.
    pub(super) fn url(&self) -> String {
        self.url.clone().unwrap_or_else(|| {
            let suffix = if self.region.starts_with("cn-") { ".cn" } else { "" };
            format!("https://secretsmanager.{}.amazonaws.com{suffix}", self.region)
        })
    }

    /// Compiles the identity. `at` is the path of this config.
    fn identity(&self, at: &str) -> Result<CloudIdentity, Vec<Problem>> {
        let Self { region, access_key_id, secret_access_key, session_token, identity, .. } = self.clone();
        let service = "secretsmanager".to_owned();
        // The bound of bodies is for those of accounts.
        let (content_sha256, body) = (false, Size::from_kib(1));
        let sigv4 = Sigv4Config {
            access_key_id,
            secret_access_key,
            session_token,
            identity,
            region,
            service,
            content_sha256,
            body,
        };
        CloudIdentity::aws(&sigv4, at)
    }

    /// Returns the mistakes in it. `at` is its path.
    pub(super) fn problems(&self, at: &str) -> Vec<Problem> {
        self.identity(at).err().unwrap_or_default()
    }
}

/// An identity that was proven to AWS.
pub(super) struct AwsSession {
    client: ServerClient,
    signer: Arc<Signer>,
    /// The host, and the port if it is not the default, as they are sent.
    host: String,
    path: String,
}

impl AwsSession {
    /// Fetches the keys of the identity.
    pub async fn open(config: &AwsSecretsConfig, proxy: Option<&ProxyConfig>) -> Result<Self, ManagerError> {
        let url = check_url(&config.url())?;
        let client = ServerClient::new(&url, None, proxy)?;
        let identity = config.identity("secrets.aws").map_err(ManagerError::of_identity)?;
        prove(&identity, proxy).await?;
        let signer = identity.signer(now()).ok_or(ManagerError::NoKeys)?;
        let host = url.host_str().unwrap_or_default();
        let host = url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"));
        Ok(Self { client, signer, host, path: url.path().to_owned() })
    }

    /// Fetches the secret of this name.
    pub async fn read(&mut self, name: &str) -> Result<Zeroizing<String>, ManagerError> {
        let body = object(&[("SecretId", name)]);
        let digest = sha256(&body);
        let request = SignableRequest {
            method: b"POST",
            host: self.host.as_bytes(),
            path: self.path.as_bytes(),
            query: b"",
            fields: &[(b"content-type", MEDIA_TYPE.as_bytes()), (b"x-amz-target", OPERATION.as_bytes())],
            payload: digest.as_bytes(),
            sends_payload: false,
        };
        let signature = self.signer.sign(now(), &request);
        let mut fields = vec![
            ("Content-Type", MEDIA_TYPE),
            ("X-Amz-Target", OPERATION),
            ("X-Amz-Date", &*signature.date),
            ("Authorization", &*signature.authorization),
        ];
        fields.extend(self.signer.session_token().map(|token| ("X-Amz-Security-Token", token)));
        let request = ServerRequest { method: "POST", target: &self.path, fields: &fields, body };
        let response = self.client.send(request).await?;
        if response.status != 200 {
            let code = word_at(&response.body, "/__type", &CODES);
            return Err(ManagerError::Refused { manager: NAME, status: response.status, code });
        }
        match text_at(&response.body, "/SecretString") {
            Some(secret) => Ok(secret),
            None => decoded(text_at(&response.body, "/SecretBinary"), NAME),
        }
    }
}

/// Decodes a secret from Base64. `manager` is the name of the manager that has sent it.
pub(super) fn decoded(
    secret: Option<Zeroizing<String>>,
    manager: &'static str,
) -> Result<Zeroizing<String>, ManagerError> {
    let bytes = secret.and_then(|secret| BASE64.decode(secret.as_bytes()).ok().map(Zeroizing::new));
    let bytes = bytes.ok_or(ManagerError::NoSecret(manager))?;
    let text = str::from_utf8(&bytes).map_err(|_| ManagerError::NotUtf8)?;
    Ok(Zeroizing::new(text.to_owned()))
}
