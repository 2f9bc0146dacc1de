//! Windows that follow each other: by the clock, from the first call on, or by the calendar.

use std::sync::Arc;

use super::pace::Pace;
use super::{Refill, Rule};
use crate::quota::calendar::Calendar;

/// The farthest that a wait is computed, in windows.
const WINDOWS_AHEAD_MAX: u64 = 1_000;

/// Where windows begin. Times in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub(in crate::quota) enum Schedule {
    /// At multiples of the length.
    Clock(u64),
    /// With the first call after the last window.
    First(u64),
    /// By the calendar.
    Calendar(Arc<Calendar>),
}

impl Schedule {
    /// How long its windows are, where all of them are equally long.
    fn length(&self) -> Option<u64> {
        match self {
            Self::Clock(length) | Self::First(length) => Some(*length),
            Self::Calendar(_) => None,
        }
    }

    /// Begin and end of the window at `now`; of one that would begin now, where a call begins it.
    pub(in crate::quota) fn window(&self, now: u64) -> (u64, u64) {
        match self {
            Self::Clock(length) => {
                let begin = now - now % length;
                (begin, begin.saturating_add(*length))
            }
            Self::First(length) => (now, now.saturating_add(*length)),
            Self::Calendar(calendar) => calendar.window(now),
        }
    }
}

/// Units used in the present window.
#[derive(Debug, Default)]
pub(super) struct Windows {
    /// Where the window ends; `None` while the next one waits for a call to begin it, or before the first.
    end: Option<u64>,
    /// How many windows there were before: units counted in an earlier one do not come back in this one.
    epoch: u64,
    /// Units counted in this window, those in transit included: nobody knows in which window the provider counts them, so that
    /// those still in transit when a window ends are counted in the next one too.
    used: u64,
    /// Units that this window has beyond the limit, left over from the last one.
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

    /// Goes by the count of a store that others may use too.
    pub(super) fn set(&mut self, used: u64, spilled: u64) {
        self.used = used;
        self.spilled = spilled;
    }

    pub(super) fn roll(&mut self, now: u64, rule: &Rule, transit: u64) {
        let Refill::Windows { schedule, spillover } = &rule.refill else { return };
        if self.end.is_some_and(|end| now < end) {
            return;
        }
        let (begin, end) = schedule.window(now);
        if let Some(ended) = self.end {
            // A window in which nothing was called leaves all of its limit.
            let unused =
                if begin == ended { self.allowance(rule).saturating_sub(self.used) } else { rule.limit };
            self.spilled = unused.min(*spillover);
            self.epoch += 1;
            self.used = transit.saturating_add(self.late_at(begin));
        }
        if self.late_at(now) == 0 {
            self.late = 0;
        }
        // What is in transit begins the next window as a call would: without an end it would never come back.
        let waits_for_call = matches!(schedule, Schedule::First(_)) && self.used == 0;
        self.end = if waits_for_call { None } else { Some(end) };
    }

    /// A call was given up, and may be counted until `until`.
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

    /// The clock was set back. The window stays what it is, and ends when the one at the new time does.
    pub(super) fn shift_back(&mut self, micros: u64, now: u64, rule: &Rule) {
        self.late_until = self.late_until.saturating_sub(micros);
        let (Some(end), Refill::Windows { schedule, .. }) = (self.end, &rule.refill) else { return };
        self.end = Some(match schedule {
            Schedule::First(_) => end.saturating_sub(micros),
            Schedule::Clock(_) | Schedule::Calendar(_) => schedule.window(now).1,
        });
    }

    /// When `units` fit, which they do not now, if what is in transit is answered as `pace` foresees.
    pub(super) fn when(&self, units: u64, transit: u64, now: u64, rule: &Rule, pace: &Pace) -> Option<u64> {
        let Refill::Windows { schedule, .. } = &rule.refill else { return None };
        if rule.limit == 0 {
            return None;
        }
        // What this window has left goes to those before.
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
        // What is still in transit when a window begins is counted in it: of these windows there is so much
        // less.
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
        // A whole limit that is called at once is answered so many windows later.
        let windows = pace.response().div_ceil(length).max(1);
        let further = (missing - 1) / rule.limit;
        Some(begin.saturating_add(further.saturating_mul(windows).saturating_mul(length)))
    }
}
