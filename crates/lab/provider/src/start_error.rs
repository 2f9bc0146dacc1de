//! The reason why a provider cannot start.

use std::io;
use std::path::PathBuf;

use egret_har::replay;

/// The reason why a provider cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address cannot be bound.
    #[error("the provider cannot listen: {0}")]
    Listen(#[source] io::Error),
    /// The recording cannot be read.
    #[error("{file}: {error}")]
    Recording {
        /// The file.
        file: PathBuf,
        /// The problem with it.
        #[source]
        error: replay::Error,
    },
    /// The certificate cannot be made, or the certificate of its authority cannot be written to this file.
    #[error("the authority's certificate cannot be written to {file}: {error}")]
    Tls {
        /// The file.
        file: PathBuf,
        /// The cause.
        #[source]
        error: io::Error,
    },
    /// The system refuses a thread or an event loop.
    #[error("the provider's threads cannot be started: {0}")]
    Thread(#[source] io::Error),
}
