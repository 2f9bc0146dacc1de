//! The failure of a remedy or a credential.

use std::borrow::Cow;
use std::fmt;

/// The reason that a remedy cannot decide, for the log. It contains nothing that a peer sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault(pub Cow<'static, str>);

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Fault {}
