//! A system timer that is finer than an event loop's timeout, which counts whole milliseconds.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

/// A file descriptor that becomes readable at a set time, to within some tens of microseconds.
///
/// Watch it edge-triggered, so it never has to be read: setting it again clears its readiness.
#[derive(Debug)]
pub struct Timer(OwnedFd);

impl Timer {
    /// Creates a timer that is not set.
    pub fn new() -> io::Result<Self> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        Ok(Self(timerfd_create(TimerfdClockId::Monotonic, flags)?))
    }

    /// Makes the timer readable `after` this duration. Replaces any earlier setting.
    pub fn set(&self, after: Duration) -> io::Result<()> {
        // A value of zero would disarm the timer.
        let after = after.max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(after).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 });
        let once = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value };
        timerfd_settime(&self.0, TimerfdTimerFlags::empty(), &once)?;
        Ok(())
    }
}

impl AsFd for Timer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for Timer {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}
