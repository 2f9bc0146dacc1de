//! The stores of a quota's groups.

use std::sync::Arc;

use egret_store::Ledger;
use egret_store::shared::GroupSink;

use super::alerts::AlertSink;
use super::blocks::Blocks;
use super::group_kind::GroupKind;
use super::lease::{FileBacking, Lease};
use super::meter::{Refill, Rule};
use super::share::{Share, SharedBacking};

/// The stores that quotas may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stores<'a> {
    /// Lends units to quotas in a file. Without it they behave as if the file fails.
    pub ledger: Option<&'a Ledger>,
    /// Delivers the groups of quotas that a cluster shares. Without it they behave as if the store fails.
    pub cluster: Option<&'a Arc<dyn GroupSink>>,
    /// Receives the alerts of quotas. Without it none are raised.
    pub alerts: Option<&'a Arc<dyn AlertSink>>,
}

/// The store of a quota's groups.
#[derive(Debug, Clone)]
pub(super) enum Backing {
    Memory,
    File(FileBacking),
    Shared(SharedBacking),
}

/// The units of a group that a store lends.
#[derive(Debug)]
pub(super) enum Backed {
    Memory,
    File(Box<Lease>),
    /// Units that come back. A member holds some over time.
    Shared(Box<Share>),
    /// Units of a long window. They are lent in blocks.
    Blocks(Box<Blocks>),
}

/// Windows at least as long as this are lent in blocks.
const LONG_WINDOW_US: u64 = 60_000_000;

impl Backing {
    /// Returns `true` if counts outlive the process.
    pub(super) fn is_lasting(&self) -> bool {
        !matches!(self, Self::Memory)
    }

    /// Creates the units of a group with this rule; none is lent yet.
    pub(super) fn group(&self, kind: GroupKind, name: &[u8], rule: &Rule) -> Backed {
        match self {
            Self::Memory => Backed::Memory,
            Self::File(backing) => Backed::File(Box::new(backing.lease(kind, name))),
            Self::Shared(backing) => {
                let key = backing.key(kind, name);
                if is_long(rule) {
                    Backed::Blocks(Box::new(Blocks::new(backing.sink.clone(), key, rule.limit)))
                } else {
                    Backed::Shared(Box::new(backing.share(key, rule)))
                }
            }
        }
    }

    /// Returns a short text that stands for a long name in every process that counts its group; `None` if
    /// there is none.
    pub(super) fn digest(&self, name: &[u8]) -> Option<String> {
        if let Self::Shared(backing) = self { Some(backing.sink.digest(name)) } else { None }
    }
}

/// Returns `true` if units are lent in blocks.
pub(super) fn is_long(rule: &Rule) -> bool {
    match &rule.refill {
        Refill::Windows { schedule, .. } => schedule.length().is_none_or(|length| length >= LONG_WINDOW_US),
        Refill::Sliding { .. } | Refill::Bucket { .. } | Refill::Slots => false,
    }
}
