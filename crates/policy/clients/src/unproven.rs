//! The reasons why a client has not proven its name.

use egret_items::words;

words! {
    /// The reason why a client has not proven its name.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
    pub enum Unproven: slug {
        /// It sent no token, or showed no certificate.
        #[error(
            "this listener serves only clients that prove who they are: send your token as `Proxy-Authorization: Bearer \
                     TOKEN`, as the proxy's user and password, or as `x-egret-token: TOKEN`"
        )]
        Missing => "missing",
        /// It sent a token that no client has, or a name that does not belong to the token.
        #[error("the token is not that of a client, or not of the client that is named with it")]
        Wrong => "wrong",
        /// It sent several tokens, which belong to different clients or stand in fields of the same name.
        #[error("the request has several tokens: send one")]
        Ambiguous => "ambiguous",
        /// A reload took back what it had proven on this connection, or its certificate or token has expired.
        #[error("what this connection has proven is no longer accepted: connect again")]
        Withdrawn => "withdrawn",
        /// Its certificate is not accepted, or has no name.
        #[error("the certificate of this connection is not accepted")]
        Certificate => "certificate",
        /// The user who has connected to the Unix socket is none of the listener's.
        #[error("the user of this connection is not one of the clients of this listener (`clients.users`)")]
        User => "user",
        /// Its token is no signed JSON Web Token (RFC 7519), or has a member that is not understood.
        #[error("the token is not a signed JSON Web Token of at most 8 KiB whose members are all understood")]
        JwtMalformed => "jwt-malformed",
        /// Its token is signed with an algorithm that is not accepted, or with none.
        #[error("the token is signed with an algorithm that is not accepted")]
        JwtAlgorithm => "jwt-algorithm",
        /// Its token has another issuer.
        #[error("the token's `iss` is not the issuer that this listener accepts")]
        JwtIssuer => "jwt-issuer",
        /// Its token is for somebody else.
        #[error("the token's `aud` does not have the audience of this listener")]
        JwtAudience => "jwt-audience",
        /// Its token has expired, or never expires.
        #[error("the token has expired, or has no time of expiry")]
        JwtExpired => "jwt-expired",
        /// Its token is not valid yet.
        #[error("the token is not valid yet, by its `nbf` or `iat`")]
        JwtEarly => "jwt-early",
        /// Its token has no name that can be a consumer's.
        #[error("the token's claim for the client's name has no text of 1 to 255 plain characters")]
        JwtName => "jwt-name",
        /// The key of its token is not one of the issuer's, or has not been fetched yet.
        #[error("the token's key is not one of the issuer's keys, or has not been fetched yet")]
        JwtKeyUnknown => "jwt-key-unknown",
        /// The signature of its token is wrong.
        #[error("the token's signature is wrong")]
        JwtSignature => "jwt-signature",
    }
}
