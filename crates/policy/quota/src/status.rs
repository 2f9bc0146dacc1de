//! The status of quotas and their groups, for clients and for display.

use std::sync::Arc;
use std::time::Duration;

use egret_clock::Timestamp;

use super::config::{OnStoreError, QuotaKind, QuotaUnit};

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
    /// Its unit. Money is counted in nano-dollars.
    pub unit: QuotaUnit,
    /// Treatment of calls while its store fails.
    pub on_store_error: OnStoreError,
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
    /// Number of units used, with those that calls under way hold.
    pub used: u64,
    /// Number of units that calls under way hold.
    pub reserved: u64,
    /// Number of units in total.
    pub limit: u64,
    /// Number of units left.
    pub remaining: u64,
    /// Time at which all units used now will have come back.
    pub reset: Timestamp,
    /// `true` if the store does not respond.
    pub has_store_failed: bool,
    /// For an adaptive limit, once it is known: the provider's latency while few calls are in flight, and the
    /// latest one, both in microseconds.
    pub latencies_us: Option<[u64; 2]>,
    /// The units of the cluster; `None` for a quota that is not shared.
    pub shared: Option<SharedSnapshot>,
}

/// The units of a group that a cluster shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SharedSnapshot {
    /// Number of units that this gateway holds.
    pub hold: u64,
    /// Number of units that no gateway holds, by the last reply. It is negative if the limit was
    /// lowered, or if costs exceeded it.
    pub pool: i64,
    /// Number of units that this gateway uses although it is cut off from the store; 0 while it is not.
    pub fallback: u64,
    /// `true` if another gateway has a different limit in its config. The lowest one holds.
    pub config_differs: bool,
}
