//! Secret managers: Vault, AWS Secrets Manager, and Secret Manager of Google Cloud.
//!
//! A secret is fetched as a whole, so all its fields are of the same version. References name a field of it.
//! A login is made for each time that secrets are fetched, and forgotten afterwards.

mod aws;
mod error;
mod gcp;
mod identity;
mod reference;
mod times;
mod value;
mod vault;

use std::collections::BTreeSet;
use std::time::Duration;

use egret_config::{FetchedSecret, Problem, SECRET_BYTES_MAX};
use egret_net::config::ProxyConfig;
use serde_json::Value;
use tokio::runtime::Builder;
use tokio::time::timeout;
use zeroize::Zeroizing;

pub use aws::AwsSecretsConfig;
use aws::AwsSession;
use error::ManagerError;
pub use gcp::GcpSecretsConfig;
use gcp::GcpSession;
pub use reference::{ManagedReference, ManagerKind};
use times::{LIFETIME_MIN, TIMEOUT_MAX, TIMEOUT_MIN};
use vault::VaultSession;
pub use vault::{AppRoleConfig, KubernetesLoginConfig, VaultConfig, VaultLoginConfig};

use crate::written_texts::for_each_text;

/// Maximum number of secrets in secret managers that a config refers to, not counting their fields.
pub const MANAGED_SECRETS_MAX: usize = 64;

/// The config of a secret manager.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ManagerConfig {
    /// Vault.
    Vault(VaultConfig),
    /// AWS Secrets Manager.
    Aws(AwsSecretsConfig),
    /// Secret Manager of Google Cloud.
    Gcp(GcpSecretsConfig),
}

impl ManagerConfig {
    /// The manager.
    pub fn kind(&self) -> ManagerKind {
        match self {
            Self::Vault(_) => ManagerKind::Vault,
            Self::Aws(_) => ManagerKind::Aws,
            Self::Gcp(_) => ManagerKind::Gcp,
        }
    }

    fn times(&self) -> (Duration, Duration) {
        let (lifetime, timeout) = match self {
            Self::Vault(vault) => (vault.lifetime, vault.timeout),
            Self::Aws(aws) => (aws.lifetime, aws.timeout),
            Self::Gcp(gcp) => (gcp.lifetime, gcp.timeout),
        };
        (lifetime.get(), timeout.get())
    }

    /// The URL that it is called at.
    pub fn url(&self) -> String {
        match self {
            Self::Vault(vault) => vault.url.clone(),
            Self::Aws(aws) => aws.url(),
            Self::Gcp(gcp) => gcp.url.clone(),
        }
    }

    /// Reports the mistakes in it.
    pub fn problems(&self, problems: &mut Vec<Problem>) {
        let at = format!("secrets.{}", self.kind().word());
        let (lifetime, timeout) = self.times();
        let mut check = |key: &str, is_good: bool, message: &str| {
            if !is_good {
                problems.push(Problem::new(format!("{at}.{key}"), message));
            }
        };
        check("lifetime", lifetime >= LIFETIME_MIN, "must be at least `1s`");
        let is_bounded = (TIMEOUT_MIN..=TIMEOUT_MAX).contains(&timeout);
        check("timeout", is_bounded, "must be from `100ms` to `60s`");
        if let Err(error) = egret_export::check_url(&self.url()) {
            check("url", false, &error.to_string());
        }
        match self {
            Self::Vault(vault) => vault.check(check),
            Self::Aws(aws) => problems.extend(aws.problems(&at)),
            Self::Gcp(gcp) => problems.extend(gcp.problems(&at)),
        }
    }

    /// Its whole config, with the sources of secrets in their place.
    fn written(&self) -> String {
        let written = match self {
            Self::Vault(vault) => serde_json::to_string(vault),
            Self::Aws(aws) => serde_json::to_string(aws),
            Self::Gcp(gcp) => serde_json::to_string(gcp),
        };
        written.unwrap_or_default()
    }

    /// Logs in.
    async fn open(&self, proxy: Option<&ProxyConfig>) -> Result<ManagerSession<'_>, ManagerError> {
        Ok(match self {
            Self::Vault(vault) => ManagerSession::Vault(Box::new(VaultSession::open(vault, proxy).await?)),
            Self::Aws(aws) => ManagerSession::Aws(Box::new(AwsSession::open(aws, proxy).await?)),
            Self::Gcp(gcp) => ManagerSession::Gcp(Box::new(GcpSession::open(gcp, proxy).await?)),
        })
    }
}

/// A login at a secret manager.
enum ManagerSession<'a> {
    Vault(Box<VaultSession<'a>>),
    Aws(Box<AwsSession>),
    Gcp(Box<GcpSession>),
}

impl ManagerSession<'_> {
    /// Fetches a whole secret.
    async fn read(&mut self, name: &str) -> Result<Zeroizing<String>, ManagerError> {
        let secret = match self {
            Self::Vault(session) => session.read(name).await,
            Self::Aws(session) => session.read(name).await,
            Self::Gcp(session) => session.read(name).await,
        }?;
        match secret.len() {
            0 => Err(ManagerError::Empty),
            1..=SECRET_BYTES_MAX => Ok(secret),
            _ => Err(ManagerError::TooLong),
        }
    }
}

