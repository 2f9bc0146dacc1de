//! A point of the monotonic clock as one number.
//!
//! An exchange reads the clock four times and moves several deadlines. The standard library's `Instant` keeps
//! seconds and nanoseconds separately and checks every sum; a single number is added and compared with one
//! instruction each.

use std::ops::{Add, Sub};
use std::time::Duration;

#[cfg(not(feature = "simulated"))]
use rustix::time::{ClockId, clock_gettime};

/// A point in time, in nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Later than any deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates a moment from nanoseconds since the clock's beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds since the clock's beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Reads the simulated clock.
    #[cfg(feature = "simulated")]
    pub fn now() -> Self {
        Self(crate::simulated::nanos())
    }

    /// Reads the clock.
    #[cfg(not(feature = "simulated"))]
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // The clock counts from 0, for 584 years.
        Self(now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned()))
    }

    /// Returns the moment after `duration`; [`NEVER`](Self::NEVER) for `None`.
    #[must_use]
    pub fn after(self, duration: Option<Duration>) -> Self {
        duration.map_or(Self::NEVER, |duration| self + duration)
    }

    /// Nanoseconds since `earlier`; 0 if that is later.
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Duration since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Saturates at [`Moment::NEVER`].
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    /// Saturates at the clock's beginning.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// Returns whole nanoseconds. `as_nanos` would compute with 128 bits.
const fn nanos(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000_000).saturating_add(duration.subsec_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_in_the_order_of_time() {
        let moment = Moment::now();
        let later = moment + Duration::from_millis(1500);
        assert_eq!(later.since(moment), Duration::from_millis(1500));
        assert_eq!(moment.since(later), Duration::ZERO);
        assert!(Moment::now() >= moment);
    }

    #[test]
    fn sums_stop_at_the_end_of_time() {
        assert_eq!(Moment::NEVER + Duration::from_secs(1), Moment::NEVER);
        assert_eq!(Moment::now() + Duration::MAX, Moment::NEVER);
        assert_eq!(Moment::now().after(None), Moment::NEVER);
    }
}
