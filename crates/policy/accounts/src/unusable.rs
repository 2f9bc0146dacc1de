//! The reason for which the credential of an account cannot be added to a call.

use std::fmt;

use egret_message::Fault;

/// The reason for which a call cannot be made with an account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Unusable {
    /// The body must be signed, and is larger than so many bytes (`sigv4.body`).
    BodyTooLarge(usize),
    /// Anything else.
    Fault(Fault),
}

impl From<Fault> for Unusable {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BodyTooLarge(max) => write!(
                f,
                "the body exceeds the {max} bytes that are buffered to be signed: raise `sigv4.body` of the account"
            ),
            Self::Fault(fault) => fault.fmt(f),
        }
    }
}

impl std::error::Error for Unusable {}
