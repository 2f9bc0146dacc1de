//! The kinds of groups that a quota has.

use serde::{Deserialize, Serialize};

/// The kind of a group; groups of different kinds may have the same name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum GroupKind {
    /// All calls of the quota.
    Whole,
    /// A group with a name.
    Named,
    /// All groups without their own share together.
    Rest,
    /// The overflow group.
    Overflow,
}

impl GroupKind {
    /// A letter for keys.
    pub(super) fn tag(self) -> &'static str {
        match self {
            Self::Whole => "w",
            Self::Named => "n",
            Self::Rest => "r",
            Self::Overflow => "c",
        }
    }
}
