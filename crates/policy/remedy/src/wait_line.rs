//! Queues of exchanges that wait for a quota: ordered by class and age, without starvation.
//!
//! The exchange at the front asks the quota, learns when to ask again, and moves the next one to the front
//! once it has been granted. If calls take longer than estimated, it also rejects at once the waiters that
//! can no longer be served before their deadline. A class counts as a fixed time: a waiter of a low class
//! that has waited for long enough precedes a new one of a high class.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::Waker;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_quota::Forecast;
use parking_lot::{Mutex, MutexGuard};

/// The queues of one remedy: one for each group of its quota.
#[derive(Debug, Default)]
pub(crate) struct Queues {
    lines: Mutex<Queued>,
    /// Number of exchanges in all queues, readable without the lock.
    len: AtomicUsize,
}

#[derive(Debug, Default)]
struct Queued {
    lines: HashMap<Box<[u8]>, Queue>,
    /// Counter of arrivals, to order those at the same time.
    arrivals: u64,
}

/// The queue of one group.
#[derive(Debug, Default)]
struct Queue {
    /// By rank, the lowest first.
    waiters: BTreeMap<Rank, Waiter>,
    /// Units that all of them need together.
    units: u64,
    /// The `number` of the last [`QueuePlace::review`]; `None` if an exchange has overtaken others since.
    reviewed: Option<u64>,
}

#[derive(Debug)]
struct Waiter {
    waker: Waker,
    /// Time of its arrival.
    since: Timestamp,
    /// Units that it waits for.
    cost: u64,
    /// Deadline of the wait.
    deadline: Timestamp,
    /// Estimated time of its grant, if that is too late. The waiter is about to leave.
    late: Option<Forecast>,
}

/// An exchange that joins a queue.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Arrival {
    /// The current time.
    pub now: Timestamp,
    /// Time by which its class is set back.
    pub handicap: Duration,
    /// Units that it waits for.
    pub cost: u64,
    /// Deadline of the wait.
    pub deadline: Timestamp,
}

/// The position of a waiter in its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueuePosition {
    /// At the front of waiters that need so many units together.
    First { units: u64 },
    /// Behind other waiters.
    Behind,
    /// Its grant is estimated for this time, which is after its deadline.
    Late(Forecast),
}

/// The sort key of a waiter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    /// Time of arrival plus the handicap of the class.
    from: Timestamp,
    arrival: u64,
}

/// A place in a queue. Dropping it leaves the queue, and wakes the waiter that moves to the front.
#[derive(Debug)]
pub(crate) struct QueuePlace {
    lines: Arc<Queues>,
    group: Box<[u8]>,
    rank: Rank,
}

impl Queues {
    /// Returns `true` if no exchange waits. A new one may then ask the quota without joining.
    pub fn is_empty(&self) -> bool {
        self.len.load(Relaxed) == 0
    }

    /// Number of waiting exchanges.
    pub fn len(&self) -> usize {
        self.len.load(Relaxed)
    }

    /// Joins the queue of `group`. Also returns the units that the waiters before it need. Returns `None` if
    /// `size` exchanges are waiting already.
    pub fn join(
        self: &Arc<Self>,
        group: Box<[u8]>,
        arrival: Arrival,
        size: usize,
        waker: &Waker,
    ) -> Option<(QueuePlace, u64)> {
        let Arrival { now, handicap, cost, deadline } = arrival;
        let mut waiting = self.lock();
        if self.len.load(Relaxed) >= size {
            return None;
        }
        waiting.arrivals += 1;
        let rank = Rank { from: now + handicap, arrival: waiting.arrivals };
        let line = waiting.lines.entry(group.clone()).or_default();
        if line.waiters.last_key_value().is_some_and(|(last, _)| *last > rank) {
            line.reviewed = None;
        }
        line.units = line.units.saturating_add(cost);
        line.waiters.insert(rank, Waiter { waker: waker.clone(), since: now, cost, deadline, late: None });
        let before = line.waiters.range(..rank).filter(|(_, waiter)| waiter.late.is_none());
        let units = before.fold(0_u64, |units, (_, waiter)| units.saturating_add(waiter.cost));
        self.len.fetch_add(1, Relaxed);
        Some((QueuePlace { lines: Arc::clone(self), group, rank }, units))
    }

    /// Time of arrival of the exchange that has waited the longest.
    pub fn oldest(&self) -> Option<Timestamp> {
        self.lock().lines.values().flat_map(|line| line.waiters.values()).map(|waiter| waiter.since).min()
    }

    fn lock(&self) -> MutexGuard<'_, Queued> {
        self.lines.lock()
    }
}