/// A secret manager, and the way to it.
#[derive(Debug, Clone)]
pub struct Manager {
    config: ManagerConfig,
    /// The proxy of `gateway.upstream_proxy`. The services of a machine are called without it.
    proxy: Option<ProxyConfig>,
    /// The config, with the sources of secrets in their place.
    key: String,
}

impl Manager {
    /// Returns the manager of this config, which is reached through `proxy` if that is for its server.
    pub fn new(config: ManagerConfig, proxy: Option<&ProxyConfig>) -> Self {
        let key = config.written();
        Self { config, proxy: proxy.cloned(), key }
    }

    /// The manager's kind.
    pub fn kind(&self) -> ManagerKind {
        self.config.kind()
    }

    /// Its whole config, with the sources of secrets in their place. Of two managers with the same one,
    /// secrets are the same.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Time after which secrets are fetched again.
    pub fn lifetime(&self) -> Duration {
        self.config.times().0
    }

    /// Fetches the secrets of these names. The results have their order. It blocks this thread, for the
    /// `timeout` of the config at most.
    pub fn fetch(&self, names: &[&str]) -> Vec<FetchedSecret> {
        let runtime = match Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => return names.iter().map(|_| Err(error.to_string())).collect(),
        };
        let fetched = runtime.block_on(self.fetch_within(names));
        // A look-up of a name may still be under way, and has no bound.
        runtime.shutdown_background();
        fetched
    }

    async fn fetch_within(&self, names: &[&str]) -> Vec<FetchedSecret> {
        let mut fetched: Vec<Result<Zeroizing<String>, ManagerError>> = Vec::with_capacity(names.len());
        let fetching = async {
            let mut session = self.config.open(self.proxy.as_ref()).await?;
            for name in names {
                fetched.push(session.read(name).await);
            }
            Ok::<(), ManagerError>(())
        };
        let (_, bound) = self.config.times();
        let ended = timeout(bound, fetching).await.unwrap_or(Err(ManagerError::TimedOut(bound)));
        let missing = ended.err().map(|error| error.to_string()).unwrap_or_default();
        let mut fetched: Vec<FetchedSecret> =
            fetched.into_iter().map(|result| result.map_err(|error| error.to_string())).collect();
        fetched.resize(names.len(), Err(missing));
        fetched
    }
}

/// Reports references to secrets in managers that cannot be followed, anywhere in a serialized config.
pub fn reference_problems(
    is_configured: impl Fn(ManagerKind) -> bool,
    written: &Value,
    problems: &mut Vec<Problem>,
) {
    let mut secrets = BTreeSet::new();
    for_each_text(written, "", &mut |at, text| {
        let Some(reference) = ManagedReference::of(text) else { return };
        let ManagedReference { manager, name, .. } = reference;
        secrets.insert((manager, name.to_owned()));
        let word = manager.word();
        if at.starts_with("secrets.") || at.starts_with("gateway.upstream_proxy.") {
            let message = "a secret that secret managers are reached with cannot be in one: use ${env:NAME}, ${file:PATH}, \
                           ${credential:NAME} or ${exec:NAME}";
            problems.push(Problem::new(at, message));
        } else if !is_configured(manager) {
            let message =
                format!("`{text}` is in a secret manager that is not configured: add `secrets.{word}`");
            problems.push(Problem::new(at, message));
        } else if let Err(error) = reference.check() {
            problems.push(Problem::new(at, error.to_string()));
        }
    });
    if secrets.len() > MANAGED_SECRETS_MAX {
        let message = format!("at most {MANAGED_SECRETS_MAX} secrets of secret managers are possible");
        problems.push(Problem::new("secrets", message));
    }
}

#[cfg(test)]
mod tests {
    use egret_tests::aws::response;
    use egret_tests::provider::{Peer, Provider, Request};
    use serde_json::{Value, json};

    use super::*;
    use crate::secrets_config::SecretsConfig;

    /// Returns a manager whose server, and whatever gives its identity, is at this stand-in.
    fn manager(kind: ManagerKind, server: &Provider, timeout: &str) -> Manager {
        let url = server.url();
        let key = "${env:CARGO_PKG_NAME}";
        let section = match kind {
            ManagerKind::Vault => json!({ "url": url, "timeout": timeout, "login": { "token": key } }),
            ManagerKind::Aws => json!({
                "url": url, "timeout": timeout, "region": "eu-west-1", "access_key_id": key, "secret_access_key": key,
            }),
            ManagerKind::Gcp => json!({
                "url": url, "timeout": timeout,
                "identity": { "metadata": true, "metadata_host": server.address().to_string() },
            }),
        };
        let mut secrets = json!({});
        secrets[kind.word()] = section;
        let secrets: SecretsConfig = serde_json::from_value(secrets).unwrap();
        let (config, mut problems) = (secrets.manager(kind).unwrap(), Vec::new());
        config.problems(&mut problems);
        assert_eq!(problems, []);
        Manager::new(config, None)
    }

