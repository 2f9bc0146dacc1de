//! The current time, read as rarely as possible.
//!
//! A worker's thread reads the clock after its event loop has waited, whenever an exchange has sent
//! something, and for alarms. Work that begins in between gets the last of these times, which is when the
//! thread turned to it. An exchange starts at that time, so receiving and parsing its head count towards the
//! gateway's footprint.

use std::cell::Cell;

use egret_clock::{Moment, begin_turn};

thread_local! {
    static LAST_READ: Cell<Moment> = const { Cell::new(Moment::NEVER) };
    #[cfg(test)]
    static PAUSED: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// Reads the clock.
pub fn exact() -> Moment {
    #[cfg(test)]
    let now = PAUSED.get().unwrap_or_else(Moment::now);
    #[cfg(not(test))]
    let now = Moment::now();
    LAST_READ.set(now);
    begin_turn();
    now
}

/// Returns the time at which this thread last read the clock, which is when it turned to its current work.
/// Valid only on threads whose event loop calls [`exact`] after each wait. Before the first read it returns
/// the current time.
pub fn turned() -> Moment {
    let last = LAST_READ.get();
    if last == Moment::NEVER { exact() } else { last }
}

/// Stops this thread's clock. It advances only while the event loop waits.
#[cfg(test)]
pub(crate) fn pause() {
    PAUSED.set(Some(exact()));
}

/// Advances the clock to `at`, if it is stopped.
#[cfg(test)]
pub(crate) fn skip_to(at: Moment) -> Moment {
    if PAUSED.get().is_some() {
        PAUSED.set(Some(at));
        exact();
    }
    at
}
