//! The kinds of groups that a quota has.

use egret_items::words;
use serde::{Deserialize, Serialize};

words! {
    /// The kind of a group; groups of different kinds may have the same name. Its tag is a letter for keys.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
    #[serde(rename_all = "lowercase")]
    pub(super) enum GroupKind: tag {
        /// All calls of the quota.
        Whole => "w",
        /// A group with a name.
        Named => "n",
        /// All groups without their own share together.
        Rest => "r",
        /// The overflow group.
        Overflow => "c",
    }
}
