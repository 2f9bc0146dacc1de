//! A token bucket, stored as a debt that drains: the units that have not come back yet.

use super::super::handed_state::GaugeState;
use super::super::validate::WINDOW_MAX;
use super::pace::Pace;
use super::rule::{Refill, Rule};

/// The units missing from a full bucket. The debt is in units times the window's microseconds, and `limit` of
/// it drains per microsecond. These are integers, so frequent updates lose nothing to rounding.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    debt: u128,
    drained_at: u64,
}

/// Returns window and burst of a bucket's rule.
fn shape(rule: &Rule) -> (u128, u128) {
    match rule.refill {
        Refill::Bucket { window, burst } => (u128::from(window), u128::from(burst)),
        _ => (1, 0),
    }
}

/// Returns the largest debt. What exceeds an empty bucket drains within the longest window that a config may
/// have.
fn debt_max(rule: &Rule) -> u128 {
    let (window, burst) = shape(rule);
    burst * window + u128::from(rule.limit) * WINDOW_MAX.get().as_micros()
}

impl Bucket {
    pub(super) fn drain(&mut self, now: u64, limit: u64) {
        let elapsed = u128::from(now.saturating_sub(self.drained_at));
        self.debt = self.debt.saturating_sub(elapsed * u128::from(limit));
        self.drained_at = now;
    }

    /// Returns `true` if that many units fit in addition to the debt.
    pub(super) fn fits(&self, units: u64, rule: &Rule) -> bool {
        let (window, burst) = shape(rule);
        self.debt.saturating_add(u128::from(units) * window) <= burst * window
    }

    /// Units missing, rounded up.
    pub(super) fn debt(&self, rule: &Rule) -> u64 {
        u64::try_from(self.debt.div_ceil(shape(rule).0)).unwrap_or(u64::MAX)
    }

    /// Counts units at `now`, and returns `now`.
    pub(super) fn count(&mut self, units: u64, now: u64, rule: &Rule) -> u64 {
        self.debt = self.debt.saturating_add(u128::from(units) * shape(rule).0).min(debt_max(rule));
        now
    }

    /// Returns units that were counted at `at`, except those that may have drained since.
    pub(super) fn give_back(&mut self, units: u64, at: u64, now: u64, rule: &Rule) {
        // A mark from before the clock was set back is meaningless.
        let Some(elapsed) = now.checked_sub(at) else { return };
        let drained = u128::from(elapsed) * u128::from(rule.limit);
        let left = (u128::from(units) * shape(rule).0).saturating_sub(drained);
        self.debt = self.debt.saturating_sub(left);
    }

    /// The counts for the next process.
    pub(super) fn state(&self) -> GaugeState {
        let half = |debt: u128| u64::try_from(debt & u128::from(u64::MAX)).unwrap_or(u64::MAX);
        GaugeState::Bucket([half(self.debt >> 64), half(self.debt)], self.drained_at)
    }

    /// Takes over the counts of an earlier process.
    pub(super) fn inherit(&mut self, [high, low]: [u64; 2], drained_at: u64, rule: &Rule) {
        self.debt = (u128::from(high) << 64 | u128::from(low)).min(debt_max(rule));
        self.drained_at = drained_at;
    }

    pub(super) fn shift_back(&mut self, micros: u64) {
        self.drained_at = self.drained_at.saturating_sub(micros);
    }

    /// Time at which `units` fit in addition to the debt, if calls take as long as `pace` estimates.
    pub(super) fn when(&self, units: u64, now: u64, rule: &Rule, pace: &Pace) -> Option<u64> {
        let (window, burst) = shape(rule);
        let above = self.debt.saturating_add(u128::from(units) * window).saturating_sub(burst * window);
        let wait =
            above.checked_div(u128::from(rule.limit))? + u128::from(above % u128::from(rule.limit) != 0);
        // Units in transit do not come back. A bucket that holds fewer than come back in that time pauses
        // meanwhile.
        let (needed, held) = (u128::from(rule.limit) * u128::from(pace.response()) + window, burst * window);
        let wait = if needed > held { wait.saturating_mul(needed).checked_div(held)? } else { wait };
        Some(now.saturating_add(u64::try_from(wait).unwrap_or(u64::MAX)))
    }
}
