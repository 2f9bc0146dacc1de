//! Accounts of GitHub Apps: the token of an installation.

use egret_config::{Duration, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::assertion::AssertionConfig;
use super::config::{Grant, OAuth2Config, timeout_default, wait_max_default};

/// The token of an installation of a GitHub App, which Egret fetches and renews before it expires. It proves
/// itself to GitHub by an assertion (RS256) that it signs with the key of the app.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GithubConfig {
    /// Client id of the app, or its app id in quotation marks.
    pub app: String,
    /// Id of the installation: the number at the end of the URL of its settings.
    pub installation: u64,
    /// A private key of the app, in PEM, as GitHub generates it (RSA): `${file:PATH}`.
    pub key: Secret,
    /// URL of the API. GitHub Enterprise Server has it at `https://HOST/api/v3`.
    #[serde(default = "url_default")]
    pub url: String,
    /// Maximum time that a call waits for a token if there is none. After that it is rejected with 503
    /// `account-unavailable`.
    #[serde(default = "wait_max_default")]
    pub wait_max: Duration,
    /// Maximum duration of a whole token request.
    #[serde(default = "timeout_default")]
    pub timeout: Duration,
}

fn url_default() -> String {
    "https://api.github.com".to_owned()
}

/// Reason why there is no request for the token of an installation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum GithubError {
    /// No app, or not one.
    #[error("must be the client id of the app, like `Iv23liAbCdEf`, or its app id")]
    App,
    /// A URL to which no path can be appended.
    #[error("must have no query")]
    Url,
}

impl GithubConfig {
    /// The private key, which is never sent.
    pub(crate) fn private_key(&self) -> &Secret {
        &self.key
    }

    /// Returns the request for a token, and the config key that names its endpoint; or the key that is wrong,
    /// and the reason.
    pub(crate) fn request(&self) -> Result<(&'static str, OAuth2Config), (&'static str, GithubError)> {
        let is_id = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if self.app.is_empty() || !self.app.bytes().all(is_id) {
            return Err(("app", GithubError::App));
        }
        if self.url.contains('?') {
            return Err(("url", GithubError::Url));
        }
        let (base, installation) = (self.url.trim_end_matches('/'), self.installation);
        let url = format!("{base}/app/installations/{installation}/access_tokens");
        let request = OAuth2Config {
            assertion: Some(AssertionConfig { is_rsa_only: true, ..AssertionConfig::new(self.key.clone()) }),
            wait_max: self.wait_max,
            timeout: self.timeout,
            ..OAuth2Config::new(Grant::Installation, url, self.app.clone())
        };
        Ok(("url", request))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_installation_has_its_endpoint_below_the_api() {
        for (url, expected) in [
            (None, "https://api.github.com/app/installations/7/access_tokens"),
            (
                Some("https://git.example/api/v3/"),
                "https://git.example/api/v3/app/installations/7/access_tokens",
            ),
        ] {
            let mut config = json!({ "app": "Iv1.a", "installation": 7, "key": "${env:PATH}" });
            if let Some(url) = url {
                config["url"] = url.into();
            }
            let config: GithubConfig = serde_json::from_value(config).unwrap();
            let (key, request) = config.request().unwrap();
            assert_eq!((key, &*request.token_url, &*request.client_id), ("url", expected, "Iv1.a"));
        }
    }

    #[test]
    fn a_wrong_app_or_url_is_reported() {
        for (app, url, key) in
            [("", "https://a", "app"), ("a b", "https://a", "app"), ("a", "https://a?b", "url")]
        {
            let config = json!({ "app": app, "installation": 7, "key": "${env:PATH}", "url": url });
            let config: GithubConfig = serde_json::from_value(config).unwrap();
            assert_eq!(config.request().unwrap_err().0, key);
        }
    }
}
