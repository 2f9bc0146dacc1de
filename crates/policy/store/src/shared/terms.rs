//! The durations of the protocol.

/// Time after which a member gives up a call to the store.
pub(super) const CALL_TIMEOUT_MS: u64 = 250;
/// Two clocks differ by less than one part in this number. Each may drift by one part in a thousand.
const DRIFT_PARTS: u64 = 400;

/// The durations that all members of a cluster use, in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Length of a lease.
    pub ttl_ms: u64,
    /// Time between two renewals of a lease.
    pub renewal_ms: u64,
    /// Minimum time between two calls of a member.
    pub gap_ms: u64,
    /// Settle time: after the end of a lease, a provider may still count a call for so long.
    pub settle_time_ms: u64,
    /// Minimum length of the recovery window, in which a new generation only hears what the members hold.
    pub recovery_ms: u64,
    /// Time for which a member that is cut off goes on with its fallback share.
    pub fallback_ms: u64,
    /// Time after which a member passes its only unit on, if others wait for one.
    pub turn_ms: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            ttl_ms: 3_000,
            renewal_ms: 1_000,
            gap_ms: 100,
            settle_time_ms: 5_000,
            recovery_ms: 10_000,
            fallback_ms: 600_000,
            turn_ms: 5_000,
        }
    }
}

/// Returns a duration that passes on this clock no later than `ms` on another.
pub(super) fn less(ms: u64) -> u64 {
    ms.saturating_sub(ms.div_ceil(DRIFT_PARTS))
}

/// Returns a duration that passes on this clock no earlier than `ms` on another.
pub(super) fn more(ms: u64) -> u64 {
    ms.saturating_add(ms.div_ceil(DRIFT_PARTS))
}
