//! Points in time that support arithmetic, storage and simulation.

use std::fmt;
use std::ops::{Add, Sub};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::time::Duration;
#[cfg(not(feature = "simulated"))]
use std::time::SystemTime;

use crate::moment::Moment;

/// A point in time: microseconds since the Unix epoch. Code that depends on time receives it as an argument,
/// so tests can simulate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// Later than any deadline.
    pub const NEVER: Self = Self(u64::MAX);

    /// Creates a timestamp from microseconds since the Unix epoch.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Creates a timestamp from seconds since the Unix epoch.
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

    /// Duration since `earlier`; zero if that is later.
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at [`Timestamp::NEVER`].
    fn add(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(micros(duration)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;

    /// Saturates at the epoch.
    fn sub(self, duration: Duration) -> Self {
        Self(self.0.saturating_sub(micros(duration)))
    }
}

impl fmt::Display for Timestamp {
    /// Formats seconds since the epoch with a fraction, as in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}

/// Returns whole microseconds. `as_micros` would compute with 128 bits.
fn micros(duration: Duration) -> u64 {
    duration.as_secs().saturating_mul(1_000_000).saturating_add(u64::from(duration.subsec_micros()))
}

/// Converts moments of the monotonic clock, which every exchange reads anyway, to timestamps. All threads
/// share one clock, so they agree.
///
/// It is based on the system time at its creation, and checks every ten seconds if the system clock was set
/// since.
#[derive(Debug)]
pub struct Clock {
    moment: Moment,
    timestamp: Timestamp,
    /// Microseconds by which the system clock was set since.
    shift: AtomicI64,
    /// Time of the next check, in nanoseconds after `moment`.
    check_due_ns: AtomicU64,
}

/// Interval between checks of the system clock.
const CHECK_INTERVAL_NS: u64 = 10_000_000_000;
/// Smaller differences are the delay between the two readings.
const SHIFT_MIN_MICROS: u64 = 100_000;

impl Clock {
    /// Creates a clock that agrees with the system clock now.
    pub fn new() -> Self {
        let (moment, timestamp) = read_both();
        Self { moment, timestamp, shift: AtomicI64::new(0), check_due_ns: AtomicU64::new(CHECK_INTERVAL_NS) }
    }

    /// Converts `moment` to a timestamp.
    pub fn timestamp(&self, moment: Moment) -> Timestamp {
        #[cfg(debug_assertions)]
        if let Some(now) = test_time() {
            return now;
        }
        if moment < self.moment {
            return self.shifted(self.timestamp - self.moment.since(moment));
        }
        let nanos = moment.nanos_since(self.moment);
        if nanos >= self.check_due_ns.load(Relaxed) {
            self.check(nanos);
        }
        self.shifted(Timestamp(self.timestamp.0.saturating_add(nanos / 1000)))
    }

    /// Converts `timestamp` to a moment; at most a year ahead.
    pub fn moment(&self, timestamp: Timestamp) -> Moment {
        const FAR: Duration = Duration::from_hours(365 * 24);
        #[cfg(debug_assertions)]
        if let Some(now) = test_time() {
            return Moment::now() + timestamp.since(now).min(FAR);
        }
        let start = self.shifted(self.timestamp);
        if timestamp < start {
            return self.moment - start.since(timestamp);
        }
        self.moment + timestamp.since(start).min(FAR)
    }

    /// Agrees with the clock of another process on this machine, where it was `timestamp` at `moment`.
    pub fn follow(&self, moment: Moment, timestamp: Timestamp) {
        let own = self.timestamp(moment).0;
        let ahead = i64::try_from(own.abs_diff(timestamp.0)).unwrap_or(i64::MAX);
        let shift = if timestamp.0 >= own { ahead } else { -ahead };
        self.shift.fetch_add(shift, Relaxed);
    }

    fn shifted(&self, timestamp: Timestamp) -> Timestamp {
        Timestamp(timestamp.0.saturating_add_signed(self.shift.load(Relaxed)))
    }

    /// Checks the system clock, unless another thread has just done so.
    #[cold]
    fn check(&self, nanos: u64) {
        let next = nanos.saturating_add(CHECK_INTERVAL_NS);
        if self.check_due_ns.swap(next, Relaxed) > nanos {
            return;
        }
        let (moment, actual) = read_both();
        let reported = self.timestamp.0 + micros(moment.since(self.moment));
        let shift = i64::try_from(i128::from(actual.0) - i128::from(reported)).unwrap_or_default();
        if shift.abs_diff(self.shift.load(Relaxed)) >= SHIFT_MIN_MICROS {
            self.shift.store(shift, Relaxed);
        }
    }
}

impl Default for Clock {
    fn default() -> Self {
        Self::new()
    }
}

/// Returns the simulated time in seconds since the epoch, from the file in `EGRET_TEST_CLOCK`: a test
/// controls how time passes. Not part of release builds.
#[cfg(debug_assertions)]
fn test_time() -> Option<Timestamp> {
    static FILE: std::sync::OnceLock<Option<std::ffi::OsString>> = std::sync::OnceLock::new();
    let file = FILE.get_or_init(|| std::env::var_os("EGRET_TEST_CLOCK")).as_ref()?;
    let text = std::fs::read_to_string(file).ok()?;
    text.trim().parse().ok().map(Timestamp::from_secs)
}

/// Reads both clocks at the same time. A thread may be preempted between two readings, so the quickest of a
/// few tries counts.
fn read_both() -> (Moment, Timestamp) {
    const TRIES: usize = 4;
    let read = || {
        let (before, timestamp) = (Moment::now(), system_time());
        (Moment::now().nanos_since(before), (before, timestamp))
    };
    let tries = (0..TRIES).map(|_| read());
    tries.min_by_key(|(nanos, _)| *nanos).map_or_else(|| (Moment::now(), system_time()), |(_, both)| both)
}

/// Reads the system's clock: that of the simulated world.
#[cfg(feature = "simulated")]
pub fn system_time() -> Timestamp {
    Timestamp(crate::simulated::system_us())
}

/// Reads the system's clock, which may be set back. Compare the results of a [`Clock`] instead.
#[cfg(not(feature = "simulated"))]
pub fn system_time() -> Timestamp {
    Timestamp(micros(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_translates_both_ways() {
        let clock = Clock::new();
        for micros in [0, 1, 999_999, 86_400_000_000] {
            let later = clock.moment + Duration::from_micros(micros);
            assert_eq!(clock.moment(clock.timestamp(later)), later);
        }
        assert!(clock.timestamp(Moment::now()) >= clock.timestamp);
        assert!(clock.moment(Timestamp::NEVER) > clock.moment);
    }

    #[test]
    fn a_system_clock_that_was_set_is_noticed_in_time() {
        let clock = Clock::new();
        let hour = Duration::from_hours(1);
        let set_back = Clock { timestamp: clock.timestamp + hour, ..Clock::new() };
        let soon = set_back.moment + Duration::from_secs(9);
        assert!(set_back.timestamp(soon).since(clock.timestamp(soon)) > hour / 2);
        let later = set_back.moment + Duration::from_secs(10);
        let difference = set_back.timestamp(later).since(clock.timestamp(later));
        assert!(difference < Duration::from_secs(1), "{difference:?}");
        assert_eq!(set_back.moment(set_back.timestamp(later)), later);
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
