//! How far what a provider says of its own count is believed.

use egret_clock::Timestamp;

use super::learn::Learned;

/// Two ends of a window that lie nearer together are the same one, told in whole seconds by two responses.
const SAME_WINDOW_MICROS: u64 = 1_500_000;

/// What is withheld because the provider counted more than was counted here: others use the same allowance, or its limit is lower.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Correction {
    withheld: u64,
    withheld_until: u64,
    blocked_until: u64,
}

impl Correction {
    pub(super) fn expire(&mut self, now: u64) {
        if now >= self.withheld_until {
            self.withheld = 0;
            self.withheld_until = 0;
        }
        if now >= self.blocked_until {
            self.blocked_until = 0;
        }
    }

    pub(super) fn is_none(&self) -> bool {
        self.withheld == 0 && self.blocked_until == 0
    }

    pub(super) fn withheld(&self) -> u64 {
        self.withheld
    }

    pub(super) fn blocked_until(&self) -> Option<u64> {
        (self.blocked_until > 0).then_some(self.blocked_until)
    }

    /// When nothing will be withheld any more.
    pub(super) fn ends(&self) -> Option<u64> {
        let ends = self.blocked_until.max(if self.withheld > 0 { self.withheld_until } else { 0 });
        (ends > 0).then_some(ends)
    }

    /// Withholds what the provider has counted beyond what was counted here, of which `free` units are left. Calls in transit may
    /// or may not be in its count; they are taken to be, so that none is counted twice. Of several responses about one window
    /// the highest count stays, since they may arrive in another order than they were made. Fewer units than here are
    /// believed, more are not: they may be those of calls still on their way.
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
