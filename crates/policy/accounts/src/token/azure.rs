//! Accounts of Microsoft Entra: a workload, the managed identity of the machine, or an application with a
//! certificate.

use std::io;
use std::path::Path;

use aws_lc_rs::digest::{SHA256, digest};
use data_encoding::BASE64URL_NOPAD;
use egret_aws::percent_encode;
use egret_config::{CERTIFICATES_BYTES_MAX, Duration, Secret, read_file};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assertion::{AssertionConfig, pem_block};
use super::config::{ClientAuth, Grant, MetadataService, OAuth2Config, timeout_default, wait_max_default};
use crate::config::CertificateConfig;

/// The address of the instance metadata service.
const METADATA_HOST: &str = "169.254.169.254";
/// Path of the token of a managed identity, and the version of the protocol.
const METADATA_PATH: &str = "/metadata/identity/oauth2/token?api-version=2018-02-01&resource=";
/// The issuer of tokens in the public cloud.
const AUTHORITY: &str = "https://login.microsoftonline.com";

/// An access token of Microsoft Entra, which Egret fetches and renews before it expires. Set exactly one of
/// `workload`, `managed` and `certificate`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AzureConfig {
    /// Resource that the token is for, without `/.default`: `https://cognitiveservices.azure.com`.
    pub resource: String,
    /// The directory, by its identifier or domain: `${env:AZURE_TENANT_ID}`. It is not used with `managed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// Identifier of the application: `${env:AZURE_CLIENT_ID}`. With `managed`, that of an identity assigned
    /// by the user; without it, the machine's own identity is used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_id: Option<String>,
    /// The federated token of a workload, as in the file that `AZURE_FEDERATED_TOKEN_FILE` names:
    /// `${file:/var/run/secrets/azure/tokens/azure-identity-token}`. It is read again when it changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Secret>,
    /// `true` asks the instance metadata service for the token of a managed identity. In a cluster, each
    /// gateway has its own.
    #[serde(default)]
    pub managed: bool,
    /// The certificate of the application, whose key signs an assertion for each token (RFC 7523 §2.2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateConfig>,
    /// URL of the place where tokens are issued, as in `AZURE_AUTHORITY_HOST`. National clouds have their
    /// own.
    #[serde(default = "authority_default")]
    pub authority: String,
    /// Host of the instance metadata service, with an optional port. It is called over HTTP, through no
    /// proxy. A metadata address is allowed to this call if it is written here; requests of clients are still
    /// denied it.
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

fn authority_default() -> String {
    AUTHORITY.to_owned()
}

fn metadata_host_default() -> String {
    METADATA_HOST.to_owned()
}

/// Reason why there is no request for a token of Microsoft Entra.
#[derive(Debug, thiserror::Error)]
pub(crate) enum AzureError {
    /// None of the three sources, or several.
    #[error("set exactly one of `workload`, `managed: true` and `certificate`")]
    Source,
    /// No resource.
    #[error("must not be empty")]
    Resource,
    /// No directory, or not one.
    #[error("required, unless `managed` is set: an identifier or a domain")]
    Tenant,
    /// No application.
    #[error("required, unless `managed` is set")]
    ClientId,
    /// The certificate cannot be read.
    #[error("cannot be read: {0}")]
    Unread(io::Error),
    /// The file has no certificate in PEM.
    #[error("has no certificate in PEM")]
    Certificate,
    /// The metadata service has a path, or no host.
    #[error("must be a host with an optional port, as in `169.254.169.254`")]
    MetadataHost,
}

