//! The config keys of secrets: the commands and the secret managers that have them, and the rule for files.

use egret_config::Problem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::secret_commands::{self, SecretCommandConfigs};
use crate::secret_files;
use crate::secret_managers::{
    AwsSecretsConfig, GcpSecretsConfig, ManagerConfig, ManagerKind, VaultConfig, reference_problems,
};

egret_config::keys! {
    /// Secrets from secret managers and of commands, and the handling of files with secrets. This section
    /// cannot be changed over the API. Secrets in it cannot come from a secret manager.
    #[derive(Eq)]
    pub struct SecretsConfig {
        /// Treatment of a `${file:PATH}` file that every user of the machine may read: `refuse` the config,
        /// or `allow` it, for example in a container, where mounted secrets are often world-readable and
        /// there are no other users.
        pub world_readable: WorldReadable,
        /// Commands that print a secret, by the name in `${exec:NAME}`: at most 64.
        #[serde(skip_serializing_if = "SecretCommandConfigs::is_empty")]
        #[schemars(extend("maxProperties" = 64))]
        pub commands: SecretCommandConfigs,
        /// Vault, for `${vault:PATH#FIELD}`.
        pub vault: Option<VaultConfig>,
        /// AWS Secrets Manager, for `${aws:NAME#FIELD}`.
        pub aws: Option<AwsSecretsConfig>,
        /// Secret Manager of Google Cloud, for `${gcp:NAME#FIELD}`.
        pub gcp: Option<GcpSecretsConfig>,
    }
}

/// Treatment of a world-readable secret file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorldReadable {
    /// Reject the config.
    #[default]
    Refuse,
    /// Accept the file.
    Allow,
}

impl SecretsConfig {
    /// Returns the config of a secret manager, if there is one.
    pub fn manager(&self, kind: ManagerKind) -> Option<ManagerConfig> {
        match kind {
            ManagerKind::Vault => self.vault.clone().map(ManagerConfig::Vault),
            ManagerKind::Aws => self.aws.clone().map(ManagerConfig::Aws),
            ManagerKind::Gcp => self.gcp.clone().map(ManagerConfig::Gcp),
        }
    }

    /// Returns the configs of all secret managers.
    pub fn managers(&self) -> impl Iterator<Item = ManagerConfig> {
        ManagerKind::ALL.into_iter().filter_map(|kind| self.manager(kind))
    }

    /// Reports mistakes in it, and references to secrets that cannot be followed, anywhere in the serialized
    /// config.
    pub fn problems(&self, written: &Value, problems: &mut Vec<Problem>) {
        secret_commands::problems(&self.commands, written, problems);
        for manager in self.managers() {
            manager.problems(problems);
        }
        reference_problems(|kind| self.manager(kind).is_some(), written, problems);
        if self.world_readable == WorldReadable::Refuse {
            secret_files::check_permissions(written, problems);
        }
    }
}
