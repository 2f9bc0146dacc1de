//! The beginnings of consecutive windows.

use std::sync::Arc;

use crate::calendar::Calendar;

/// The beginnings of windows. Times in microseconds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Schedule {
    /// At multiples of the length.
    Clock(u64),
    /// At the first call after the last window.
    First(u64),
    /// By the calendar.
    Calendar(Arc<Calendar>),
}

impl Schedule {
    /// Length of the windows, if all have the same.
    pub(crate) fn length(&self) -> Option<u64> {
        match self {
            Self::Clock(length) | Self::First(length) => Some(*length),
            Self::Calendar(_) => None,
        }
    }

    /// Returns begin and end of the window at `now`. If a call begins the window, it begins at `now`.
    pub(crate) fn window(&self, now: u64) -> (u64, u64) {
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
