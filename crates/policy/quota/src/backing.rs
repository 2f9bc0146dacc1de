//! The stores of a quota's groups.

use std::sync::Arc;

use egret_store::Ledger;
use egret_store::shared::GroupSink;

use super::lease::{FileBacking, Lease};
use super::meter::Rule;
use super::share::{Share, SharedBacking};

/// The stores that quotas may use.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stores<'a> {
    /// Lends units to quotas in a file. Without it they behave as if the file fails.
    pub ledger: Option<&'a Ledger>,
    /// Delivers the groups of quotas that a cluster shares. Without it they behave as if the store fails.
    pub cluster: Option<&'a Arc<dyn GroupSink>>,
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
    Shared(Box<Share>),
}

/// The kind of a group; groups of different kinds may have the same name.
#[derive(Debug, Clone, Copy)]
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
            Self::Shared(backing) => Backed::Shared(Box::new(backing.share(kind, name, rule))),
        }
    }
}
