//! Corrections of a count by the provider's own reports.

use egret_clock::Timestamp;

use super::handed_state::CorrectionState;
use super::learn::Learned;

/// Two window ends that differ by no more than this are the same, rounded to seconds by two responses.
const SAME_WINDOW_MICROS: u64 = 1_500_000;

/// Units withheld because the provider has counted more than the gateway: other clients use the same
/// allowance, or its limit is lower.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Correction {
    withheld: u64,
    withheld_until: u64,
    blocked_until: u64,
    /// Units that the process before this one needs first, and the time at which it must have asked again.
    promised: u64,
    promised_until: u64,
}

impl Correction {
    pub(super) fn expire(&mut self, now: u64) {
        if now >= self.withheld_until {
            self.withheld = 0;
            self.withheld_until = 0;
        }
        if now >= self.promised_until {
            self.promised = 0;
        }
        if now >= self.blocked_until {
            self.blocked_until = 0;
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.held_back() == 0 && self.blocked_until == 0
    }

    /// Units that calls must not take.
    pub(super) fn held_back(&self) -> u64 {
        self.withheld.saturating_add(self.promised)
    }

    /// The corrections for the next process.
    pub(super) fn state(&self) -> CorrectionState {
        let Self { withheld, withheld_until, blocked_until, .. } = *self;
        CorrectionState { withheld, withheld_until, blocked_until }
    }

    /// Takes over the corrections of an earlier process, which end at `latest` at the latest.
    pub(super) fn inherit(&mut self, state: CorrectionState, latest: u64) {
        let CorrectionState { withheld, withheld_until, blocked_until } = state;
        let (withheld_until, blocked_until) = (withheld_until.min(latest), blocked_until.min(latest));
        *self = Self { withheld, withheld_until, blocked_until, ..*self };
    }

    /// Withholds nothing more: the next process does.
    pub(super) fn release(&mut self) {
        (self.withheld, self.withheld_until, self.promised) = (0, 0, 0);
    }

    /// Withholds units that the earlier process needs first, for as long as it asks again before `until`.
    pub(super) fn promise(&mut self, units: u64, until: u64) {
        (self.promised, self.promised_until) = (units, until);
    }

    pub(super) fn blocked_until(&self) -> Option<u64> {
        (self.blocked_until > 0).then_some(self.blocked_until)
    }

    /// Time at which nothing is withheld any more.
    pub(super) fn ends(&self) -> Option<u64> {
        let withheld_until = if self.withheld > 0 { self.withheld_until } else { 0 };
        let promised_until = if self.promised > 0 { self.promised_until } else { 0 };
        let ends = self.blocked_until.max(withheld_until).max(promised_until);
        (ends > 0).then_some(ends)
    }

    /// Withholds the units that the provider has counted beyond the gateway's count, of which `free` units
    /// are left. Calls in transit may or may not be in its count. They are assumed to be, so none is counted
    /// twice. Of several responses about one window the highest count stays, because they may arrive out of
    /// order. A report of fewer remaining units is accepted; a report of more is not, because calls may still
    /// be in transit.
    pub(super) fn learn(&mut self, learned: &Learned, free: u64, now: u64, reset: u64, wait_max_micros: u64) {
        let bounded = |at: u64| at.min(now.saturating_add(wait_max_micros));
        if let Some(retry) = learned.retry {
            self.blocked_until = self.blocked_until.max(bounded(retry.as_micros()));
        }
        let Some(remaining) = learned.remaining else { return };
        let until = bounded(learned.reset.map_or(reset, Timestamp::as_micros));
        if until <= now {
            return;
        }
        if remaining == 0 && learned.reset.is_some() {
            self.blocked_until = self.blocked_until.max(until);
        }
        let missing = free.saturating_sub(remaining);
        let is_same_window = until.abs_diff(self.withheld_until) <= SAME_WINDOW_MICROS;
        if is_same_window {
            self.withheld = self.withheld.max(missing);
        } else {
            self.withheld = missing;
            self.withheld_until = until;
        }
    }
}