/// The config key of a mistake, and the mistake.
type Wrong = (&'static str, AzureError);

impl AzureConfig {
    /// The private key, which is never sent.
    pub(crate) fn private_key(&self) -> Option<&Secret> {
        self.certificate.as_ref().map(|certificate| &certificate.key)
    }

    /// Returns the request for a token, and the config key that names its endpoint; or the key that is wrong,
    /// and the reason.
    pub(crate) fn request(&self) -> Result<(&'static str, OAuth2Config), Wrong> {
        if self.resource.is_empty() {
            return Err(("resource", AzureError::Resource));
        }
        let (key, request) = match (&self.workload, self.managed, &self.certificate) {
            (Some(token), false, None) => {
                let request = self.of_application()?;
                ("authority", OAuth2Config { client_assertion: Some(token.clone()), ..request })
            }
            (None, true, None) => ("metadata_host", self.of_machine()?),
            (None, false, Some(certificate)) => {
                let thumbprint = thumbprint(&certificate.certificate);
                let thumbprint = thumbprint.map_err(|error| ("certificate.certificate", error))?;
                let assertion = AssertionConfig {
                    thumbprint: Some(thumbprint),
                    ..AssertionConfig::new(certificate.key.clone())
                };
                let request = OAuth2Config { assertion: Some(assertion), ..self.of_application()? };
                ("authority", OAuth2Config { client_auth: ClientAuth::PrivateKeyJwt, ..request })
            }
            _ => return Err(("workload", AzureError::Source)),
        };
        Ok((key, OAuth2Config { wait_max: self.wait_max, timeout: self.timeout, ..request }))
    }

    /// Returns the request of an application, without the proof of who it is.
    fn of_application(&self) -> Result<OAuth2Config, Wrong> {
        let is_tenant = |tenant: &&str| {
            !tenant.is_empty()
                && tenant.bytes().all(|byte| byte.is_ascii_alphanumeric() || b".-".contains(&byte))
        };
        let tenant = self.tenant.as_deref().filter(is_tenant).ok_or(("tenant", AzureError::Tenant))?;
        let client_id = self.client_id.clone().ok_or(("client_id", AzureError::ClientId))?;
        let url = format!("{}/{tenant}/oauth2/v2.0/token", self.authority.trim_end_matches('/'));
        let request = OAuth2Config::new(Grant::ClientCredentials, url, client_id);
        Ok(OAuth2Config { scope: vec![format!("{}/.default", self.resource)], ..request })
    }

    /// Returns the request to the instance metadata service.
    fn of_machine(&self) -> Result<OAuth2Config, Wrong> {
        let host = &self.metadata_host;
        if host.is_empty() || host.contains(['/', '?', '@']) {
            return Err(("metadata_host", AzureError::MetadataHost));
        }
        let mut url = format!("http://{host}{METADATA_PATH}").into_bytes();
        percent_encode(self.resource.as_bytes(), &mut url);
        if let Some(client_id) = &self.client_id {
            url.extend_from_slice(b"&client_id=");
            percent_encode(client_id.as_bytes(), &mut url);
        }
        // It is ASCII, unless the host is not: then the URL is rejected as one.
        let url = String::from_utf8_lossy(&url).into_owned();
        // The service knows the client by its connection.
        Ok(OAuth2Config::new(Grant::Metadata(MetadataService::Azure), url, METADATA_HOST.to_owned()))
    }
}

/// Returns the SHA-256 digest of the first certificate in a file (RFC 7515 §4.1.8).
fn thumbprint(path: &Path) -> Result<String, AzureError> {
    let file = read_file(path, CERTIFICATES_BYTES_MAX).map_err(AzureError::Unread)?;
    let text = str::from_utf8(&file).map_err(|_| AzureError::Certificate)?;
    let (_, der) = pem_block(text, "CERTIFICATE").ok_or(AzureError::Certificate)?;
    Ok(BASE64URL_NOPAD.encode(digest(&SHA256, &der).as_ref()))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn azure(change: &Value) -> AzureConfig {
        let mut config = json!({ "resource": "https://ai.example/" });
        config.as_object_mut().unwrap().extend(change.as_object().unwrap().clone());
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn a_workload_proves_itself_by_its_federated_token() {
        let workload = json!({ "tenant": "t-1.example", "client_id": "c", "workload": "${env:PATH}" });
        let (key, request) = azure(&workload).request().unwrap();
        assert_eq!((key, request.grant), ("authority", Grant::ClientCredentials));
        assert_eq!(request.token_url, "https://login.microsoftonline.com/t-1.example/oauth2/v2.0/token");
        assert_eq!(request.scope, ["https://ai.example//.default"]);
        assert!(request.client_assertion.is_some() && request.client_secret.is_none());
    }

    #[test]
    fn a_managed_identity_is_asked_of_the_machine() {
        let managed = json!({ "managed": true, "client_id": "c/1" });
        let (key, request) = azure(&managed).request().unwrap();
        assert_eq!((key, request.grant), ("metadata_host", Grant::Metadata(MetadataService::Azure)));
        assert_eq!(
            request.token_url,
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01\
             &resource=https%3A%2F%2Fai.example%2F&client_id=c%2F1"
        );
    }

    #[test]
    fn a_wrong_application_is_reported_at_its_key() {
        let workload = "${env:PATH}";
        let missing = json!({ "certificate": "/no/such/file", "key": "${env:PATH}" });
        let key_file = concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml");
        let other = json!({ "certificate": key_file, "key": "${env:PATH}" });
        for (change, key) in [
            (json!({}), "workload"),
            (json!({ "managed": true, "workload": workload }), "workload"),
            (json!({ "managed": true, "resource": "" }), "resource"),
            (json!({ "managed": true, "metadata_host": "a@b" }), "metadata_host"),
            (json!({ "workload": workload, "client_id": "c" }), "tenant"),
            (json!({ "workload": workload, "client_id": "c", "tenant": "a/b" }), "tenant"),
            (json!({ "workload": workload, "tenant": "t" }), "client_id"),
            (json!({ "certificate": missing }), "certificate.certificate"),
            (json!({ "certificate": other }), "certificate.certificate"),
        ] {
            assert_eq!(azure(&change).request().unwrap_err().0, key, "{change}");
        }
    }
}
