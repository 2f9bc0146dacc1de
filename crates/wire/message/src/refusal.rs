//! Responses that a remedy gives instead of the provider: refusals and responses from the config.

use std::borrow::Cow;

use egret_clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A rejection, with its reason and the time for a retry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The error.
    pub reason: Reason,
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
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
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

/// Reason for which a remedy rejects an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A quota is used up.
    QuotaExceeded,
    /// The store of a quota does not respond.
    StoreUnavailable,
    /// The maximum number of exchanges is in flight.
    TooManyInFlight,
    /// The queue is full.
    QueueFull,
    /// The quota has no allowance within the maximum wait.
    QueueTimeout,
    /// The provider has asked for a pause.
    ProviderThrottled,
    /// The provider has failed too often recently.
    CircuitOpen,
    /// A remedy that is configured to fail closed has failed.
    RemedyFailed,
    /// The client accepts only a stored response, and there is none.
    NotCached,
    /// There is no usable credential: the token endpoint fails, or every account is cooling down.
    AccountUnavailable,
    /// A script has refused the exchange.
    ScriptRefused,
}
