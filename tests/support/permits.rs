//! Permits for scenarios that would disturb each other if all of them ran at once.
//!
//! Many scenarios run at once, since most of them wait most of the time. One that needs no permit starts
//! whenever it is its turn. One that needs much of the machine takes a permit where it begins to: a page in a
//! browser ([`crate::browser`]), or a processor that it keeps busy for seconds ([`busy`]). A thread takes one
//! permit at a time. What judges time needs the machine for itself, so it is in another suite.

use std::sync::{Condvar, Mutex, PoisonError};

/// A number of permits, which scenarios take one at a time.
#[derive(Debug)]
pub struct Permits {
    left: Mutex<usize>,
    returned: Condvar,
}

/// A permit; given back when dropped.
#[derive(Debug)]
#[must_use = "it is given back when dropped"]
pub struct Permit<'a>(&'a Permits);

/// Waits until a processor may be kept busy for seconds.
pub fn busy() -> Permit<'static> {
    static PROCESSORS: Permits = Permits::new(2);
    PROCESSORS.take()
}

impl Permits {
    /// Creates this many permits.
    pub const fn new(count: usize) -> Self {
        Self { left: Mutex::new(count), returned: Condvar::new() }
    }

    /// Waits until a permit is left, and takes it.
    pub fn take(&self) -> Permit<'_> {
        let left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let left = self.returned.wait_while(left, |left| *left == 0);
        *left.unwrap_or_else(PoisonError::into_inner) -= 1;
        Permit(self)
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        *self.0.left.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        self.0.returned.notify_one();
    }
}
