//! Log lines about what happens again and again, of which one in ten minutes is enough.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::Moment;

/// Time between two lines.
const INTERVAL: Duration = Duration::from_mins(10);

/// When a line may be logged again.
#[derive(Debug, Default)]
pub struct Notice {
    /// In nanoseconds. 0 before the first line.
    next: AtomicU64,
}

impl Notice {
    /// Returns `true` if the line is due at `now`, and notes that it was logged.
    pub fn is_due(&self, now: Moment) -> bool {
        self.is_due_every(INTERVAL, now)
    }

    /// Does the same for lines that may follow each other sooner or later.
    pub fn is_due_every(&self, interval: Duration, now: Moment) -> bool {
        let next = self.next.load(Relaxed);
        // Of several workers at once, one logs it.
        now.as_nanos() >= next
            && self.next.compare_exchange(next, (now + interval).as_nanos(), Relaxed, Relaxed).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_due_once_in_an_interval() {
        let (notice, now) = (Notice::default(), Moment::now());
        assert!(notice.is_due(now));
        assert!(!notice.is_due(now + INTERVAL / 2));
        assert!(notice.is_due(now + INTERVAL));
        assert!(!notice.is_due(now + INTERVAL));
    }
}
