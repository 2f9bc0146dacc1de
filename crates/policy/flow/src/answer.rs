//! Answers that a remedy gives in the provider's place.

use std::borrow::Cow;
use std::sync::Arc;

use crate::cache::Served;
use egret_clock::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An answer in the provider's place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The exchange is refused; the gateway tells why in its own form (RFC 9457).
    Refused(Refused),
    /// A response that the config spells out.
    Fixed(Arc<Fixed>),
    /// One that a cache has stored.
    Stored(Served),
}

/// What kind of answer it was, for remedies further out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Local {
    /// A refusal.
    Refused(Reason),
    /// A response that the config spells out.
    Fixed,
    /// One that a cache has stored.
    Stored,
}

/// Why an exchange is refused, and when it is worth trying again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// Which error.
    pub reason: Reason,
    /// The status, where the config wants another than the error's own.
    pub status: Option<u16>,
    /// What happened and what to do. Holds nothing that a peer sent.
    pub detail: Cow<'static, str>,
    /// When it is worth trying again: becomes `Retry-After`.
    pub retry_at: Option<Timestamp>,
    /// Further fields as names and values; checked where they come from.
    pub fields: Vec<(Cow<'static, str>, Vec<u8>)>,
}

/// A response that the config spells out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixed {
    /// The status, 200 to 599.
    pub status: u16,
    /// Fields as names and values; checked where they come from. Those that frame the message are the gateway's affair.
    pub fields: Vec<(Cow<'static, str>, Vec<u8>)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Why remedies refuse exchanges.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// A quota has nothing left.
    QuotaExceeded,
    /// As many exchanges as allowed are under way.
    TooManyInFlight,
    /// There is no place in the queue.
    QueueFull,
    /// The quota would not allow it before the wait has become too long.
    QueueTimeout,
    /// The provider has asked not to be called for a while.
    ProviderThrottled,
    /// The provider has failed too often of late.
    CircuitOpen,
    /// A remedy failed that is to fail closed.
    RemedyFailed,
    /// The client wants nothing but a stored answer, and there is none.
    NotCached,
    /// There is no credential to call with: the token endpoint fails, or every account is cooling down.
    AccountUnavailable,
}

impl Answer {
    /// What kind of answer it is.
    pub fn kind(&self) -> Local {
        match self {
            Self::Refused(refused) => Local::Refused(refused.reason),
            Self::Fixed(_) => Local::Fixed,
            Self::Stored(_) => Local::Stored,
        }
    }
}

impl Refused {
    /// Refused for `reason`, which `detail` explains.
    pub fn new(reason: Reason, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, status: None, detail: detail.into(), retry_at: None, fields: Vec::new() }
    }
}
