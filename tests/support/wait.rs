//! Waiting for something to become true, with a deadline and without sleeping blindly.

use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant, SystemTime};

/// How long anything in a test may take to happen before the test fails. Generous: two cores carry everything at once.
pub const DEADLINE: Duration = Duration::from_secs(20);

/// Between two looks at something that gives no notice of itself, such as a child's exit or a counter behind HTTP.
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Looks with `probe` until it finds something.
pub fn until<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(start.elapsed() < DEADLINE, "waited {DEADLINE:?} in vain until {what}");
        std::thread::park_timeout(LOOK_AGAIN);
    }
}

/// Looks with `probe` until it says yes.
pub fn until_true(what: &str, mut probe: impl FnMut() -> bool) {
    until(what, || probe().then_some(()));
}

/// A time of day, by UTC, that does not come within the next hours.
pub fn far_from_now() -> &'static str {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    if (6..18).contains(&(now / 3_600 % 24)) { "00:00" } else { "12:00" }
}

/// A value that threads add to and wait on.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    /// Changes the value and wakes everybody who waits.
    pub fn change(&self, change: impl FnOnce(&mut T)) {
        change(&mut self.value.lock().unwrap());
        self.changed.notify_all();
    }

    /// Reads the value.
    pub fn read<R>(&self, read: impl FnOnce(&T) -> R) -> R {
        read(&self.value.lock().unwrap())
    }

    /// Waits until `probe` finds something in the value.
    pub fn until<R>(&self, what: &str, mut probe: impl FnMut(&T) -> Option<R>) -> R {
        let start = Instant::now();
        let mut value = self.value.lock().unwrap();
        loop {
            if let Some(found) = probe(&value) {
                return found;
            }
            let left = DEADLINE.saturating_sub(start.elapsed());
            assert!(!left.is_zero(), "waited {DEADLINE:?} in vain until {what}");
            value = self.changed.wait_timeout(value, left).unwrap().0;
        }
    }
}
