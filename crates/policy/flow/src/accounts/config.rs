//! The config keys that accounts are made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use aws_lc_rs::digest;
use egret_config::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::placeholder::PlaceholderConfig;
use super::sigv4::Sigv4Config;
use super::token::OAuth2Config;
use crate::matching::AnyOf;

/// Accounts by name, as the config gives them.
pub type AccountConfigs = BTreeMap<String, AccountConfig>;

/// A credential for one provider or several: these, and exactly one of the kinds below. It is sent to nobody else.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AccountConfig {
    /// The providers that it is for, by name.
    pub provider: AnyOf,
    /// A user and a password (RFC 7617).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub basic: Option<BasicConfig>,
    /// A key in a header field or in the query.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api_key: Option<ApiKeyConfig>,
    /// A token that does not change (RFC 6750).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bearer: Option<BearerConfig>,
    /// A token that is fetched, and renewed before it expires (RFC 6749).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oauth2: Option<OAuth2Config>,
    /// A key of AWS, or of what speaks its protocol, that requests are signed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sigv4: Option<Sigv4Config>,
    /// A client certificate, shown in the handshake of TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateConfig>,
    /// With `basic`, `api_key` and `bearer`: has the secret stand where the client sends this word, and nowhere else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub placeholder: Option<PlaceholderConfig>,
}

/// A user and a password (RFC 7617).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BasicConfig {
    /// The user; no colon stands in it.
    pub user: String,
    /// The password. Left out where the user is the secret's name alone and the password empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<Secret>,
}

/// A key in a header field or in the query: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApiKeyConfig {
    /// The header field that it stands in: `x-api-key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<String>,
    /// The parameter of the query that it stands in: `key`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<String>,
    /// What comes before it in the field: `Token `, with the space.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// The key.
    pub value: Secret,
}

/// A token that does not change (RFC 6750).
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BearerConfig {
    /// The token.
    pub token: Secret,
}

/// A client certificate, shown in the handshake of TLS.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CertificateConfig {
    /// File with the certificate and its chain, in PEM. Read again on every reload.
    pub certificate: PathBuf,
    /// The certificate's private key, in PEM: `${file:PATH}` or `${env:NAME}`.
    pub key: Secret,
}

impl AccountConfig {
    /// The kinds that are given; a good account has one.
    pub(super) fn kinds(&self) -> Vec<&'static str> {
        let Self { provider: _, basic, api_key, bearer, oauth2, sigv4, certificate, placeholder: _ } = self;
        let kinds = [
            basic.is_some().then_some("basic"),
            api_key.is_some().then_some("api_key"),
            bearer.is_some().then_some("bearer"),
            oauth2.is_some().then_some("oauth2"),
            sigv4.is_some().then_some("sigv4"),
            certificate.is_some().then_some("certificate"),
        ];
        kinds.into_iter().flatten().collect()
    }

    /// Whether whoever reads its requests has what they are made with. A signature is good for one request,
    /// and a certificate's key is not sent.
    pub fn sends_secret(&self) -> bool {
        let has_session_token = self.sigv4.as_ref().is_some_and(|sigv4| sigv4.session_token.is_some());
        has_session_token || self.basic.is_some() || self.oauth2.is_some() || self.secret().is_some()
    }

    /// The name of the field or the parameter in which its secret stands, where the config names it.
    pub(crate) fn secret_name(&self) -> Option<&str> {
        let api_key = self.api_key.as_ref()?;
        api_key.header.as_deref().or(api_key.query.as_deref())
    }

    /// What stands in requests and must not be shown, if it is the same in all of them.
    pub(super) fn secret(&self) -> Option<&Secret> {
        let password = self.basic.as_ref().and_then(|basic| basic.password.as_ref());
        let value = self.api_key.as_ref().map(|api_key| &api_key.value);
        password.or(value).or(self.bearer.as_ref().map(|bearer| &bearer.token))
    }

    /// A digest of the credential with all that belongs to it, but not of the providers that it is for.
    pub(super) fn digest(&self) -> [u8; 32] {
        let Self { provider: _, basic: _, api_key: _, bearer: _, oauth2, sigv4, certificate, placeholder: _ } =
            self;
        let others = Self { provider: AnyOf::default(), ..self.clone() };
        let unsent = certificate.iter().map(|certificate| &certificate.key);
        let unsent = unsent.chain(sigv4.iter().map(|sigv4| &sigv4.access_key_id));
        let unsent = unsent.chain(oauth2.iter().flat_map(OAuth2Config::secrets));
        let mut context = digest::Context::new(&digest::SHA256);
        let mut add = |part: &[u8]| {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        };
        // Secrets show in it by what they are called alone.
        add(&serde_json::to_vec(&others).unwrap_or_default());
        self.secrets().into_iter().chain(unsent).for_each(|secret| add(secret.expose().as_bytes()));
        context.finish().as_ref().try_into().unwrap_or_default()
    }

    /// Everything that a provider could send back and that must not be shown.
    pub(super) fn secrets(&self) -> Vec<&Secret> {
        let signing = self
            .sigv4
            .iter()
            .flat_map(|sigv4| [Some(&sigv4.secret_access_key), sigv4.session_token.as_ref()]);
        self.secret().into_iter().chain(signing.flatten()).collect()
    }
}
