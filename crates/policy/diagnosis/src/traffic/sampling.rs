//! The choice of the exchanges that are recorded while somebody reads live traffic. Each worker decides by
//! itself: it counts down to its next exchange, by steps whose mean is the same for all workers.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::{Moment, Random};

/// Number of exchanges per second above which only some of them are recorded.
pub(crate) const RECORDED_PER_SECOND: u64 = 1_000;
/// Numbers of exchanges of which one is recorded.
const STEPS: [u32; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000];
/// Interval at which the number is reconsidered.
const INTERVAL: Duration = Duration::from_millis(500);
/// Time for which the traffic must be low before the number gets smaller.
const LOW_TIME: Duration = Duration::from_secs(5);

/// The counters of all workers, and the number of exchanges of which one is recorded.
#[derive(Debug)]
pub(crate) struct Sampling {
    workers: Box<[SampleCells]>,
    one_in: AtomicU32,
    /// The smallest number, as readers want it.
    least: AtomicU32,
}

/// Counters that one worker writes. Aligned, so two workers never write to the same cache line.
#[derive(Debug, Default)]
#[repr(align(128))]
struct SampleCells {
    /// Number of exchanges until the next one that is recorded.
    left: AtomicU32,
    seen: AtomicU64,
    missed: AtomicU64,
}

/// The state of the reconsideration. It belongs to the diagnosis thread.
#[derive(Debug, Default)]
pub(crate) struct Adaption {
    last: Option<(Moment, u64)>,
    low_since: Option<Moment>,
}

impl Sampling {
    pub(crate) fn new(workers: usize) -> Self {
        let workers = (0..workers).map(|_| SampleCells::default()).collect();
        Self { workers, one_in: AtomicU32::new(1), least: AtomicU32::new(1) }
    }

    /// Counts an exchange of this worker. Returns `true` if it is to be recorded.
    pub(crate) fn takes(&self, worker: usize, random: &mut Random) -> bool {
        let Some(cells) = self.workers.get(worker) else { return false };
        // Only this worker writes them.
        cells.seen.store(cells.seen.load(Relaxed).wrapping_add(1), Relaxed);
        let longest = 2 * (self.one_in.load(Relaxed) - 1);
        let left = cells.left.load(Relaxed).min(longest);
        if left > 0 {
            cells.left.store(left - 1, Relaxed);
            return false;
        }
        // Steps of random length, so traffic with a period is not always met at the same point.
        let step = if longest == 0 { 0 } else { random.up_to(longest.into()) };
        cells.left.store(u32::try_from(step).unwrap_or(0), Relaxed);
        true
    }

    /// Counts an exchange that was to be recorded and had no place.
    pub(crate) fn miss(&self, worker: usize) {
        if let Some(cells) = self.workers.get(worker) {
            cells.missed.store(cells.missed.load(Relaxed).wrapping_add(1), Relaxed);
        }
    }

    /// Number of exchanges of which one is recorded.
    pub(crate) fn one_in(&self) -> u32 {
        self.one_in.load(Relaxed)
    }

    /// Number of exchanges since the start, while the list was open.
    pub(crate) fn seen(&self) -> u64 {
        self.workers.iter().map(|cells| cells.seen.load(Relaxed)).sum()
    }

    /// Number of exchanges that were to be recorded and had no place.
    pub(crate) fn missed(&self) -> u64 {
        self.workers.iter().map(|cells| cells.missed.load(Relaxed)).sum()
    }

    /// Sets the number of exchanges of which readers want one. A smaller number takes effect once the traffic
    /// is found to be low enough.
    pub(crate) fn set_least(&self, least: u32) {
        let least = least.clamp(1, STEPS[STEPS.len() - 1]);
        self.least.store(least, Relaxed);
        self.one_in.fetch_max(least, Relaxed);
    }

    /// Starts again with all exchanges that readers want.
    pub(crate) fn restart(&self) {
        self.one_in.store(self.least.load(Relaxed), Relaxed);
    }

    /// Reconsiders the number of exchanges of which one is recorded.
    pub(crate) fn adapt(&self, state: &mut Adaption, now: Moment) {
        let seen = self.seen();
        let Some((since, before)) = state.last else {
            state.last = Some((now, seen));
            return;
        };
        let elapsed = now.since(since);
        if elapsed < INTERVAL {
            return;
        }
        state.last = Some((now, seen));
        let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX).max(1);
        let per_second = seen.saturating_sub(before).saturating_mul(1_000) / millis;
        let wanted = step_for(per_second).max(self.least.load(Relaxed));
        let is_low = wanted < self.one_in();
        if is_low && now.since(*state.low_since.get_or_insert(now)) < LOW_TIME {
            return;
        }
        state.low_since = None;
        self.one_in.store(wanted, Relaxed);
    }
}

/// Returns the smallest step that records at most [`RECORDED_PER_SECOND`].
fn step_for(per_second: u64) -> u32 {
    let fits = |step: &&u32| per_second <= RECORDED_PER_SECOND * u64::from(**step);
    STEPS.iter().find(fits).copied().unwrap_or(STEPS[STEPS.len() - 1])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_takes_the_share_that_is_asked_for() {
        let (sampling, mut random) = (Sampling::new(2), Random::new(7));
        assert_eq!((0..100).filter(|_| sampling.takes(0, &mut random)).count(), 100);
        sampling.set_least(10);
        let taken = (0..100_000).filter(|_| sampling.takes(1, &mut random)).count();
        assert!((9_500..10_500).contains(&taken), "{taken}");
        assert_eq!((sampling.seen(), sampling.one_in()), (100_100, 10));
        assert!(!sampling.takes(2, &mut random));
        sampling.miss(1);
        assert_eq!(sampling.missed(), 1);
    }

    #[test]
    fn a_rush_is_sampled_at_once_and_calm_ends_it_later() {
        let (sampling, mut state, start) = (Sampling::new(1), Adaption::default(), Moment::now());
        let mut at = |millis: u64, seen: u64| {
            sampling.workers[0].seen.store(seen, Relaxed);
            sampling.adapt(&mut state, start + Duration::from_millis(millis));
            sampling.one_in()
        };
        assert_eq!((at(0, 0), at(100, 5_000), at(1_000, 10_000)), (1, 1, 10));
        assert_eq!((at(2_000, 40_000), at(3_000, 40_100)), (50, 50));
        assert_eq!((at(7_900, 40_200), at(8_500, 40_300)), (50, 1));
        sampling.set_least(20);
        assert_eq!((at(9_500, 40_400), at(60_000, 40_500)), (20, 20));
    }
}
