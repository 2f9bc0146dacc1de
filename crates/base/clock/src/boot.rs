//! The time since the machine has started, including that in which it was suspended.

use std::cell::Cell;

#[cfg(not(feature = "simulated"))]
use rustix::time::{ClockId, clock_gettime};

/// The clock that goes on while the machine is suspended. Outside of Linux, the monotonic one does.
#[cfg(all(target_os = "linux", not(feature = "simulated")))]
const CLOCK: ClockId = ClockId::Boottime;
#[cfg(not(any(target_os = "linux", feature = "simulated")))]
const CLOCK: ClockId = ClockId::Monotonic;

thread_local! {
    static TURNED: Cell<Turned> = const { Cell::new(Turned::Unknown) };
}

/// The time at which a thread turned to its present work.
#[derive(Debug, Clone, Copy)]
enum Turned {
    /// The thread has no event loop, so its clock is read each time.
    Unknown,
    /// Nobody has asked for it since.
    Unread,
    /// It was read in this turn.
    At(u64),
}

/// Microseconds since the machine has started. Unlike Linux's monotonic clock, this one does not stop while
/// the machine is suspended. Leases need that: others see them end.
#[cfg(not(feature = "simulated"))]
pub fn boot_us() -> u64 {
    let now = clock_gettime(CLOCK);
    now.tv_sec.cast_unsigned().wrapping_mul(1_000_000).wrapping_add(now.tv_nsec.cast_unsigned() / 1_000)
}

/// Microseconds since the beginning of the simulated clock.
#[cfg(feature = "simulated")]
pub fn boot_us() -> u64 {
    crate::simulated::nanos() / 1_000
}

/// Notes that this thread turns to other work. Threads with an event loop call it whenever they read their
/// clock.
pub fn begin_turn() {
    TURNED.set(Turned::Unread);
}

/// The time of [`boot_us`] at which this thread turned to its present work; read at most once in each turn.
/// On a thread without turns it is the present time.
pub fn turned_boot_us() -> u64 {
    if let Turned::At(us) = TURNED.get() { us } else { read_turned() }
}

#[cold]
fn read_turned() -> u64 {
    let us = boot_us();
    if matches!(TURNED.get(), Turned::Unread) {
        TURNED.set(Turned::At(us));
    }
    us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    #[test]
    fn boot_time_includes_the_time_of_suspension() {
        let monotonic_us = Moment::now().as_nanos() / 1_000;
        let first = boot_us();
        assert!(first >= monotonic_us);
        assert!(boot_us() >= first);
    }

    #[test]
    fn a_turn_has_one_time() {
        let first = turned_boot_us();
        while turned_boot_us() == first {}
        begin_turn();
        let turned = turned_boot_us();
        while boot_us() == turned {}
        assert_eq!(turned_boot_us(), turned);
        begin_turn();
        assert!(turned_boot_us() > turned);
    }
}