impl QueuePlace {
    /// Returns the current position. `waker` is woken when it may have changed.
    pub fn position(&self, waker: &Waker) -> QueuePosition {
        let mut waiting = self.lines.lock();
        let Some(line) = waiting.lines.get_mut(&self.group) else { return QueuePosition::First { units: 0 } };
        if let Some(known) = line.waiters.get_mut(&self.rank) {
            if let Some(turn) = known.late {
                return QueuePosition::Late(turn);
            }
            known.waker.clone_from(waker);
        }
        let is_first = line.waiters.first_key_value().is_none_or(|(first, _)| *first == self.rank);
        if is_first { QueuePosition::First { units: line.units } } else { QueuePosition::Behind }
    }

    /// Finds the waiters that cannot be served before their deadline, and wakes them to leave. `when`
    /// estimates the time of a grant from its units and the units before it. Does nothing if the queue was
    /// reviewed for the same `number` already.
    pub fn review(&self, number: u64, when: impl Fn(u64, u64) -> Option<Forecast>) {
        let Some(waiting) = self.unreviewed(number) else { return };
        let units = |waiting: &[WaiterInfo]| {
            waiting.iter().fold(0_u64, |units, waits| units.saturating_add(waits.cost))
        };
        let Some((last, others)) = waiting.split_last() else { return };
        let is_late = |turn: Option<Forecast>, deadline| turn.filter(|turn| turn.is_after(deadline));
        let earliest = waiting.iter().map(|waits| waits.deadline).min().unwrap_or_default();
        if is_late(when(last.cost, units(others)), earliest).is_none() {
            return;
        }
        let mut ahead = 0_u64;
        let mut late = Vec::new();
        for waits in &waiting {
            match is_late(when(waits.cost, ahead), waits.deadline) {
                Some(turn) => late.push((waits.rank, turn)),
                None => ahead = ahead.saturating_add(waits.cost),
            }
        }
        for waker in self.mark_late(&late) {
            waker.wake();
        }
    }

    /// Returns the waiters of its queue, if it was not reviewed for this number yet.
    fn unreviewed(&self, number: u64) -> Option<Vec<WaiterInfo>> {
        let mut waiting = self.lines.lock();
        let line = waiting.lines.get_mut(&self.group)?;
        if line.reviewed.replace(number) == Some(number) {
            return None;
        }
        let waits = |(rank, waiter): (&Rank, &Waiter)| WaiterInfo {
            rank: *rank,
            cost: waiter.cost,
            deadline: waiter.deadline,
        };
        Some(line.waiters.iter().filter(|(_, waiter)| waiter.late.is_none()).map(waits).collect())
    }

    /// Marks these waiters as late, and returns their wakers.
    fn mark_late(&self, late: &[(Rank, Forecast)]) -> Vec<Waker> {
        let mut waiting = self.lines.lock();
        let Some(line) = waiting.lines.get_mut(&self.group) else { return Vec::new() };
        let mut wakers = Vec::new();
        for (rank, turn) in late {
            if let Some(waiter) = line.waiters.get_mut(rank) {
                waiter.late = Some(*turn);
                wakers.push(waiter.waker.clone());
            }
        }
        wakers
    }
}

