//! The reason for forwarding a request, the parameter `fwd` of `Cache-Status` (RFC 9211 §2.2).

use egret_items::words;

words! {
    /// The reason for forwarding a request to the provider (RFC 9211 §2.2). Its word is that in the field.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum FwdReason: word {
        /// The cache does not apply to the request.
        Bypass => "bypass",
        /// Responses to the method are not stored.
        Method => "method",
        /// No response is stored under the key.
        UriMiss => "uri-miss",
        /// The stored responses are for requests with other header fields.
        VaryMiss => "vary-miss",
        /// The stored response is fresh, but the client requires a fresher one.
        Request => "request",
        /// The stored response is stale.
        Stale => "stale",
    }
}
