//! Lines in which exchanges wait for a quota: by class, oldest first, and nobody for ever.
//!
//! Who stands in front asks the quota, is told when it is worth asking again, and lets the next one in front once it is through. Classes
//! are weighed against time: each is worth a fixed wait, so that one of a low class that has waited long enough goes before a newcomer
//! of a high one.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use egret_store::Timestamp;

/// The lines of one remedy: one for each group of its quota.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    lines: Mutex<Waiting>,
    /// Exchanges waiting in all lines, to be looked at without the lock.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    lines: HashMap<Box<[u8]>, Line>,
    /// Tells those apart who came at the same time.
    arrivals: u64,
}

/// Those who wait, by rank; the lowest first.
type Line = BTreeMap<Rank, Waker>;

/// A place in the order of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// The time of arrival, later by what the class is worth.
    from: Timestamp,
    arrival: u64,
}

/// A place in a line. Dropping it leaves the line, and lets the next one in front know.
#[derive(Debug)]
pub(crate) struct Place {
    lines: Arc<Lines>,
    group: Box<[u8]>,
    rank: Rank,
}

impl Lines {
    /// Whether nobody waits. A newcomer may try without standing in line then.
    pub fn is_empty(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Joins the line of `group` at `now`, with a class worth `handicap`; how many stand before it there. Nothing if `size` wait already.
    pub fn join(
        self: &Arc<Self>,
        group: Box<[u8]>,
        now: Timestamp,
        handicap: Duration,
        size: usize,
        waker: &Waker,
    ) -> Option<(Place, u64)> {
        let mut waiting = self.lock();
        if self.len.load(Relaxed) >= size {
            return None;
        }
        waiting.arrivals += 1;
        let rank = Rank { from: now + handicap, arrival: waiting.arrivals };
        let line = waiting.lines.entry(group.clone()).or_default();
        line.insert(rank, waker.clone());
        let before = line.range(..rank).count();
        self.len.fetch_add(1, Relaxed);
        let place = Place { lines: Arc::clone(self), group, rank };
        Some((place, u64::try_from(before).unwrap_or(u64::MAX)))
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Place {
    /// Whether it is in front. `waker` is woken when that may have changed.
    pub fn is_first(&self, waker: &Waker) -> bool {
        let mut waiting = self.lines.lock();
        let Some(line) = waiting.lines.get_mut(&self.group) else { return true };
        if let Some(known) = line.get_mut(&self.rank) {
            known.clone_from(waker);
        }
        line.first_key_value().is_none_or(|(first, _)| *first == self.rank)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.lines.lock();
        let Some(line) = waiting.lines.get_mut(&self.group) else { return };
        let was_first = line.first_key_value().is_some_and(|(first, _)| *first == self.rank);
        line.remove(&self.rank);
        self.lines.len.fetch_sub(1, Relaxed);
        let next = if was_first { line.first_key_value().map(|(_, waker)| waker.clone()) } else { None };
        if line.is_empty() {
            waiting.lines.remove(&self.group);
        }
        drop(waiting);
        if let Some(next) = next {
            next.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn at(second: u64) -> Timestamp {
        Timestamp::from_secs(1_000 + second)
    }

    #[test]
    fn who_leaves_the_front_wakes_the_next_and_nobody_else() {
        let lines = Arc::new(Lines::default());
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let join = |number: usize| {
            let waker = Waker::from(Arc::clone(&counts[number]));
            lines.join(Box::default(), at(0), Duration::ZERO, 10, &waker).unwrap().0
        };
        let (first, second, third) = (join(0), join(1), join(2));
        assert!(first.is_first(Waker::noop()) && !second.is_first(Waker::noop()));
        drop(second);
        assert!(counts.iter().all(|count| count.0.load(Relaxed) == 0));
        drop(first);
        assert_eq!(counts[2].0.load(Relaxed), 1);
        assert!(third.is_first(Waker::noop()));
        drop(third);
        assert!(lines.is_empty() && lines.lock().lines.is_empty());
    }

    #[test]
    fn groups_do_not_wait_for_each_other_and_the_size_is_that_of_all() {
        let lines = Arc::new(Lines::default());
        let join = |group: &[u8]| lines.join(group.into(), at(0), Duration::ZERO, 2, Waker::noop());
        let (one, before_one) = join(b"one").unwrap();
        let (two, before_two) = join(b"two").unwrap();
        assert_eq!((before_one, before_two), (0, 0));
        assert!(one.is_first(Waker::noop()) && two.is_first(Waker::noop()));
        assert!(join(b"three").is_none());
    }

    proptest! {
        /// A low class goes after every higher one that came less than its worth later, and before all others.
        #[test]
        fn classes_are_weighed_against_time(arrivals in prop::collection::vec((0_u64..1_000, 0_u32..4), 1..50)) {
            let lines = Arc::new(Lines::default());
            let worth = Duration::from_secs(10);
            let mut sorted = arrivals.clone();
            sorted.sort_unstable();
            let mut places: Vec<(u64, Place)> = sorted
                .iter()
                .map(|(second, class)| {
                    let handicap = worth * *class;
                    let place = lines.join(Box::default(), at(*second), handicap, 100, Waker::noop()).unwrap().0;
                    (second + 10 * u64::from(*class), place)
                })
                .collect();
            let mut served = Vec::new();
            while let Some(first) = places.iter().position(|(_, place)| place.is_first(Waker::noop())) {
                served.push(places.remove(first).0);
            }
            prop_assert!(served.is_sorted());
            prop_assert_eq!(served.len(), arrivals.len());
            prop_assert!(lines.is_empty());
        }
    }
}
