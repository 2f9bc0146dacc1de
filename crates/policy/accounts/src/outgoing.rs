//! A request that is about to be sent, and the changes that a credential makes to it.

use egret_clock::Timestamp;
use egret_message::{Changes, Fields};

/// A request that is about to be sent, before its credential is added.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// The current time.
    pub now: Timestamp,
    /// `true` if the request is sent over TLS.
    pub tls: bool,
    /// The method.
    pub method: &'a [u8],
    /// The value of `Host`.
    pub host: &'a [u8],
    /// The path of the provider's URL, which precedes `path`: empty, or with a slash at its beginning and
    /// none at its end.
    pub base: &'a [u8],
    /// The path, relative to the provider's URL.
    pub path: &'a [u8],
    /// The query.
    pub query: Option<&'a [u8]>,
    /// The header fields after all remedies, including hop-by-hop fields.
    pub fields: Fields<'a>,
    /// The whole body without framing; `None` if it is not completely buffered.
    pub body: Option<&'a [u8]>,
}

/// The changes that a credential makes to a request, applied after all other changes.
#[derive(Debug, Default)]
pub struct Applied {
    /// Changes to the header fields.
    pub fields: Changes,
    /// The new path and query, relative to the provider's URL, if they change.
    pub target: Option<Vec<u8>>,
    /// The new body, if it changes.
    pub body: Option<Vec<u8>>,
}

impl Applied {
    /// Returns the changes as a recording shows them: the fields without their values.
    #[must_use]
    pub fn shown(&self) -> Self {
        Self { fields: self.fields.shown(true), ..Self::default() }
    }
}
