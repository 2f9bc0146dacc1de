//! The durations of the protocol.

/// Difference between the expected time of the store and its clock that counts as a step of the clock.
pub(super) const CLOCK_STEP_MS: u64 = 500;
/// Time after which a member gives up a call to the store.
pub(super) const CALL_TIMEOUT_MS: u64 = 250;
/// Additional time before units of a member that is gone are lent again. It covers a step of the clock that
/// no member has noticed yet.
pub(super) const SLACK_MS: u64 = 2_000;
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
    /// Time after the end of a lease in which a provider may still count a call.
    pub settle_ms: u64,
    /// Minimum time for which a new generation only learns.
    pub learn_ms: u64,
    /// Time for which a member that is cut off goes on with a part of its hold.
    pub keep_ms: u64,
    /// Time after which a member passes its only unit on, if others wait for one.
    pub turn_ms: u64,
}

impl Default for Terms {
    fn default() -> Self {
        Self {
            ttl_ms: 3_000,
            renewal_ms: 1_000,
            gap_ms: 100,
            settle_ms: 5_000,
            learn_ms: 10_000,
            keep_ms: 600_000,
            turn_ms: 5_000,
        }
    }
}

impl Terms {
    /// Time after the end of a lease for which all units of a group that cool for `cool_ms` stay counted.
    pub(super) fn limbo_ms(&self, cool_ms: u64) -> u64 {
        more(self.settle_ms.saturating_add(cool_ms)).saturating_add(SLACK_MS)
    }

    /// Time for which a new generation of a group only learns: at its end, no lease of an earlier one is in
    /// use, and no unit of it cools.
    pub(super) fn learning_ms(&self, cool_ms: u64) -> u64 {
        self.learn_ms.max(self.ttl_ms.saturating_add(self.limbo_ms(cool_ms)))
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