    fn answer(request: &Request, status: &str, body: &str) -> Vec<u8> {
        if request.target().starts_with("/computeMetadata/") {
            response("200 OK", r#"{"access_token":"t","expires_in":60,"token_type":"Bearer"}"#)
        } else {
            response(status, body)
        }
    }

    /// Fetches a secret from a server with this response.
    fn fetched(kind: ManagerKind, status: &'static str, body: &Value) -> FetchedSecret {
        let body = body.as_str().map_or_else(|| body.to_string(), str::to_owned);
        let server = Provider::with_responses(move |request| answer(request, status, &body));
        manager(kind, &server, "60s").fetch(&["a/b"]).pop().unwrap()
    }

    #[test]
    fn a_secret_is_read_from_its_response() {
        for (kind, body, secret) in [
            (ManagerKind::Vault, json!({ "data": { "data": { "a": 1 }, "metadata": {} } }), r#"{"a":1}"#),
            (ManagerKind::Aws, json!({ "Name": "a/b", "SecretString": "{\"a\":\n1}" }), "{\"a\":\n1}"),
            (ManagerKind::Aws, json!({ "SecretBinary": "aHVudGVyMg==" }), "hunter2"),
            (ManagerKind::Gcp, json!({ "name": "n", "payload": { "data": "aHVudGVyMg==" } }), "hunter2"),
        ] {
            assert_eq!(fetched(kind, "200 OK", &body).unwrap().as_str(), secret);
        }
    }

    #[test]
    fn a_manager_that_gives_no_secret_is_named_with_the_reason() {
        let long = json!({ "data": { "data": { "a": "a".repeat(65 << 10) } } });
        for (kind, status, body, says) in [
            (ManagerKind::Vault, "200 OK", json!({ "data": { "a": "hunter2" } }), "of KV version 2"),
            (ManagerKind::Vault, "200 OK", json!("<html>hunter2</html>"), "of KV version 2"),
            (ManagerKind::Vault, "200 OK", long, "the secret is longer than 65536 bytes"),
            (
                ManagerKind::Vault,
                "403 Forbidden",
                json!("hunter2"),
                "Vault responded with 403: check the login",
            ),
            (ManagerKind::Vault, "307 Moved", json!("hunter2"), "307: redirects are not followed"),
            (
                ManagerKind::Aws,
                "200 OK",
                json!({ "SecretString": { "a": "hunter2" } }),
                "AWS Secrets Manager responded with something other than a secret",
            ),
            (ManagerKind::Aws, "200 OK", json!({ "SecretString": "" }), "the secret is empty"),
            (
                ManagerKind::Aws,
                "400 Bad Request",
                json!({ "__type": "com.amazonaws.secretsmanager#ResourceNotFoundException", "message": "hunter2" }),
                "AWS Secrets Manager responded with 400 ResourceNotFoundException: there is no such secret",
            ),
            (
                ManagerKind::Aws,
                "400 Bad Request",
                json!({ "__type": "hunter2" }),
                "responded with 400: check",
            ),
            (ManagerKind::Gcp, "200 OK", json!({ "payload": { "data": "hunter2!" } }), "other than a secret"),
            (ManagerKind::Gcp, "200 OK", json!({ "payload": { "data": "/w==" } }), "the secret is not UTF-8"),
            (
                ManagerKind::Gcp,
                "403 Forbidden",
                json!({ "error": { "status": "PERMISSION_DENIED", "message": "hunter2" } }),
                "Secret Manager responded with 403 PERMISSION_DENIED: allow the identity",
            ),
        ] {
            let error = fetched(kind, status, &body).unwrap_err();
            assert!(error.contains(says) && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    fn a_manager_that_does_not_respond_is_given_up() {
        let server = Provider::scripted(Peer::stall);
        for kind in ManagerKind::ALL {
            let results = manager(kind, &server, "100ms").fetch(&["a", "b"]);
            let expected = Err("it was not fetched within 0.1 s (`timeout`)".to_owned());
            assert_eq!(results, [expected.clone(), expected]);
        }
    }

    #[test]
    fn secrets_of_a_manager_are_fetched_with_one_token() {
        let body = r#"{"payload":{"data":"aHVudGVyMg=="}}"#;
        let server = Provider::with_responses(move |request| answer(request, "200 OK", body));
        let results = manager(ManagerKind::Gcp, &server, "60s").fetch(&["a", "b", "c"]);
        assert!(
            results.iter().all(|result| result.as_ref().is_ok_and(|secret| secret.as_str() == "hunter2"))
        );
        let requests = server.requests();
        let targets: Vec<&str> = requests.iter().map(Request::target).collect();
        assert_eq!(targets[1..], ["/v1/a:access", "/v1/b:access", "/v1/c:access"]);
        assert!(requests[1..].iter().all(|request| request.values("authorization") == ["Bearer t"]));
    }
}