/// A snapshot of one waiter.
struct WaiterInfo {
    rank: Rank,
    cost: u64,
    deadline: Timestamp,
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let mut waiting = self.lines.lock();
        let Some(line) = waiting.lines.get_mut(&self.group) else { return };
        let was_first = line.waiters.first_key_value().is_some_and(|(first, _)| *first == self.rank);
        let cost = line.waiters.remove(&self.rank).map_or(0, |waiter| waiter.cost);
        line.units = line.units.saturating_sub(cost);
        self.lines.len.fetch_sub(1, Relaxed);
        let next = line.waiters.first_key_value().filter(|_| was_first);
        let next = next.map(|(_, waiter)| waiter.waker.clone());
        if line.waiters.is_empty() {
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

    fn turn(second: u64) -> Forecast {
        Forecast { at: at(second), level: 0, is_held: false }
    }

    /// One unit, with a deadline after one minute.
    fn arrival(second: u64) -> Arrival {
        let now = at(second);
        Arrival { now, handicap: Duration::ZERO, cost: 1, deadline: now + Duration::from_mins(1) }
    }

    fn is_first(place: &QueuePlace) -> bool {
        matches!(place.position(Waker::noop()), QueuePosition::First { .. })
    }

    #[test]
    fn a_late_waiter_leaves_and_those_behind_advance() {
        let lines = Arc::new(Queues::default());
        let counts: Vec<Arc<Count>> = (0..4).map(|_| Arc::default()).collect();
        let join = |number: usize, cost: u64, seconds: u64| {
            let waker = Waker::from(Arc::clone(&counts[number]));
            let arrival = Arrival { cost, deadline: at(seconds), ..arrival(0) };
            lines.join(Box::default(), arrival, 10, &waker).unwrap()
        };
        let places = [join(0, 1, 1), join(1, 5, 5), join(2, 1, 2), join(3, 1, 9)];
        assert_eq!(places.each_ref().map(|(_, ahead)| *ahead), [0, 1, 6, 7]);
        let [first, second, third, fourth] = places.map(|(place, _)| place);
        // One unit per second: the second waiter is late, and without it the third is not.
        let when = |cost: u64, ahead: u64| Some(turn(cost + ahead));
        first.review(1, when);
        assert_eq!(second.position(Waker::noop()), QueuePosition::Late(turn(6)));
        assert_eq!(third.position(Waker::noop()), QueuePosition::Behind);
        assert_eq!(*counts.iter().map(|count| count.0.load(Relaxed)).collect::<Vec<_>>(), [0, 1, 0, 0]);
        // For the same number the review is skipped.
        first.review(1, |_, _| Some(turn(1_000)));
        assert_eq!(fourth.position(Waker::noop()), QueuePosition::Behind);
        first.review(2, |_, _| None);
        assert_eq!(fourth.position(Waker::noop()), QueuePosition::Behind);
        first.review(3, |cost, ahead| Some(turn(8 + cost + ahead)));
        assert_eq!(first.position(Waker::noop()), QueuePosition::Late(turn(9)));
        assert_eq!(fourth.position(Waker::noop()), QueuePosition::Behind);
    }

    #[test]
    fn a_late_waiter_is_not_counted_for_newcomers() {
        let lines = Arc::new(Queues::default());
        let join = || lines.join(Box::default(), arrival(0), 10, Waker::noop()).unwrap();
        let (first, _) = join();
        first.review(1, |_, _| Some(turn(100)));
        assert_eq!(join().1, 0);
    }

    #[test]
    fn the_first_waiter_sees_the_units_of_all() {
        let lines = Arc::new(Queues::default());
        let join = |group: &[u8], cost: u64| {
            lines.join(group.into(), Arrival { cost, ..arrival(0) }, 10, Waker::noop()).unwrap().0
        };
        let [first, second, third] = [1, 5, 2].map(|cost| join(b"one", cost));
        let _other = join(b"other", 100);
        assert_eq!(first.position(Waker::noop()), QueuePosition::First { units: 8 });
        drop(second);
        assert_eq!(first.position(Waker::noop()), QueuePosition::First { units: 3 });
        drop(first);
        assert_eq!(third.position(Waker::noop()), QueuePosition::First { units: 2 });
    }

    #[test]
    fn a_leaving_first_waiter_wakes_only_the_next() {
        let lines = Arc::new(Queues::default());
        let counts: Vec<Arc<Count>> = (0..3).map(|_| Arc::default()).collect();
        let join = |number: usize| {
            let waker = Waker::from(Arc::clone(&counts[number]));
            lines.join(Box::default(), arrival(0), 10, &waker).unwrap().0
        };
        let (first, second, third) = (join(0), join(1), join(2));
        assert!(is_first(&first) && !is_first(&second));
        assert_eq!(lines.oldest(), Some(at(0)));
        drop(second);
        assert!(counts.iter().all(|count| count.0.load(Relaxed) == 0));
        drop(first);
        assert_eq!(counts[2].0.load(Relaxed), 1);
        assert!(is_first(&third));
        drop(third);
        assert!(lines.is_empty() && lines.lock().lines.is_empty() && lines.oldest().is_none());
    }

    #[test]
    fn groups_wait_separately_and_share_the_size() {
        let lines = Arc::new(Queues::default());
        let join = |group: &[u8]| lines.join(group.into(), arrival(0), 2, Waker::noop());
        let (one, before_one) = join(b"one").unwrap();
        let (two, before_two) = join(b"two").unwrap();
        assert_eq!((before_one, before_two), (0, 0));
        assert!(is_first(&one) && is_first(&two));
        assert!(join(b"three").is_none());
    }

    proptest! {
        /// A waiter of a low class is served after those of higher classes that arrived later by less than
        /// its handicap, and before all others.
        #[test]
        fn classes_are_weighed_against_time(arrivals in prop::collection::vec((0_u64..1_000, 0_u32..4), 1..50)) {
            let lines = Arc::new(Queues::default());
            let worth = Duration::from_secs(10);
            let mut sorted = arrivals.clone();
            sorted.sort_unstable();
            let mut places: Vec<(u64, QueuePlace)> = sorted
                .iter()
                .map(|(second, class)| {
                    let handicap = worth * *class;
                    let arrival = Arrival { handicap, ..arrival(*second) };
                    let place = lines.join(Box::default(), arrival, 100, Waker::noop()).unwrap().0;
                    (second + 10 * u64::from(*class), place)
                })
                .collect();
            let mut served = Vec::new();
            while let Some(first) = places.iter().position(|(_, place)| is_first(place)) {
                served.push(places.remove(first).0);
            }
            prop_assert!(served.is_sorted());
            prop_assert_eq!(served.len(), arrivals.len());
            prop_assert!(lines.is_empty());
        }
    }
}
