//! A point of the monotonic clock as one number.
//!
//! An exchange reads the clock four times and moves a handful of deadlines. The standard library's `Instant` keeps seconds and
//! nanoseconds apart and checks every sum; one number is added and compared by an instruction each.

use std::ops::{Add, Sub};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A point in time, in nanoseconds of the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(u64);

impl Moment {
    /// Later than anything that is waited for.
    pub const NEVER: Self = Self(u64::MAX);

    /// That many nanoseconds after the clock's beginning.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos)
    }

    /// Nanoseconds after the clock's beginning.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Reads the clock.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Monotonic);
        // It counts up from 0, for 584 years.
        Self(now.tv_sec.cast_unsigned().wrapping_mul(1_000_000_000).wrapping_add(now.tv_nsec.cast_unsigned()))
    }

    /// That long after this; [`NEVER`](Self::NEVER) for none.
    #[must_use]
    pub fn after(self, duration: Option<Duration>) -> Self {
        duration.map_or(Self::NEVER, |duration| self + duration)
    }

    /// Nanoseconds since `earlier`; none if it is later.
    pub const fn nanos_since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// How long after `earlier` this is; nothing if it is before.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.nanos_since(earlier))
    }
}

impl Add<Duration> for Moment {
    type Output = Self;

    /// Stops at [`Moment::NEVER`].
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(nanos(duration)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Self;

    /// Stops at the clock's beginning.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(duration)))
    }
}

/// Whole nanoseconds. `as_nanos` would compute in 128 bits.
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
