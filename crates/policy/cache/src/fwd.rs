//! The reason for forwarding a request, the parameter `fwd` of `Cache-Status` (RFC 9211 §2.2).

/// The reason for forwarding a request to the provider (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FwdReason {
    /// The cache does not apply to the request.
    Bypass,
    /// Responses to the method are not stored.
    Method,
    /// No response is stored under the key.
    UriMiss,
    /// The stored responses are for requests with other header fields.
    VaryMiss,
    /// The stored response is fresh, but the client requires a fresher one.
    Request,
    /// The stored response is stale.
    Stale,
}

impl FwdReason {
    /// The word in the field.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Bypass => "bypass",
            Self::Method => "method",
            Self::UriMiss => "uri-miss",
            Self::VaryMiss => "vary-miss",
            Self::Request => "request",
            Self::Stale => "stale",
        }
    }
}
