//! Points in time that can be counted with, stored and simulated.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::{Duration, Instant, SystemTime};

/// A point in time: microseconds since the Unix epoch. Everything that depends on time is told it, so that tests can make it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Farther away than anything that is waited for.
    pub const NEVER: Self = Self(u64::MAX);

    /// That many microseconds after the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// That many seconds after the Unix epoch.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000))
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000
    }

    /// How long after `earlier` this is; nothing if it is before.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Stops at [`Timestamp::NEVER`].
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Stops at the epoch.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }
}

impl fmt::Display for Timestamp {
    /// Seconds since the epoch with a fraction, as a log would have it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// Turns instants of the monotonic clock, which every exchange reads anyway, into timestamps.
///
/// It goes by the system's time of when it was made, so that what it tells never jumps; a new one is made where a system clock that
/// has been set should be noticed.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    instant: Instant,
    timestamp: Timestamp,
}

impl Clock {
    /// A clock that agrees with the system's now.
    pub fn new() -> Self {
        let since_epoch = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Self { instant: Instant::now(), timestamp: Timestamp(micros(since_epoch)) }
    }

    /// When it was made.
    pub fn made(&self) -> Instant {
        self.instant
    }

    /// When `instant` is.
    pub fn timestamp(&self, instant: Instant) -> Timestamp {
        match instant.checked_duration_since(self.instant) {
            Some(after) => self.timestamp + after,
            None => self.timestamp - self.instant.duration_since(instant),
        }
    }

    /// The instant of `timestamp`; one far away if it is beyond what the system's clock can tell.
    pub fn instant(&self, timestamp: Timestamp) -> Instant {
        const FAR: Duration = Duration::from_hours(365 * 24);
        if timestamp < self.timestamp {
            let before = self.timestamp.since(timestamp);
            return self.instant.checked_sub(before).unwrap_or(self.instant);
        }
        self.instant + timestamp.since(self.timestamp).min(FAR)
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_translates_both_ways() {
        let clock = Clock::new();
        for micros in [0, 1, 999_999, 86_400_000_000] {
            let later = clock.instant + Duration::from_micros(micros);
            assert_eq!(clock.instant(clock.timestamp(later)), later);
        }
        assert!(clock.timestamp(Instant::now()) >= clock.timestamp);
        assert!(clock.instant(Timestamp::NEVER) > clock.instant);
    }

    #[test]
    fn arithmetic_stops_at_both_ends() {
        let second = Duration::from_secs(1);
        assert_eq!(Timestamp::NEVER + second, Timestamp::NEVER);
        assert_eq!(Timestamp::default() - second, Timestamp::default());
        assert_eq!(Timestamp::from_secs(1).since(Timestamp::from_secs(2)), Duration::ZERO);
        assert_eq!(Timestamp::from_micros(1_500_000).to_string(), "1.500000");
    }
}
