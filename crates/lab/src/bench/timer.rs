//! An alarm clock for the event loop that is finer than its whole milliseconds.

use std::io;
use std::time::Duration;

use mio::{Registry, Token};

/// Wakes the event loop at a moment, to some tens of microseconds.
///
/// The loop's own timeout counts in milliseconds, rounded up, which at 500 exchanges per second would add up to a millisecond
/// to what is measured from the moment an exchange was due.
#[derive(Debug)]
pub struct Alarm {
    #[cfg(target_os = "linux")]
    timer: crate::timer::Timer,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// An alarm that wakes the loop of `registry` with an event for `token`.
    pub fn new(registry: &Registry, token: Token) -> io::Result<Self> {
        use std::os::fd::AsRawFd as _;

        let timer = crate::timer::Timer::new()?;
        let mut source = mio::unix::SourceFd(&timer.as_raw_fd());
        registry.register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Self { timer })
    }

    /// Wakes the loop `after` so long, instead of when it was to wake before.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        self.timer.set(after)
    }

    /// What the loop's own timeout is to be when the next wake-up is due `after` so long: the alarm does it.
    pub fn timeout(_after: Duration, longest: Duration) -> Duration {
        longest
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// An alarm that is the loop's own timeout.
    pub fn new(_: &Registry, _: Token) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Nothing is to be set where the loop's timeout does it.
    #[expect(clippy::unused_self, reason = "the same interface on every system")]
    pub fn set(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }

    /// What the loop's own timeout is to be when the next wake-up is due `after` so long.
    pub fn timeout(after: Duration, longest: Duration) -> Duration {
        after.min(longest)
    }
}
