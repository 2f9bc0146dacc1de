//! The status of quotas and their groups, for clients and for display.

use std::sync::Arc;
use std::time::Duration;

use egret_clock::Timestamp;

use super::config::QuotaKind;

/// The status of a quota, as one call sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaStatus {
    /// The quota's name.
    pub quota: Arc<str>,
    /// Number of units in total.
    pub limit: u64,
    /// Number of units left.
    pub remaining: u64,
    /// Time at which all units used now will have come back.
    pub reset: Timestamp,
    /// Length of a window, if the quota has windows.
    pub window: Option<Duration>,
}

/// The status of a quota and its groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuotaSnapshot {
    /// The quota's name.
    pub name: String,
    /// Its kind.
    pub kind: QuotaKind,
    /// Some or all of its groups.
    pub groups: Vec<GroupSnapshot>,
    /// Total number of groups.
    pub groups_count: usize,
}

/// The status of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupSnapshot {
    /// The group's name: empty for the calls without one, a digest if it may be a secret, `(more)` for the
    /// overflow group, `(rest)` for all groups without their own share together.
    pub name: String,
    /// Number of units used.
    pub used: u64,
    /// Number of units in total.
    pub limit: u64,
    /// Number of units left.
    pub remaining: u64,
    /// Time at which all units used now will have come back.
    pub reset: Timestamp,
    /// `true` if the store does not respond.
    pub has_store_failed: bool,
}
