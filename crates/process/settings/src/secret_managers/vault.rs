//! Secrets of Vault, in the second version of its key-value store (KV 2).

use std::path::{Path, PathBuf};

use egret_config::{Duration, SECRET_BYTES_MAX, Secret, read_file};
use egret_export::check_url;
use egret_export::fetch::{ServerClient, ServerRequest, ServerResponse};
use egret_net::config::ProxyConfig;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::error::{LoginError, ManagerError};
use super::reference::{are_segments, encoded};
use super::times::{lifetime_default, timeout_default};
use super::value::{object, object_at, text_at};

/// The name of the manager in messages.
const NAME: &str = "Vault";

/// Vault, called over its HTTP API. `${vault:PATH#FIELD}` is a field of a secret in its key-value store,
/// version 2: `${vault:secret/data/stripe#key}` for what `vault kv get secret/stripe` shows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VaultConfig {
    /// URL of the server: `https://vault.example:8200`. It is called through `gateway.upstream_proxy`, if
    /// that is for it. Redirects are not followed.
    pub url: String,
    /// Namespace of the secrets and of the login, as Vault Enterprise has them: `team/payments`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// PEM file of certificate authorities to trust for the server, besides the system's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// The way to log in. It is done each time that secrets are fetched.
    pub login: VaultLoginConfig,
    /// Time after which secrets are fetched again, at least `1s`. If that fails, the last ones stay in use,
    /// and it is tried again every 30 seconds.
    #[serde(default = "lifetime_default")]
    pub lifetime: Duration,
    /// Maximum time of a login and of fetching all secrets, from `100ms` to `60s`.
    #[serde(default = "timeout_default")]
    pub timeout: Duration,
}

egret_config::keys! {
    /// The way to log in at Vault: set exactly one of these keys.
    #[derive(Eq)]
    pub struct VaultLoginConfig {
        /// A token of Vault. Egret does not renew it: use a periodic one that something else renews, such as
        /// Vault's agent, in a file.
        pub token: Option<Secret>,
        /// An `AppRole`.
        pub app_role: Option<AppRoleConfig>,
        /// The token of a Kubernetes service account.
        pub kubernetes: Option<KubernetesLoginConfig>,
    }
}

/// An `AppRole` of Vault. Its secret id must allow many uses.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AppRoleConfig {
    /// Identifier of the role.
    pub role_id: String,
    /// Secret id of the role.
    pub secret_id: Secret,
    /// Path that the login method is mounted at, below `auth/`.
    #[serde(default = "app_role_mount")]
    pub mount: String,
}

/// A login at Vault with the token of a Kubernetes service account.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct KubernetesLoginConfig {
    /// Role of Vault that the service account is bound to.
    pub role: String,
    /// File with the token, which is read for each login.
    #[serde(default = "token_file")]
    pub token_file: PathBuf,
    /// Path that the login method is mounted at, below `auth/`.
    #[serde(default = "kubernetes_mount")]
    pub mount: String,
}

fn app_role_mount() -> String {
    "approle".to_owned()
}

fn kubernetes_mount() -> String {
    "kubernetes".to_owned()
}

fn token_file() -> PathBuf {
    "/var/run/secrets/kubernetes.io/serviceaccount/token".into()
}

