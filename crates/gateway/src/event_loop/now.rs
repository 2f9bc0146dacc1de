//! The time, read as seldom as will do.
//!
//! A worker's thread reads the clock when its event loop has waited, whenever an exchange has sent something, and for alarms. Whatever begins in
//! between begins when the thread turned to it: at the last of these moments. That is what an exchange starts from, so that receiving
//! and parsing its head count as the gateway's own time.

use std::cell::Cell;

use egret_clock::Moment;

thread_local! {
    static LAST_READ: Cell<Moment> = const { Cell::new(Moment::NEVER) };
    #[cfg(test)]
    static PAUSED: Cell<Option<Moment>> = const { Cell::new(None) };
}

/// Reads the clock.
pub(crate) fn exact() -> Moment {
    #[cfg(test)]
    let now = PAUSED.get().unwrap_or_else(Moment::now);
    #[cfg(not(test))]
    let now = Moment::now();
    LAST_READ.set(now);
    now
}

/// When this thread last read the clock: when it turned to what it does now. Only on threads whose event loop calls [`exact`] each time
/// it has waited; elsewhere it is the time now.
pub(crate) fn turned() -> Moment {
    let last = LAST_READ.get();
    if last == Moment::NEVER { exact() } else { last }
}

/// Stops this thread's clock: it goes on only where the event loop has nothing to do but wait.
#[cfg(test)]
pub(crate) fn pause() {
    PAUSED.set(Some(exact()));
}

/// Puts the clock forward to `at`, if it is stopped.
#[cfg(test)]
pub(crate) fn skip_to(at: Moment) -> Moment {
    if PAUSED.get().is_some() {
        PAUSED.set(Some(at));
        exact();
    }
    at
}
