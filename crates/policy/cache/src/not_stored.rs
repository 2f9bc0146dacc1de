//! The reasons for not storing a response.

use egret_items::words;

words! {
    /// Reason for not storing a response. Its word is that in `Cache-Status` and metrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum NotStored: word {
        /// The request was a HEAD.
        Head => "head",
        /// The client sent `no-store`.
        RequestNoStore => "request-no-store",
        /// The response has `no-store`.
        NoStore => "no-store",
        /// The response is for a single user.
        Private => "private",
        /// The request had a credential, and the response does not allow sharing (RFC 9111 §3.5).
        Authorization => "authorization",
        /// The status does not represent the resource itself: partial content, or the outcome of a
        /// conditional request.
        Status => "status",
        /// The status is a transient error without an explicit lifetime, or one that no cache may store.
        Error => "error",
        /// The response has `must-understand`, and the cache does not know the rules of its status.
        NotUnderstood => "not-understood",
        /// The response has no sign that it may be stored.
        Unmarked => "unmarked",
        /// Storing it would be useless: it is not fresh, and has no validator.
        Useless => "useless",
        /// The response depends on more of the request than the cache can compare.
        Vary => "vary",
        /// The response sets a cookie.
        SetCookie => "set-cookie",
        /// The cache directives cannot be parsed.
        Malformed => "malformed",
        /// An inner remedy selected the account, so the response cannot be assigned to a partition.
        Account => "account",
        /// The response is too large.
        TooLarge => "too-large",
        /// The provider may not treat the path as equal to its normal form, under which the response would be
        /// stored.
        Spelling => "spelling",
    }
}

impl NotStored {
    /// Returns `true` if the next response will probably not be stored either.
    pub const fn is_lasting(self) -> bool {
        !matches!(self, Self::Head | Self::RequestNoStore | Self::Status | Self::Error | Self::Spelling)
    }
}
