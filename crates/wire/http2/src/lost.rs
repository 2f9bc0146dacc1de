//! The reasons why a call in a stream has no response, as far as they decide whether it may be repeated.

use std::io;

use thiserror::Error;

use crate::frame::Reason;
use crate::gate::Flood;

/// The reason why a provider's response does not come, or not to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Lost {
    /// The provider has not processed the request, and says so: by GOAWAY with the number of a stream before
    /// this one, or by `REFUSED_STREAM` (RFC 9113 §8.7). Or the request was never sent. It may be repeated,
    /// whatever its method.
    #[error("the provider refused to process the request (GOAWAY or REFUSED_STREAM)")]
    NotProcessed,
    /// The provider wants the request in HTTP/1.1 (`HTTP_1_1_REQUIRED`, RFC 9113 §7).
    #[error("the provider requires HTTP/1.1 for the request (HTTP_1_1_REQUIRED)")]
    Http11Required,
    /// The provider has ended the stream, for this reason.
    #[error("the provider reset the stream: {0}")]
    Reset(&'static str),
    /// The provider breaks a rule of HTTP/2, or does not speak it.
    #[error("the provider broke the rules of HTTP/2: {0}")]
    Violation(&'static str),
    /// The provider sends a flood of frames.
    #[error("the connection to the provider was closed: {0}")]
    Flood(Flood),
    /// The request has no form in HTTP/2.
    #[error("the request cannot be sent in HTTP/2")]
    Untranslatable,
    /// The connection is gone.
    #[error("the connection was closed")]
    Connection,
}

impl Lost {
    /// The reason for a stream that the provider has reset.
    pub(crate) fn by_reset(reason: Reason) -> Self {
        match reason {
            Reason::REFUSED_STREAM => Self::NotProcessed,
            Reason::HTTP_1_1_REQUIRED => Self::Http11Required,
            _ => Self::Reset(reason.name()),
        }
    }

    /// Returns the reason that an error of the gateway's own carries.
    pub fn carried_by(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref::<Self>().copied()
    }
}

impl From<Lost> for io::Error {
    fn from(lost: Lost) -> Self {
        Self::new(io::ErrorKind::ConnectionReset, lost)
    }
}
