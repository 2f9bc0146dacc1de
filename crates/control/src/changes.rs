//! Calls that read and change the config's files. The owner of the files handles them, one after the other,
//! on a thread of its own: a reload may take longer than a scrape should wait.

use egret_config::{LocatedProblem, Secret};
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::identity::Identity;

/// Maximum number of calls that wait for their turn.
pub const CALLS_MAX: usize = 8;

/// Access to the config's files for the control port, and who the gateway is.
#[derive(Debug)]
pub struct ConfigAccess {
    /// Proves to commands of the same user that this is their gateway. Without it, none believes it.
    pub identity: Option<Identity>,
    /// The token created at start, if the config has none. Without any token every call is refused.
    pub token: Option<Secret>,
    /// Receives the calls; of capacity [`CALLS_MAX`].
    pub calls: mpsc::Sender<ConfigCall>,
}

/// A call, and where its reply goes.
#[derive(Debug)]
pub struct ConfigCall {
    /// The request.
    pub request: ConfigRequest,
    /// Receives the reply.
    pub reply: oneshot::Sender<Result<ConfigReply, ChangeRefusal>>,
}

/// A request of a [`ConfigCall`].
#[derive(Debug)]
pub enum ConfigRequest {
    /// Returns the files as they are written.
    Files,
    /// Checks a text in place of the config file.
    Validate {
        /// The text of the config.
        text: String,
    },
    /// Replaces a file, and applies the config.
    Replace {
        /// Name of the file, as [`ConfigRequest::Files`] returns it.
        name: String,
        /// The new text.
        text: String,
        /// The tag of the files that the change is based on.
        etag: EntityTags,
        /// The user whom the trusted proxy named.
        user: Option<String>,
    },
    /// Lists the versions that were in effect.
    Versions,
    /// Returns a text of a version.
    Version {
        /// Number of the version.
        number: u64,
        /// Name of the file, as [`ConfigRequest::Files`] returns it. Default: the config file.
        file: Option<String>,
    },
    /// Replaces the files by those of a version, and applies it.
    Rollback {
        /// Number of the version.
        number: u64,
        /// The tag of the files that the change is based on, if the client sent one.
        etag: Option<EntityTags>,
        /// The user whom the trusted proxy named.
        user: Option<String>,
    },
    /// Applies the files as they are, even if they have not changed.
    Reload,
}

/// The tags of an `If-Match` (RFC 9110 §13.1.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EntityTags(String);

impl EntityTags {
    /// Wraps the value of the field.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// Returns `true` if one of them is this strong tag, quotes included.
    pub fn contains(&self, etag: &str) -> bool {
        self.0.split(',').any(|tag| tag.trim() == etag)
    }
}

/// The reply to a [`ConfigRequest`].
#[derive(Debug)]
pub enum ConfigReply {
    /// To `Files`.
    Files(ConfigFiles),
    /// To `Validate`.
    Checked(Checked),
    /// To `Replace`, `Rollback` and `Reload`.
    Applied(Applied),
    /// To `Versions`, the newest first.
    Versions(Vec<Version>),
    /// To `Version`.
    Text(String),
}

/// The files of the config.
#[derive(Debug, Serialize)]
pub struct ConfigFiles {
    /// Strong tag over the names and texts of all files, quotes included.
    pub etag: String,
    /// The files: the config file, and those that it includes. Only the first one can be replaced.
    pub files: Vec<ConfigFile>,
}

/// A file of the config.
#[derive(Debug, Serialize)]
pub struct ConfigFile {
    /// Its name, relative to the directory of the config file.
    pub name: String,
    /// Its text as written: secrets are references.
    pub text: String,
}

/// The result of checking a text.
#[derive(Debug, Serialize)]
pub struct Checked {
    /// `true` if the text could be applied.
    pub valid: bool,
    /// Reasons against it, in the order of the text.
    pub problems: Vec<LocatedProblem>,
    /// Warnings about a valid text.
    pub warnings: Vec<LocatedProblem>,
}

/// The result of a change.
#[derive(Debug, Serialize)]
pub struct Applied {
    /// The tag of the files from now on.
    pub etag: String,
    /// Number of the version that is now in effect; `None` if versions cannot be kept.
    pub version: Option<u64>,
    /// Top-level sections that the change applied to the running gateway.
    pub applied: Vec<String>,
    /// Changed keys that only a restart applies.
    pub restart: Vec<&'static str>,
    /// Warnings about the config.
    pub warnings: Vec<LocatedProblem>,
}

/// A version of the config that was in effect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// Its number; a later version has a higher one.
    pub number: u64,
    /// Time at which it came into effect, in microseconds since the epoch.
    pub since_us: u64,
    /// The reason for the change.
    pub origin: &'static str,
    /// The user who made it over the API, if the trusted proxy named one.
    pub user: Option<String>,
    /// Length of its texts.
    pub bytes: u64,
    /// Number of its files: the config file, and those that it includes.
    pub files: usize,
    /// `true` for the version in effect.
    pub current: bool,
}

/// The reason why a call is refused. Nothing has changed then.
#[derive(Debug)]
pub enum ChangeRefusal {
    /// Egret runs without a config file.
    NoFile,
    /// The config file has another name.
    UnknownFile,
    /// There is no version with that number.
    UnknownVersion,
    /// Another text is being checked.
    Busy,
    /// The files have changed since the client read them.
    Stale,
    /// `control.config_changes` refuses every change.
    Off,
    /// `control.config_changes` refuses these changes.
    Forbidden(Vec<LocatedProblem>),
    /// The config is invalid.
    Invalid(Vec<LocatedProblem>),
    /// The files as they are cannot be applied. The text says why.
    Rejected(String),
    /// The file cannot be replaced. The text says why.
    ReadOnly(String),
    /// A valid config could not be applied, or the file not be read.
    Failed(String),
}
