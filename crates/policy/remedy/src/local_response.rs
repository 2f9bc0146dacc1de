//! Responses that a remedy gives in place of the provider (short-circuits).

use std::sync::Arc;

use egret_cache::Served;
use egret_message::{ErrorKind, Fixed, Refused};

/// A response in place of the provider's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LocalResponse {
    /// A rejection; the gateway describes it in its own format (RFC 9457).
    Refused(Refused),
    /// A response that is written in the config.
    Fixed(Arc<Fixed>),
    /// A response from a cache.
    Stored(Served),
    /// An error response that is injected to test the application.
    Aborted(Refused),
    /// No response: the client's connection or stream is reset to test the application.
    Reset,
}

/// The kind of a local response, for outer remedies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalKind {
    /// A rejection.
    Refused(ErrorKind),
    /// A response that is written in the config.
    Fixed,
    /// A response from a cache.
    Stored,
    /// An injected failure, which outer remedies take for the provider's own.
    Injected,
}

impl LocalResponse {
    /// The kind of the response.
    pub fn kind(&self) -> LocalKind {
        match self {
            Self::Refused(refused) => LocalKind::Refused(refused.reason),
            Self::Fixed(_) => LocalKind::Fixed,
            Self::Stored(_) => LocalKind::Stored,
            Self::Aborted(_) | Self::Reset => LocalKind::Injected,
        }
    }
}
