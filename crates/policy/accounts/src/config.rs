//! The config keys of accounts.

use std::collections::BTreeMap;
use std::path::PathBuf;

use aws_lc_rs::digest;
use egret_config::Secret;
use egret_match::matching::AnyOf;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::placeholder::PlaceholderConfig;
use super::sigv4::Sigv4Config;
use super::token::{AzureConfig, GcpConfig, GithubConfig, OAuth2Config};

/// Accounts by name, as written in the config.
pub type AccountConfigs = BTreeMap<String, AccountConfig>;

egret_config::keys! {
    /// A credential for one or more providers: these keys, and exactly one of the kinds below. It is never
    /// sent to any other provider.
    #[derive(Eq)]
    pub struct AccountConfig {
        /// Names of the providers that the credential is for.
        #[schemars(extend("x-tier" = "everyday"))]
        pub provider: AnyOf,
        /// A user and a password (RFC 7617).
        pub basic: Option<BasicConfig>,
        /// A key in a header field or in the query.
        #[schemars(extend("x-tier" = "everyday"))]
        pub api_key: Option<ApiKeyConfig>,
        /// A fixed token (RFC 6750).
        #[schemars(extend("x-tier" = "everyday"))]
        pub bearer: Option<BearerConfig>,
        /// A token that Egret fetches, and renews before it expires (RFC 6749).
        pub oauth2: Option<OAuth2Config>,
        /// A token of Google Cloud that Egret fetches: for a service account, or for the machine's own.
        pub gcp: Option<GcpConfig>,
        /// A token of Microsoft Entra that Egret fetches: for a workload, a managed identity or an
        /// application.
        pub azure: Option<AzureConfig>,
        /// The token of an installation of a GitHub App that Egret fetches.
        pub github: Option<GithubConfig>,
        /// An access key of AWS, or of a service with the same protocol, that requests are signed with; or an
        /// identity that temporary keys are fetched for.
        pub sigv4: Option<Sigv4Config>,
        /// A client certificate, presented in the TLS handshake.
        pub certificate: Option<CertificateConfig>,
        /// With `basic`, `api_key` and `bearer`: puts the secret only in the places where the client sends
        /// this word.
        pub placeholder: Option<PlaceholderConfig>,
    }
}

/// A user and a password (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    /// The user. It must not contain a colon.
    pub user: String,
    /// The password. Omit it if `user` is only the name of a key and the password is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// A key in a header field or in the query; set exactly one of `header` and `query`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// Name of the header field for the key: `x-api-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-tier" = "everyday"))]
    pub header: Option<String>,
    /// Name of the query parameter for the key: `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// Text before the key in the header field: `Token `, with the space.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The key.
    #[schemars(extend("x-tier" = "everyday"))]
    pub value: Secret,
}

/// A fixed token (RFC 6750). A text alone is its `token`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[serde(rename = "short form: token")]
#[schemars(rename = "BearerConfig", transform = egret_config::or_text)]
pub struct BearerConfig {
    /// The token.
    #[schemars(extend("x-tier" = "everyday"))]
    pub token: Secret,
}

/// A client certificate, presented in the TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateConfig {
    /// File with the certificate and its chain, in PEM. It is read again on every reload.
    pub certificate: PathBuf,
    /// The private key of the certificate, in PEM: `${file:PATH}` or `${env:NAME}`.
    pub key: Secret,
}

/// The kind of an account of a cloud, the config key that names the endpoint, and the request.
type CloudRequest = (&'static str, &'static str, OAuth2Config);

