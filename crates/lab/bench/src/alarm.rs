//! A timer for the event loop that is finer than the loop's timeout of whole milliseconds.

use std::io;
use std::time::Duration;

use mio::{Registry, Token};

/// Wakes the event loop at a set time, to within some tens of microseconds.
///
/// The loop's own timeout counts in milliseconds, rounded up. At 500 exchanges per second that would add up
/// to a millisecond to times that are measured from the moment an exchange was due.
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: egret_measure::timer::Timer,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// Creates an alarm that wakes the loop of `registry` with an event for `token`.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;

        let timer = egret_measure::timer::Timer::new()?;
        let mut source = mio::unix::SourceFd(&timer.as_raw_fd());
        registry.register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Self { timer })
    }

    /// Wakes the loop `after` this duration. Replaces any earlier setting.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        self.timer.set(after)
    }

    /// The loop's own timeout if the next wake-up is due `after` this duration: always `longest`, because the
    /// alarm wakes the loop in time.
    pub fn timeout(_after: Duration, longest: Duration) -> Duration {
        longest
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// Creates an alarm that relies on the loop's own timeout.
    pub fn new(_: &Registry, _: Token) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Does nothing: the loop's timeout wakes it.
    #[expect(clippy::unused_self, reason = "the same interface on every system")]
    pub fn set(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    /// The loop's own timeout if the next wake-up is due `after` this duration.
    pub fn timeout(after: Duration, longest: Duration) -> Duration {
        after.min(longest)
    }
}
