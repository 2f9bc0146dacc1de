//! Measures how late this machine is: a processor that serves many programs delays all parts, which is no
//! fault of theirs.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::time::{Duration, Instant};

use egret_tests::timeline::pass;

/// Time for which the thread that measures rests.
const STEP: Duration = Duration::from_millis(10);

/// The time in which a thread that was due did not run, in microseconds.
#[derive(Debug, Default)]
pub(crate) struct Lateness(AtomicU64);

impl Lateness {
    /// Measures until it is over.
    pub(crate) fn measure(&self, is_over: &AtomicBool) {
        while !is_over.load(SeqCst) {
            let due = Instant::now() + STEP;
            pass(STEP);
            self.0.fetch_add(u64::try_from(due.elapsed().as_micros()).unwrap(), Relaxed);
        }
    }

    /// The time so far.
    pub(crate) fn total(&self) -> Duration {
        Duration::from_micros(self.0.load(Relaxed))
    }
}
