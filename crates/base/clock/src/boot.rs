//! The time since the machine has started, including that in which it was suspended.

use rustix::time::{ClockId, clock_gettime};

/// Microseconds since the machine has started. Unlike the monotonic clock, this one does not stop while the
/// machine is suspended. Leases need that: others see them end.
pub fn boot_us() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec.cast_unsigned().wrapping_mul(1_000_000).wrapping_add(now.tv_nsec.cast_unsigned() / 1_000)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Moment;

    #[test]
    fn the_machine_has_run_for_at_least_as_long_as_it_was_not_suspended() {
        let monotonic_us = Moment::now().as_nanos() / 1_000;
        let first = boot_us();
        assert!(first >= monotonic_us);
        assert!(boot_us() >= first);
    }
}
