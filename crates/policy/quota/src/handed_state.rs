//! The counts of quotas as one process hands them over to the next, and what the two report to each other
//! until the first one ends. Times are in microseconds since 1970.

use serde::{Deserialize, Serialize};

use super::group_kind::GroupKind;

/// The counts of a quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuotaState {
    /// The quota's name.
    pub name: String,
    /// A text that is equal for configs whose counts have the same meaning.
    pub way: String,
    /// The keys of the hash that replaces long names.
    pub(super) keys: [u64; 4],
    /// The groups that have used units, or still may.
    pub(super) groups: Vec<GroupState>,
}

/// The counts of a group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct GroupState {
    pub kind: GroupKind,
    pub name: Vec<u8>,
    pub meter: MeterState,
    pub correction: CorrectionState,
}

/// A group among those of all quotas.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupId {
    /// The quota's name.
    pub quota: String,
    pub(super) kind: GroupKind,
    pub(super) name: Vec<u8>,
}

/// The counts of a meter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct MeterState {
    /// Units that the process which hands over may still use: those in transit, and those kept in reserve.
    pub held: u64,
    /// The latest time seen.
    pub latest: u64,
    /// Estimated time in transit.
    pub response: u64,
    pub gauge: GaugeState,
    /// The adaptive limit, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub adaptive: Option<AdaptiveState>,
}

/// An adaptive limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AdaptiveState {
    pub limit: u64,
    /// Latency of the provider while few calls are in flight.
    pub baseline_us: u64,
}

/// The counts of a meter that depend on the kind of quota.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum GaugeState {
    /// Number of each part of the window that has counted units, and these units.
    Sliding(Vec<(u64, u64)>),
    Windows(WindowsState),
    /// The debt, in two halves, the higher one first; and the time for which it holds.
    Bucket([u64; 2], u64),
    Slots,
}

/// The counts of consecutive windows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WindowsState {
    pub end: Option<u64>,
    pub used: u64,
    pub spilled: u64,
    pub late: u64,
    pub late_until: u64,
}

/// Corrections by the provider's reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct CorrectionState {
    pub withheld: u64,
    pub withheld_until: u64,
    pub blocked_until: u64,
}

/// The use of the units that a process held after it handed its counts over, since its last report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Balance {
    /// The group.
    pub group: GroupId,
    /// Units that the provider has counted.
    pub counted: u64,
    /// Units of calls that were given up: the provider may count them a little later.
    pub abandoned: u64,
    /// Units that are not needed.
    pub returned: u64,
    /// Units that are needed beyond those held.
    pub wanted: u64,
}

/// The response to a [`Balance`] that wants units.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lending {
    /// The group.
    pub group: GroupId,
    /// Units that the process may use in addition.
    pub units: u64,
}
