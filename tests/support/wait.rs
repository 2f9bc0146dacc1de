//! Waiting for something to become true, with a deadline and without sleeping blindly.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

/// Deadline for anything that a test waits for. Generous, because two cores run everything at once, and the
/// threads that record have the lowest priority. A test that bounds a time measures it.
pub const DEADLINE: Duration = Duration::from_mins(4);

/// First interval between checks of a state without notification, such as a child's exit.
const LOOK_AGAIN: Duration = Duration::from_millis(5);
/// Last interval. A check can be a request to the control port, which takes the processor from what the test
/// waits for.
const LOOK_AGAIN_MAX: Duration = Duration::from_millis(100);
/// The interval is this part of the time waited so far, so a wait takes little longer than it has to.
const PART_OF_WAIT: u32 = 10;

/// Calls `probe` until it returns a value.
pub fn until<T>(what: &str, probe: impl FnMut() -> Option<T>) -> T {
    until_within(DEADLINE, what, probe)
}

/// Calls `probe` until it returns a value, for this time at most.
pub fn until_within<T>(time: Duration, what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    until_ok(time, || probe().ok_or(()), |()| what.to_owned())
}

/// Reads a value until `probe` accepts it, and returns it. If it accepts none in time, the last one is shown.
pub fn until_value<T: Debug>(what: &str, mut read: impl FnMut() -> T, probe: impl Fn(&T) -> bool) -> T {
    let accepted = || {
        let value = read();
        if probe(&value) { Ok(value) } else { Err(value) }
    };
    until_ok(DEADLINE, accepted, |last| format!("{what}: {last:?}"))
}

/// Calls `probe` until it succeeds, for this time at most. If it never does, `missing` describes what was
/// expected.
fn until_ok<T, E>(
    time: Duration,
    mut probe: impl FnMut() -> Result<T, E>,
    missing: impl Fn(E) -> String,
) -> T {
    let start = Instant::now();
    loop {
        match probe() {
            Ok(found) => return found,
            Err(error) if start.elapsed() >= time => {
                panic!("waited {time:?} in vain until {}", missing(error))
            }
            Err(_) => {
                let wait = start.elapsed() / PART_OF_WAIT;
                thread::park_timeout(wait.clamp(LOOK_AGAIN, LOOK_AGAIN_MAX));
            }
        }
    }
}

/// Calls `probe` until it returns `true`.
pub fn until_true(what: &str, mut probe: impl FnMut() -> bool) {
    until(what, || probe().then_some(()));
}

/// Sets a flag when it is dropped: threads that look at it end, also if the scenario fails.
#[derive(Debug)]
pub struct SetAtEnd<'a>(pub &'a AtomicBool);

impl Drop for SetAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A UTC time of day that is hours away.
pub fn far_from_now() -> &'static str {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
    if (6..18).contains(&(now / 3_600 % 24)) { "00:00" } else { "12:00" }
}

/// A value that threads change and wait for.
#[derive(Debug, Default)]
pub struct Watched<T> {
    value: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    /// Changes the value and wakes all waiting threads.
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
            if left.is_zero() {
                // A panic with the lock held would poison it for the threads that still write.
                drop(value);
                panic!("waited {DEADLINE:?} in vain until {what}");
            }
            value = self.changed.wait_timeout(value, left).unwrap().0;
        }
    }
}