/// A way to log in.
enum VaultLogin<'a> {
    Token(&'a Secret),
    AppRole(&'a AppRoleConfig),
    Kubernetes(&'a KubernetesLoginConfig),
}

impl VaultLoginConfig {
    /// Returns the only way that is set. An error has the key that is wrong, below `login`.
    fn way(&self) -> Result<VaultLogin<'_>, (&'static str, LoginError)> {
        let is_mount =
            |mount: &str, key| if are_segments(mount) { Ok(()) } else { Err((key, LoginError::Mount)) };
        match (&self.token, &self.app_role, &self.kubernetes) {
            (Some(token), None, None) => {
                let is_token = token.expose().bytes().all(|byte| byte.is_ascii_graphic());
                if is_token { Ok(VaultLogin::Token(token)) } else { Err((".token", LoginError::Token)) }
            }
            (None, Some(role), None) => {
                is_mount(&role.mount, ".app_role.mount").map(|()| VaultLogin::AppRole(role))
            }
            (None, None, Some(role)) => {
                is_mount(&role.mount, ".kubernetes.mount").map(|()| VaultLogin::Kubernetes(role))
            }
            _ => Err(("", LoginError::Way)),
        }
    }
}

impl VaultConfig {
    /// Calls `check` with the key, `false` and the message of each mistake.
    pub(super) fn check(&self, mut check: impl FnMut(&str, bool, &str)) {
        let is_namespace = |namespace: &String| {
            !namespace.is_empty() && namespace.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let is_good = self.namespace.as_ref().is_none_or(is_namespace);
        check("namespace", is_good, "must be a path of visible characters, like `team/payments`");
        if let Err((key, error)) = self.login.way() {
            check(&format!("login{key}"), false, &error.to_string());
        }
    }
}

/// A login at Vault.
pub(super) struct VaultSession<'a> {
    config: &'a VaultConfig,
    client: ServerClient,
    /// Beginning of each path, without a slash at its end.
    base: String,
    /// Empty before the login.
    token: Zeroizing<String>,
}

impl<'a> VaultSession<'a> {
    /// Logs in.
    pub async fn open(config: &'a VaultConfig, proxy: Option<&ProxyConfig>) -> Result<Self, ManagerError> {
        let url = check_url(&config.url)?;
        let client = ServerClient::new(&url, config.ca.as_deref(), proxy)?;
        let base = format!("{}/v1", url.path().trim_end_matches('/'));
        let mut session = Self { config, client, base, token: Zeroizing::default() };
        session.token = match config.login.way().map_err(|(_, error)| error)? {
            VaultLogin::Token(token) => Zeroizing::new(token.expose().to_owned()),
            VaultLogin::AppRole(AppRoleConfig { role_id, secret_id, mount }) => {
                let members = [("role_id", role_id.as_str()), ("secret_id", secret_id.expose())];
                session.log_in(mount, object(&members)).await?
            }
            VaultLogin::Kubernetes(KubernetesLoginConfig { role, token_file, mount }) => {
                let token = proof(token_file)?;
                session.log_in(mount, object(&[("role", role.as_str()), ("jwt", token.as_str())])).await?
            }
        };
        Ok(session)
    }

    async fn log_in(
        &mut self,
        mount: &str,
        form: Zeroizing<Vec<u8>>,
    ) -> Result<Zeroizing<String>, ManagerError> {
        let target = format!("{}/auth/{}/login", self.base, encoded(mount));
        let response = self.call("POST", &target, form).await.map_err(|error| match error {
            ManagerError::Refused { status: 500, .. } => ManagerError::LoginFailed,
            error => error,
        })?;
        text_at(&response.body, "/auth/client_token").ok_or(ManagerError::NoSecret(NAME))
    }

    /// Fetches the secret at a path, with all its fields.
    pub async fn read(&mut self, path: &str) -> Result<Zeroizing<String>, ManagerError> {
        let target = format!("{}/{}", self.base, encoded(path));
        let response = self.call("GET", &target, Zeroizing::default()).await?;
        object_at(&response.body, "/data/data").ok_or(ManagerError::NotVersioned)
    }

    async fn call(
        &mut self,
        method: &str,
        target: &str,
        body: Zeroizing<Vec<u8>>,
    ) -> Result<ServerResponse, ManagerError> {
        // Vault's agent can be told to refuse requests without this field, which no web page can send.
        let mut fields = vec![("X-Vault-Request", "true")];
        fields.extend(self.config.namespace.as_ref().map(|name| ("X-Vault-Namespace", name.as_str())));
        fields.extend(Some(("X-Vault-Token", self.token.as_str())).filter(|(_, token)| !token.is_empty()));
        fields.extend(Some(("Content-Type", "application/json")).filter(|_| !body.is_empty()));
        let response = self.client.send(ServerRequest { method, target, fields: &fields, body }).await?;
        match response.status {
            200 => Ok(response),
            status => Err(ManagerError::Refused { manager: NAME, status, code: None }),
        }
    }
}

/// Reads the token of a service account.
fn proof(path: &Path) -> Result<Zeroizing<String>, ManagerError> {
    let bytes = read_file(path, SECRET_BYTES_MAX)
        .map_err(|error| ManagerError::TokenFile { path: path.to_owned(), error })?;
    let text = str::from_utf8(&bytes).map_err(|_| ManagerError::NotUtf8)?;
    Ok(Zeroizing::new(text.trim_ascii().to_owned()))
}
