//! The reasons why a client has not proven its name.

/// The reason why a client has not proven its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Unproven {
    /// It sent no token, or showed no certificate.
    #[error(
        "this listener serves only clients that prove who they are: send your token as `Proxy-Authorization: Bearer \
                 TOKEN`, as the proxy's user and password, or as `x-egret-token: TOKEN`"
    )]
    Missing,
    /// It sent a token that no client has, or a name that does not belong to the token.
    #[error("the token is not that of a client, or not of the client that is named with it")]
    Wrong,
    /// It sent several tokens, which belong to different clients or stand in fields of the same name.
    #[error("the request has several tokens: send one")]
    Ambiguous,
    /// A reload took back what it had proven on this connection, or its certificate or token has expired.
    #[error("what this connection has proven is no longer accepted: connect again")]
    Withdrawn,
    /// Its certificate is not accepted, or has no name.
    #[error("the certificate of this connection is not accepted")]
    Certificate,
    /// Its token is no signed JSON Web Token (RFC 7519), or has a member that is not understood.
    #[error("the token is not a signed JSON Web Token of at most 8 KiB whose members are all understood")]
    JwtMalformed,
    /// Its token is signed with an algorithm that is not accepted, or with none.
    #[error("the token is signed with an algorithm that is not accepted")]
    JwtAlgorithm,
    /// Its token has another issuer.
    #[error("the token's `iss` is not the issuer that this listener accepts")]
    JwtIssuer,
    /// Its token is for somebody else.
    #[error("the token's `aud` does not have the audience of this listener")]
    JwtAudience,
    /// Its token has expired, or never expires.
    #[error("the token has expired, or has no time of expiry")]
    JwtExpired,
    /// Its token is not valid yet.
    #[error("the token is not valid yet, by its `nbf` or `iat`")]
    JwtEarly,
    /// Its token has no name that can be a consumer's.
    #[error("the token's claim for the client's name has no text of 1 to 255 plain characters")]
    JwtName,
    /// The key of its token is not one of the issuer's, or has not been fetched yet.
    #[error("the token's key is not one of the issuer's keys, or has not been fetched yet")]
    JwtKeyUnknown,
    /// The signature of its token is wrong.
    #[error("the token's signature is wrong")]
    JwtSignature,
}

impl Unproven {
    /// Every reason, in the order of their numbers.
    pub const ALL: [Self; 14] = [
        Self::Missing,
        Self::Wrong,
        Self::Ambiguous,
        Self::Withdrawn,
        Self::Certificate,
        Self::JwtMalformed,
        Self::JwtAlgorithm,
        Self::JwtIssuer,
        Self::JwtAudience,
        Self::JwtExpired,
        Self::JwtEarly,
        Self::JwtName,
        Self::JwtKeyUnknown,
        Self::JwtSignature,
    ];

    /// Returns a short name for metrics.
    pub const fn slug(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Wrong => "wrong",
            Self::Ambiguous => "ambiguous",
            Self::Withdrawn => "withdrawn",
            Self::Certificate => "certificate",
            Self::JwtMalformed => "jwt-malformed",
            Self::JwtAlgorithm => "jwt-algorithm",
            Self::JwtIssuer => "jwt-issuer",
            Self::JwtAudience => "jwt-audience",
            Self::JwtExpired => "jwt-expired",
            Self::JwtEarly => "jwt-early",
            Self::JwtName => "jwt-name",
            Self::JwtKeyUnknown => "jwt-key-unknown",
            Self::JwtSignature => "jwt-signature",
        }
    }
}
