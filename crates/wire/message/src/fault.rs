//! The failure of a remedy or a credential.

use std::borrow::Cow;

/// The reason that a remedy cannot decide, for the log. It contains nothing that a peer sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Fault(pub Cow<'static, str>);
