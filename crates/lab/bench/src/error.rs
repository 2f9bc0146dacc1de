//! The errors of the load client.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use egret_har::replay;

use crate::check::CheckError;
use crate::threshold::ThresholdError;
use crate::tls_config::TlsError;
use crate::url::UrlError;

/// The reason why a run could not be started or completed.
#[derive(Debug)]
pub enum Error {
    /// An invalid option or combination of options. The text says what to do instead.
    Usage(String),
    /// An invalid URL.
    Url(String, UrlError),
    /// An invalid check.
    Check(CheckError),
    /// An invalid threshold.
    Threshold(ThresholdError),
    /// TLS options that cannot be met.
    Tls(TlsError),
    /// A recording that cannot be read.
    Har(PathBuf, replay::Error),
    /// A file that cannot be read.
    Read(PathBuf, io::Error),
    /// A file that cannot be written.
    Write(PathBuf, io::Error),
    /// A host that has no address.
    Resolve(String, io::Error),
    /// A host that accepts a connection on none of its addresses.
    Unreachable(String, io::Error),
    /// The run was aborted for this reason.
    Aborted(String),
    /// An error from the operating system.
    System(io::Error),
}

impl Error {
    /// Returns `true` if the user's input is at fault (exit code 2), and `false` if the run failed (exit code
    /// 1).
    pub fn is_misuse(&self) -> bool {
        match self {
            Self::Usage(_)
            | Self::Url(..)
            | Self::Check(_)
            | Self::Threshold(_)
            | Self::Tls(_)
            | Self::Har(..)
            | Self::Read(..) => true,
            Self::Write(..)
            | Self::Resolve(..)
            | Self::Unreachable(..)
            | Self::Aborted(_)
            | Self::System(_) => false,
        }
    }

    /// Reads a file of at most `bytes_max` bytes.
    pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Self> {
        let failed = |error| Self::Read(path.to_owned(), error);
        let length = std::fs::metadata(path).map_err(failed)?.len();
        if length > bytes_max {
            let message = format!("{length} bytes, more than the maximum of {bytes_max}");
            return Err(failed(io::Error::other(message)));
        }
        std::fs::read(path).map_err(failed)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::Aborted(message) => f.write_str(message),
            Self::Url(text, error) => write!(f, "invalid URL `{text}`: {error}"),
            Self::Check(error) => error.fmt(f),
            Self::Threshold(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Har(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Read(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            Self::Write(path, error) => write!(f, "{} cannot be written: {error}", path.display()),
            Self::Resolve(host, error) => {
                write!(f, "cannot resolve `{host}`: {error}; is the name right, and is there a network?")
            }
            Self::Unreachable(host, error) => {
                write!(
                    f,
                    "cannot connect to any address of `{host}`: {error}; is it running, and is the port right?"
                )
            }
            Self::System(error) => write!(f, "system error: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<CheckError> for Error {
    fn from(error: CheckError) -> Self {
        Self::Check(error)
    }
}

impl From<TlsError> for Error {
    fn from(error: TlsError) -> Self {
        Self::Tls(error)
    }
}

impl From<ThresholdError> for Error {
    fn from(error: ThresholdError) -> Self {
        Self::Threshold(error)
    }
}
