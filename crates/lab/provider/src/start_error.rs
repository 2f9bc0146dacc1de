//! The reason why a provider cannot start.

use std::path::PathBuf;
use std::{fmt, io};

use egret_har::replay;

/// The reason why a provider cannot start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be bound.
    Listen(io::Error),
    /// The recording cannot be read.
    Recording {
        /// The file.
        file: PathBuf,
        /// The problem with it.
        error: replay::Error,
    },
    /// The certificate cannot be made, or the certificate of its authority cannot be written to this file.
    Tls {
        /// The file.
        file: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The system refuses a thread or an event loop.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(error) => write!(f, "the provider cannot listen: {error}"),
            Self::Recording { file, error } => write!(f, "{}: {error}", file.display()),
            Self::Tls { file, error } => {
                write!(f, "the authority's certificate cannot be written to {}: {error}", file.display())
            }
            Self::Thread(error) => write!(f, "the provider's threads cannot be started: {error}"),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(error) | Self::Tls { error, .. } | Self::Thread(error) => Some(error),
            Self::Recording { error, .. } => Some(error),
        }
    }
}
