//! The reasons for not storing a response.

/// Reason for not storing a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum NotStored {
    /// The request was a HEAD.
    Head,
    /// The client sent `no-store`.
    RequestNoStore,
    /// The response has `no-store`.
    NoStore,
    /// The response is for a single user.
    Private,
    /// The request had a credential, and the response does not allow sharing (RFC 9111 §3.5).
    Authorization,
    /// The status does not represent the resource itself: partial content, or the outcome of a conditional
    /// request.
    Status,
    /// The status is a transient error without an explicit lifetime, or one that no cache may store.
    Error,
    /// The response has `must-understand`, and the cache does not know the rules of its status.
    NotUnderstood,
    /// The response has no sign that it may be stored.
    Unmarked,
    /// Storing it would be useless: it is not fresh, and has no validator.
    Useless,
    /// The response depends on more of the request than the cache can compare.
    Vary,
    /// The response sets a cookie.
    SetCookie,
    /// The cache directives cannot be parsed.
    Malformed,
    /// An inner remedy selected the account, so the response cannot be assigned to a partition.
    Account,
    /// The response is too large.
    TooLarge,
    /// The provider may not treat the path as equal to its normal form, under which the response would be
    /// stored.
    Spelling,
}

impl NotStored {
    /// Returns `true` if the next response will probably not be stored either.
    pub const fn is_lasting(self) -> bool {
        !matches!(self, Self::Head | Self::RequestNoStore | Self::Status | Self::Error | Self::Spelling)
    }

    /// The word in `Cache-Status` and metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Head => "head",
            Self::RequestNoStore => "request-no-store",
            Self::NoStore => "no-store",
            Self::Private => "private",
            Self::Authorization => "authorization",
            Self::Account => "account",
            Self::Status => "status",
            Self::Error => "error",
            Self::NotUnderstood => "not-understood",
            Self::Unmarked => "unmarked",
            Self::Useless => "useless",
            Self::Vary => "vary",
            Self::SetCookie => "set-cookie",
            Self::Malformed => "malformed",
            Self::TooLarge => "too-large",
            Self::Spelling => "spelling",
        }
    }
}
