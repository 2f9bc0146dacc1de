//! Consecutive windows: by the clock, from the first call on, or by the calendar.

use super::super::handed_state::WindowsState;
use super::STRAY_MICROS;
use super::pace::Pace;
use super::rule::{Refill, Rule};
use super::schedule::Schedule;

/// Maximum number of windows for which a wait is computed.
const WINDOWS_AHEAD_MAX: u64 = 1_000;

/// Maximum number of units that an earlier process may report as given up.
const LATE_UNITS_MAX: u64 = 9_000_000_000_000_000;

/// Units used in the current window.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// End of the window; `None` before the first window, and while the next one waits for a call to begin
    /// it.
    end: Option<u64>,
    /// Number of earlier windows. Units counted in one of them do not come back in this one.
    epoch: u64,
    /// Units counted in this window, including those in transit. The window in which the provider counts
    /// those is unknown, so units in transit when a window ends also count in the next one.
    used: u64,
    /// Units of this window beyond the limit, carried over from the last one.
    spilled: u64,
    /// Units of calls that were given up, which may be counted until `late_until`.
    late: u64,
    late_until: u64,
}

impl Windows {
    pub(super) fn used(&self) -> u64 {
        self.used
    }

    pub(super) fn spilled(&self) -> u64 {
        self.spilled
    }

    pub(super) fn epoch(&self) -> u64 {
        self.epoch
    }

    pub(super) fn end(&self) -> Option<u64> {
        self.end
    }

    /// Replaces the count by that of a store, which others may use too.
    pub(super) fn set(&mut self, used: u64, spilled: u64) {
        self.used = used;
        self.spilled = spilled;
    }

    /// The counts for the next process, which counts `spare` units as used.
    pub(super) fn state(&self, spare: u64) -> WindowsState {
        let Self { end, used, spilled, late, late_until, .. } = *self;
        WindowsState { end, used: used.saturating_add(spare), spilled, late, late_until }
    }

    /// Takes over the counts of an earlier process. No window ends later than one that begins `now`, and no
    /// unit is counted later than one that was given up `now`.
    pub(super) fn inherit(&mut self, state: &WindowsState, now: u64, rule: &Rule) {
        let Refill::Windows { schedule, .. } = &rule.refill else { return };
        let WindowsState { end, used, spilled, late, late_until } = *state;
        let end = end.map(|end| end.min(schedule.window(now).1));
        let late = late.min(LATE_UNITS_MAX);
        let late_until = late_until.min(now.saturating_add(STRAY_MICROS));
        *self = Self { end, epoch: self.epoch, used, spilled, late, late_until };
        self.bound_spilled(rule);
    }

    /// Carries over no more than the rule allows, which may be another one than before.
    pub(super) fn bound_spilled(&mut self, rule: &Rule) {
        if let Refill::Windows { spillover, .. } = rule.refill {
            self.spilled = self.spilled.min(spillover);
        }
    }

    pub(super) fn roll(&mut self, now: u64, rule: &Rule, transit: u64) {
        let Refill::Windows { schedule, spillover } = &rule.refill else { return };
        if self.end.is_some_and(|end| now < end) {
            return;
        }
        let (begin, end) = schedule.window(now);
        if let Some(ended) = self.end {
            // A window without calls leaves its whole limit.
            let unused =
                if begin == ended { self.allowance(rule).saturating_sub(self.used) } else { rule.limit };
            self.spilled = unused.min(*spillover);
            self.epoch += 1;
            self.used = transit.saturating_add(self.late_at(begin));
        }
        if self.late_at(now) == 0 {
            self.late = 0;
        }
        // Units in transit begin the next window as a call would: without an end they would never come back.
        let waits_for_call = matches!(schedule, Schedule::First(_)) && self.used == 0;
        self.end = if waits_for_call { None } else { Some(end) };
    }

    /// Notes the units of a call that was given up, which may be counted until `until`.
    pub(super) fn abandoned(&mut self, units: u64, until: u64) {
        self.late = self.late.saturating_add(units);
        self.late_until = self.late_until.max(until);
    }

    /// Units of calls that were given up and may be counted after `at`.
    fn late_at(&self, at: u64) -> u64 {
        if self.late_until > at { self.late } else { 0 }
    }

    fn allowance(&self, rule: &Rule) -> u64 {
        rule.limit.saturating_add(self.spilled)
    }

    pub(super) fn take(&mut self, units: u64, now: u64, rule: &Rule) {
        self.add(units, now, rule);
    }

    pub(super) fn add(&mut self, units: u64, now: u64, rule: &Rule) {
        if let (None, Refill::Windows { schedule, .. }) = (self.end, &rule.refill) {
            self.end = Some(schedule.window(now).1);
        }
        self.used = self.used.saturating_add(units);
    }

    pub(super) fn give_back(&mut self, units: u64) {
        self.used = self.used.saturating_sub(units);
    }

    /// Handles a clock that was set back. The window continues, and ends with the window at the new time.
    pub(super) fn shift_back(&mut self, micros: u64, now: u64, rule: &Rule) {
        self.late_until = self.late_until.saturating_sub(micros);
        let (Some(end), Refill::Windows { schedule, .. }) = (self.end, &rule.refill) else { return };
        self.end = Some(match schedule {
            Schedule::First(_) => end.saturating_sub(micros),
            Schedule::Clock(_) | Schedule::Calendar(_) => schedule.window(now).1,
        });
    }

    /// Time at which `units` fit, if they do not now, and calls in transit complete as `pace` estimates.
    pub(super) fn when(&self, units: u64, transit: u64, now: u64, rule: &Rule, pace: &Pace) -> Option<u64> {
        let Refill::Windows { schedule, .. } = &rule.refill else { return None };
        if rule.limit == 0 {
            return None;
        }
        // The rest of this window is used by earlier calls.
        let left = self.allowance(rule).saturating_sub(self.used);
        let missing = units.saturating_sub(left).max(1);
        let end = self.end.unwrap_or_else(|| schedule.window(now).1);
        let Some(length) = schedule.length() else {
            // No call takes as long as a day.
            let lost = pace.in_transit_at(end, transit) + self.late_at(end);
            let windows = (missing + lost - 1) / rule.limit;
            let windows = windows.min(WINDOWS_AHEAD_MAX);
            return Some((0..windows).fold(end, |end, _| schedule.window(end).1));
        };
        // Units still in transit when a window begins count in it, so these windows have that much less.
        let carried = pace.in_transit_at(end, transit).min(rule.limit);
        let (begin, missing) = if carried == 0 {
            (end, missing)
        } else {
            let cut = pace.ends().saturating_sub(end).div_ceil(length);
            let each = rule.limit - carried;
            if missing <= each.saturating_mul(cut) {
                return Some(end.saturating_add(((missing - 1) / each).saturating_mul(length)));
            }
            (end.saturating_add(cut.saturating_mul(length)), missing - each * cut)
        };
        // The calls of one whole limit, made together, complete this many windows later.
        let windows = pace.response().div_ceil(length).max(1);
        let further = (missing - 1) / rule.limit;
        Some(begin.saturating_add(further.saturating_mul(windows).saturating_mul(length)))
    }
}
