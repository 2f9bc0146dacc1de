//! The config keys of error responses: `gateway.errors` and `providers.*.errors`.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The format and content of the gateway's own error responses.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ErrorsConfig {
    /// The format of their bodies.
    pub format: ErrorFormat,
    /// Overrides by the name of the error (such as `dns-failed`), for clients that expect a certain response.
    /// A status set by a remedy takes precedence.
    pub answers: BTreeMap<String, ErrorResponseConfig>,
}

/// The format of error bodies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ErrorFormat {
    /// A problem document (RFC 9457), `application/problem+json`.
    #[default]
    Problem,
    /// A line of text with the status code and the detail: `504: the provider did not respond in time`.
    Text,
    /// JSON as from the OpenAI API, of which its SDKs print `error.message`.
    Openai,
    /// JSON as from the Anthropic API, of which its SDKs print `error.message`.
    Anthropic,
    /// JSON, XML or CBOR as from the service of AWS that the request is for, of which its SDKs print code and
    /// message.
    Aws,
}

egret_config::keys! {
    /// The format of the gateway's own error responses in place of one provider.
    #[derive(Copy, Eq)]
    pub struct ProviderErrorsConfig {
        /// The format of their bodies, instead of `gateway.errors.format`: that of the SDK with which the
        /// provider is called.
        pub format: Option<ErrorFormat>,
    }
}

egret_config::keys! {
    /// Overrides for one error.
    #[derive(Eq)]
    pub struct ErrorResponseConfig {
        /// The status code.
        #[schemars(range(min = 400, max = 599))]
        pub status: Option<u16>,
        /// The detail text.
        pub detail: Option<String>,
    }
}
