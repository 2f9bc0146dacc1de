//! Why a run of the load client could not be made.

use std::path::{Path, PathBuf};
use std::{fmt, io};

use super::check::CheckError;
use super::threshold::ThresholdError;
use super::tls::TlsError;
use super::url::UrlError;
use crate::har;

/// Why a run could not be made, or not to its end.
#[derive(Debug)]
pub enum Error {
    /// An option, or several together, that make no sense; what to do instead.
    Usage(String),
    /// A text that is no URL.
    Url(String, UrlError),
    /// A check that cannot be understood.
    Check(CheckError),
    /// A threshold that cannot be understood.
    Threshold(ThresholdError),
    /// TLS that cannot be spoken as asked.
    Tls(TlsError),
    /// A recording that cannot be read.
    Har(PathBuf, har::Error),
    /// A file that cannot be read.
    Read(PathBuf, io::Error),
    /// A file that cannot be written.
    Write(PathBuf, io::Error),
    /// A host that has no address.
    Resolve(String, io::Error),
    /// A host none of whose addresses takes a connection.
    Unreachable(String, io::Error),
    /// The run was given up, and why.
    GivenUp(String),
    /// What the system would not do.
    System(io::Error),
}

impl Error {
    /// Whether it was asked wrongly (exit code 2), and not that it could not be done (1).
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
            | Self::GivenUp(_)
            | Self::System(_) => false,
        }
    }

    /// Reads a file of at most `bytes_max` bytes.
    pub fn read(path: &Path, bytes_max: u64) -> Result<Vec<u8>, Self> {
        let failed = |error| Self::Read(path.to_owned(), error);
        let length = std::fs::metadata(path).map_err(failed)?.len();
        if length > bytes_max {
            let message = format!("it has {length} bytes, and {bytes_max} are allowed");
            return Err(failed(io::Error::other(message)));
        }
        std::fs::read(path).map_err(failed)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message) | Self::GivenUp(message) => f.write_str(message),
            Self::Url(text, error) => write!(f, "invalid URL `{text}`: {error}"),
            Self::Check(error) => error.fmt(f),
            Self::Threshold(error) => error.fmt(f),
            Self::Tls(error) => error.fmt(f),
            Self::Har(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Read(path, error) => write!(f, "{} cannot be read: {error}", path.display()),
            Self::Write(path, error) => write!(f, "{} cannot be written: {error}", path.display()),
            Self::Resolve(host, error) => {
                write!(
                    f,
                    "no address is known for `{host}`: {error}; is the name right, and is there a network?"
                )
            }
            Self::Unreachable(host, error) => {
                write!(
                    f,
                    "cannot connect to any address of `{host}`: {error}; is it running, and is that its port?"
                )
            }
            Self::System(error) => write!(f, "the system would not go along: {error}"),
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