impl AccountConfig {
    /// The kinds that are set. A valid account has exactly one.
    pub(super) fn kinds(&self) -> Vec<&'static str> {
        let Self {
            provider: _,
            basic,
            api_key,
            bearer,
            oauth2,
            gcp,
            azure,
            github,
            sigv4,
            certificate,
            placeholder: _,
        } = self;
        let kinds = [
            basic.is_some().then_some("basic"),
            api_key.is_some().then_some("api_key"),
            bearer.is_some().then_some("bearer"),
            oauth2.is_some().then_some("oauth2"),
            gcp.is_some().then_some("gcp"),
            azure.is_some().then_some("azure"),
            github.is_some().then_some("github"),
            sigv4.is_some().then_some("sigv4"),
            certificate.is_some().then_some("certificate"),
        ];
        kinds.into_iter().flatten().collect()
    }

    /// Returns `true` if a request reveals the secret that it is made with. A signature is valid for one
    /// request only, and the private key of a certificate is not sent.
    pub fn sends_secret(&self) -> bool {
        let sigv4 = self.sigv4.as_ref();
        let has_session_token =
            sigv4.is_some_and(|sigv4| sigv4.session_token.is_some() || sigv4.identity.is_some());
        let has_cloud = self.gcp.is_some() || self.azure.is_some() || self.github.is_some();
        let fetches_token = self.oauth2.is_some() || has_cloud;
        has_session_token || fetches_token || self.basic.is_some() || self.secret().is_some()
    }

    /// The URL of the endpoint that a token is fetched from over a network, and its config key; `None` for
    /// other kinds of accounts, and for the token of a machine, which its own metadata service has.
    pub fn token_url(&self) -> Option<(String, String)> {
        if let Some(oauth2) = &self.oauth2 {
            return Some((oauth2.token_url.clone(), "oauth2.token_url".to_owned()));
        }
        if let Some(identity) = self.sigv4.as_ref().and_then(|sigv4| sigv4.identity.as_ref()) {
            return identity.sts_url.clone().map(|url| (url, "sigv4.identity.sts_url".to_owned()));
        }
        let (kind, key, request) = self.cloud_request()?.ok()?;
        (!request.is_of_machine()).then(|| (request.token_url, format!("{kind}.{key}")))
    }

    /// Returns the request for a token of a cloud or of GitHub, its kind, and the config key that names its
    /// endpoint; or the key that is wrong, and the message.
    pub(super) fn cloud_request(&self) -> Option<Result<CloudRequest, (&'static str, String)>> {
        if let Some(gcp) = &self.gcp {
            let request = gcp.request().map(|(key, request)| ("gcp", key, request));
            return Some(request.map_err(|(key, error)| (key, error.to_string())));
        }
        if let Some(github) = &self.github {
            let request = github.request().map(|(key, request)| ("github", key, request));
            return Some(request.map_err(|(key, error)| (key, error.to_string())));
        }
        let request = self.azure.as_ref()?.request().map(|(key, request)| ("azure", key, request));
        Some(request.map_err(|(key, error)| (key, error.to_string())))
    }

    /// The name of the field or parameter that carries the secret, if the config names one.
    pub fn secret_name(&self) -> Option<&str> {
        let api_key = self.api_key.as_ref()?;
        api_key.header.as_deref().or(api_key.query.as_deref())
    }

    /// The secret that requests carry, if it is the same in all of them.
    pub(super) fn secret(&self) -> Option<&Secret> {
        let password = self.basic.as_ref().and_then(|basic| basic.password.as_ref());
        let value = self.api_key.as_ref().map(|api_key| &api_key.value);
        password.or(value).or(self.bearer.as_ref().map(|bearer| &bearer.token))
    }

    /// Returns a digest of the credential and all its settings, without the names of the providers.
    pub(super) fn digest(&self) -> [u8; 32] {
        let Self { oauth2, gcp, azure, github, sigv4, certificate, .. } = self;
        let others = Self { provider: AnyOf::default(), ..self.clone() };
        let unsent = certificate.iter().map(|certificate| &certificate.key);
        let unsent = unsent.chain(sigv4.iter().filter_map(|sigv4| sigv4.access_key_id.as_ref()));
        let unsent = unsent.chain(oauth2.iter().flat_map(OAuth2Config::secrets));
        let unsent = unsent.chain(oauth2.iter().filter_map(OAuth2Config::private_key));
        let unsent = unsent.chain(gcp.iter().filter_map(GcpConfig::private_key));
        let unsent = unsent.chain(azure.iter().filter_map(AzureConfig::private_key));
        let unsent = unsent.chain(github.iter().map(GithubConfig::private_key));
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        };
        // Secrets are serialized as their references only; their values follow below.
        add(&serde_json::to_vec(&others).unwrap_or_default());
        self.secrets().into_iter().chain(unsent).for_each(|secret| add(secret.expose().as_bytes()));
        context.finish().as_ref().try_into().unwrap_or_default()
    }

    /// Returns every secret that a recording must not show: those that are sent, and those that tokens are
    /// fetched with. Without a password, the user is the name of a key.
    pub(super) fn secrets_in_force(&self) -> Vec<&[u8]> {
        let user =
            self.basic.iter().filter(|basic| basic.password.is_none()).map(|basic| basic.user.as_bytes());
        let fetching = self.oauth2.iter().flat_map(OAuth2Config::secrets);
        let federated = self.azure.iter().filter_map(|azure| azure.workload.as_ref());
        let federated =
            federated.chain(self.oauth2.iter().filter_map(|oauth2| oauth2.client_assertion.as_ref()));
        let secrets = self
            .secrets()
            .into_iter()
            .chain(fetching)
            .chain(federated)
            .map(|secret| secret.expose().as_bytes());
        secrets.chain(user).collect()
    }

    /// Returns every secret that a provider could send back and that must be masked.
    pub(super) fn secrets(&self) -> Vec<&Secret> {
        let signing = self
            .sigv4
            .iter()
            .flat_map(|sigv4| [sigv4.secret_access_key.as_ref(), sigv4.session_token.as_ref()]);
        self.secret().into_iter().chain(signing.flatten()).collect()
    }
}
