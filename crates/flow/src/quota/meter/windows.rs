//! Windows that follow each other: by the clock, from the first call on, or by the calendar.

use std::sync::Arc;

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
            self.used = transit;
        }
        // What is in transit begins the next window as a call would: without an end it would never come back.
        let waits_for_call = matches!(schedule, Schedule::First(_)) && self.used == 0;
        self.end = if waits_for_call { None } else { Some(end) };
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
        let (Some(end), Refill::Windows { schedule, .. }) = (self.end, &rule.refill) else { return };
        self.end = Some(match schedule {
            Schedule::First(_) => end.saturating_sub(micros),
            Schedule::Clock(_) | Schedule::Calendar(_) => schedule.window(now).1,
        });
    }

    /// When `units` fit, which they do not now.
    pub(super) fn when(&self, units: u64, transit: u64, now: u64, rule: &Rule) -> Option<u64> {
        let Refill::Windows { schedule, .. } = &rule.refill else { return None };
        if rule.limit == 0 {
            return None;
        }
        // What this window has left goes to those before; the next one has its limit but for what is in transit.
        let left = self.allowance(rule).saturating_sub(self.used);
        let missing = units.saturating_sub(left).saturating_add(transit);
        let further = missing.saturating_sub(1) / rule.limit;
        let end = self.end.unwrap_or(now);
        match schedule {
            Schedule::Clock(length) | Schedule::First(length) => {
                Some(end.saturating_add(further.saturating_mul(*length)))
            }
            Schedule::Calendar(calendar) => {
                let further = further.min(WINDOWS_AHEAD_MAX);
                Some((0..further).fold(end, |end, _| calendar.window(end).1))
            }
        }
    }
}
