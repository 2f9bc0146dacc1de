//! Time on the path of a request: one word, so that moving a deadline or taking a difference is one instruction.

use std::ops::Add;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// A moment on the system's monotonic clock, to the nanosecond. Unlike [`Instant`] it is not kept as seconds and a rest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Moment {
    /// Since the first look at the clock; enough for 584 years.
    ns: u64,
}

/// The first look at the clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

impl Moment {
    /// Now.
    #[inline]
    pub fn now() -> Self {
        Self { ns: 0 } + Instant::now().saturating_duration_since(*START)
    }

    /// The time from `earlier` until this; zero if it is the later one.
    #[inline]
    pub fn saturating_duration_since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.ns.saturating_sub(earlier.ns))
    }

    /// The time from this until now.
    pub fn elapsed(self) -> Duration {
        Self::now().saturating_duration_since(self)
    }

    /// Whole milliseconds from `earlier` until this; zero if it is the later one.
    #[inline]
    pub fn saturating_ms_since(self, earlier: Self) -> u64 {
        self.ns.saturating_sub(earlier.ns) / NS_PER_MS
    }
}

/// Nanoseconds in a second and in a millisecond.
const NS_PER_S: u64 = 1_000_000_000;
const NS_PER_MS: u64 = 1_000_000;

impl Add<Duration> for Moment {
    type Output = Self;

    /// Later by `duration`, up to the end of time.
    #[inline]
    fn add(self, duration: Duration) -> Self {
        let ns =
            duration.as_secs().saturating_mul(NS_PER_S).saturating_add(u64::from(duration.subsec_nanos()));
        Self { ns: self.ns.saturating_add(ns) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_as_far_apart_as_was_added() {
        let start = Moment::now();
        let later = start + Duration::from_millis(1_500);
        assert_eq!(later.saturating_duration_since(start), Duration::from_millis(1_500));
        assert_eq!(later.saturating_ms_since(start), 1_500);
        assert_eq!(start.saturating_duration_since(later), Duration::ZERO);
        assert_eq!(start.saturating_ms_since(later), 0);
        assert!(later > start && start + Duration::MAX > later);
    }

    #[test]
    fn time_goes_on_at_the_pace_of_the_standard_clock() {
        let (moment, instant) = (Moment::now(), Instant::now());
        std::thread::park_timeout(Duration::from_millis(20));
        // The other way round, so that what ours took encloses what theirs took.
        let theirs = instant.elapsed();
        let ours = moment.elapsed();
        assert!(ours >= theirs && ours < theirs + Duration::from_secs(1), "{ours:?} {theirs:?}");
    }
}
