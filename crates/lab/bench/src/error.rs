//! The errors of the load client.

use std::io;
use std::path::{Path, PathBuf};

use egret_har::replay;

use crate::check::CheckError;
use crate::threshold::ThresholdError;
use crate::tls_config::TlsError;
use crate::url::UrlError;

/// The reason why a run could not be started or completed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An invalid option or combination of options. The text says what to do instead.
    #[error("{0}")]
    Usage(String),
    /// An invalid URL.
    #[error("invalid URL `{0}`: {1}")]
    Url(String, UrlError),
    /// An invalid check.
    #[error("{0}")]
    Check(#[from] CheckError),
    /// An invalid threshold.
    #[error("{0}")]
    Threshold(#[from] ThresholdError),
    /// TLS options that cannot be met.
    #[error("{0}")]
    Tls(#[from] TlsError),
    /// A recording that cannot be read.
    #[error("{0}: {1}")]
    Har(PathBuf, replay::Error),
    /// A file that cannot be read.
    #[error("{0} cannot be read: {1}")]
    Read(PathBuf, io::Error),
    /// A file that cannot be written.
    #[error("{0} cannot be written: {1}")]
    Write(PathBuf, io::Error),
    /// A host that has no address.
    #[error("cannot resolve `{0}`: {1}; is the name right, and is there a network?")]
    Resolve(String, io::Error),
    /// A host that accepts a connection on none of its addresses.
    #[error("cannot connect to any address of `{0}`: {1}; is it running, and is the port right?")]
    Unreachable(String, io::Error),
    /// The run was aborted for this reason.
    #[error("{0}")]
    Aborted(String),
    /// An error from the operating system.
    #[error("system error: {0}")]
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
