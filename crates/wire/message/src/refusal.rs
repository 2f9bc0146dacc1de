//! Responses that a remedy gives instead of the provider: refusals and responses from the config.

use std::borrow::Cow;

use egret_clock::Timestamp;

use crate::error_kind::ErrorKind;

/// A rejection, with its reason and the time for a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The error.
    pub reason: ErrorKind,
    /// The status code, if the config overrides that of the error.
    pub status: Option<u16>,
    /// The cause, and advice. Contains no data from a peer.
    pub detail: Cow<'static, str>,
    /// Earliest time for a retry; sent as `Retry-After`.
    pub retry_at: Option<Timestamp>,
    /// Additional header fields as names and values; validated by the caller.
    pub fields: Vec<(Cow<'static, str>, Vec<u8>)>,
}

impl Refused {
    /// Creates a rejection for `reason`, described by `detail`.
    pub fn new(reason: ErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, status: None, detail: detail.into(), retry_at: None, fields: Vec::new() }
    }
}

/// A response that is written in the config.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// The status code, 200 to 599.
    pub status: u16,
    /// Header fields as names and values; validated by the caller. The gateway adds those that frame the
    /// message.
    pub fields: Vec<(Cow<'static, str>, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}
