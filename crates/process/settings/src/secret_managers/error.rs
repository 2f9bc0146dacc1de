//! The reasons why a secret manager gives no secret.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use egret_accounts::token::TokenError;
use egret_config::{Problem, SECRET_BYTES_MAX};
use egret_export::UrlError;
use egret_export::fetch::FetchError;

/// The reason why there is no secret. It shows nothing of a response but codes that are known.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// Its URL cannot be used.
    #[error("`url`: {0}")]
    Url(#[from] UrlError),
    /// The identity is wrong.
    #[error("{}: {}", .0.path, .0.message)]
    Identity(Box<Problem>),
    /// The login is wrong.
    #[error("`login`: {0}")]
    Login(#[from] LoginError),
    /// The file that proves a workload cannot be read.
    #[error("cannot read the token file {}: {error}", .path.display())]
    TokenFile {
        /// The path of the file.
        path: PathBuf,
        /// The reason.
        #[source]
        error: io::Error,
    },
    /// It was not reached.
    #[error("{0}")]
    Call(#[from] FetchError),
    /// The identity could not be proven.
    #[error("{0}")]
    Unproven(TokenError),
    /// The identity has no keys.
    #[error("the identity has no keys, or those that it has have expired")]
    NoKeys,
    /// It refuses, fails or redirects.
    #[error("{manager} responded with {status}{}{}", .code.map(|code| format!(" {code}")).unwrap_or_default(), advice(*.status, *.code))]
    Refused {
        /// The name of the manager.
        manager: &'static str,
        /// The status code.
        status: u16,
        /// The code of the error, if it is a known one.
        code: Option<&'static str>,
    },
    /// Vault fails in the login. Some of its versions respond so to a wrong secret id.
    #[error("Vault responded with 500 to the login: check it, above all the secret id of an AppRole")]
    LoginFailed,
    /// The response has no secret.
    #[error("{0} responded with something other than a secret")]
    NoSecret(&'static str),
    /// The secret is not one of the second version of Vault's key-value store.
    #[error(
        "Vault responded with something other than a secret of KV version 2: its paths have `data` behind the mount"
    )]
    NotVersioned,
    /// The secret is not text.
    #[error("the secret is not UTF-8")]
    NotUtf8,
    /// The secret has no content.
    #[error("the secret is empty")]
    Empty,
    /// The secret is too long.
    #[error("the secret is longer than {SECRET_BYTES_MAX} bytes")]
    TooLong,
    /// There was not enough time.
    #[error("it was not fetched within {} s (`timeout`)", .0.as_secs_f64())]
    TimedOut(Duration),
}

impl ManagerError {
    /// Returns the first of these problems of an identity.
    pub fn of_identity(problems: Vec<Problem>) -> Self {
        let first = problems.into_iter().next();
        first.map_or(Self::NoKeys, |problem| Self::Identity(Box::new(problem)))
    }
}

/// The reason why nobody can log in at Vault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LoginError {
    /// None of the ways, or several.
    #[error("set exactly one of `token`, `app_role` and `kubernetes`")]
    Way,
    /// Not a path below `auth/`.
    #[error("must be a path below `auth/`, without a slash at its ends, like `approle`")]
    Mount,
    /// Not a token.
    #[error("is not a token of Vault: it has blanks or control characters")]
    Token,
}

/// Returns what to check after a refusal.
fn advice(status: u16, code: Option<&str>) -> &'static str {
    match (code, status) {
        (Some("ResourceNotFoundException" | "NOT_FOUND"), _) | (None, 404) => {
            ": there is no such secret, or this version of it was deleted"
        }
        (Some("AccessDeniedException" | "PERMISSION_DENIED"), _) => {
            ": allow the identity to read this secret"
        }
        (None, 300..=399) => ": redirects are not followed, to protect the login; correct `url`",
        (None, 400 | 401 | 403) => ": check the login, and that it may read this secret",
        _ => "",
    }
}
