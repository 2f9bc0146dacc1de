//! The request to stop a disk.

use egret_clock::Moment;

/// A request to stop a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Write pending entries until this moment; keep all files.
    Keep(Moment),
    /// Delete all files.
    Delete,
}

impl Stop {
    /// Returns `true` if the disk must stop without waiting any longer.
    pub(super) fn is_due(self) -> bool {
        match self {
            Self::Keep(until) => Moment::now() >= until,
            Self::Delete => true,
        }
    }
}
