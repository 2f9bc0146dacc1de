//! The reason for which the credential of an account cannot be added to a call.

use egret_message::Fault;

/// The reason for which a call cannot be made with an account.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unusable {
    /// The body must be signed, and is larger than so many bytes (`sigv4.body`).
    #[error(
        "the body exceeds the {0} bytes that are buffered to be signed: raise `sigv4.body` of the account"
    )]
    BodyTooLarge(usize),
    /// Anything else.
    #[error("{0}")]
    Fault(#[from] Fault),
}
