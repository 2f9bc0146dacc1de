//! The config keys that accounts are made of.

use std::collections::BTreeMap;
use std::path::PathBuf;

use egret_config::Secret;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// A client certificate, shown in the handshake of TLS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate: Option<CertificateConfig>,
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
        let Self { provider: _, basic, api_key, bearer, oauth2, certificate } = self;
        let kinds = [
            basic.is_some().then_some("basic"),
            api_key.is_some().then_some("api_key"),
            bearer.is_some().then_some("bearer"),
            oauth2.is_some().then_some("oauth2"),
            certificate.is_some().then_some("certificate"),
        ];
        kinds.into_iter().flatten().collect()
    }
}
