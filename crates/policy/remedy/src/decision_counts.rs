//! Counts the decisions of a remedy, separately for each worker.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_items::words;

words! {
    /// The decision of a remedy about an exchange. Its word is the name in metrics and traces.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Decision: word {
        /// The request continues.
        Next => "next",
        /// The request waits.
        Wait => "wait",
        /// The remedy responds in place of the provider.
        LocalResponse => "answer",
        /// The call is repeated.
        Repeat => "repeat",
        /// The remedy could not decide.
        Fail => "fail",
    }
}

/// Upper bounds of the buckets of wait times, in microseconds; the last bucket has none.
pub const WAIT_BOUNDS_US: [u64; 9] =
    [1_000, 5_000, 20_000, 100_000, 500_000, 1_000_000, 5_000_000, 20_000_000, 60_000_000];

/// Number of decisions of a remedy, and durations of its waits.
#[derive(Debug)]
pub struct DecisionCounts {
    /// One set per worker, so no two workers write to the same one.
    workers: Box<[Cells]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Cells {
    decisions: [AtomicU64; Decision::ALL.len()],
    waits: [AtomicU64; WAIT_BOUNDS_US.len() + 1],
    waited_us: AtomicU64,
}

/// The counts of a remedy, summed over all workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DecisionSums {
    /// Counts, in the order of [`Decision::ALL`].
    pub counts: [u64; Decision::ALL.len()],
    /// Number of waits by duration, in the buckets of [`WAIT_BOUNDS_US`]; the last one is above all bounds.
    pub waits: [u64; WAIT_BOUNDS_US.len() + 1],
    /// The sum of all waits, in microseconds.
    pub waited_us: u64,
}

impl DecisionCounts {
    /// Creates zeroed counters for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Cells::default()).collect() }
    }

    /// Counts a decision.
    pub fn count(&self, worker: usize, decision: Decision) {
        if let Some(cells) = self.workers.get(worker) {
            add(&cells.decisions[decision as usize], 1);
        }
    }

    /// Counts a wait that has ended.
    pub fn waited(&self, worker: usize, wait: Duration) {
        let Some(cells) = self.workers.get(worker) else { return };
        let wait_us = u64::try_from(wait.as_micros()).unwrap_or(u64::MAX);
        add(&cells.waits[WAIT_BOUNDS_US.partition_point(|bound| *bound < wait_us)], 1);
        add(&cells.waited_us, wait_us);
    }

    /// Returns the sums over all workers.
    pub fn snapshot(&self) -> DecisionSums {
        let mut sums = DecisionSums::default();
        for cells in &self.workers {
            for (sum, cell) in sums.counts.iter_mut().zip(&cells.decisions) {
                *sum += cell.load(Relaxed);
            }
            for (sum, cell) in sums.waits.iter_mut().zip(&cells.waits) {
                *sum += cell.load(Relaxed);
            }
            sums.waited_us += cells.waited_us.load(Relaxed);
        }
        sums
    }
}

/// Adds without an atomic read-modify-write: each cell has one writer.
fn add(cell: &AtomicU64, count: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_summed_and_waits_classed() {
        let counts = DecisionCounts::new(2);
        counts.count(0, Decision::Next);
        counts.count(1, Decision::Next);
        counts.count(1, Decision::LocalResponse);
        counts.count(7, Decision::LocalResponse);
        counts.waited(0, Duration::from_millis(1));
        counts.waited(1, Duration::from_millis(3));
        counts.waited(1, Duration::from_mins(10));
        let sums = counts.snapshot();
        assert_eq!(sums.counts, [2, 0, 1, 0, 0]);
        assert_eq!(sums.waits, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(sums.waited_us, 600_004_000);
    }
}
