//! Coarse deadlines for thousands of connections at next to no cost.
//!
//! A kept-alive connection moves its deadline several times per exchange, nearly always further away, and nearly no deadline is
//! ever met. So moving one is a store: the connection stays filed under the earliest moment it was ever due, and only when
//! that moment comes is it looked at and filed anew. tokio's own timers take a lock and move an entry each time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use tokio::sync::Notify;

/// Deadlines are met this much late at most.
const SLOT_MS: u64 = 50;
/// No deadline: far beyond any uptime, so that comparing needs no special case.
const NEVER_MS: u64 = u64::MAX;

/// The deadlines of one worker.
#[derive(Debug)]
pub(crate) struct Timers {
    started: Instant,
    wheel: RefCell<Wheel>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Wheel {
    /// What is to be looked at when a slot's time has come.
    slots: BTreeMap<u64, Vec<Ticket>>,
    entries: Vec<Entry>,
    free: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Ticket {
    entry: u32,
    /// Tells a ticket of an entry's earlier owner.
    generation: u32,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    deadline_ms: u64,
    /// The earliest slot that holds a ticket of this entry.
    filed: u64,
    waker: Option<Waker>,
}

impl Timers {
    /// No deadlines yet.
    pub fn new(now: Instant) -> Self {
        Self { started: now, wheel: RefCell::default(), earlier: Notify::new() }
    }

    /// A timer with no deadline.
    pub fn timer(self: &Rc<Self>) -> Timer {
        let mut wheel = self.wheel.borrow_mut();
        let entry = if let Some(entry) = wheel.free.pop() {
            entry
        } else {
            wheel.entries.push(Entry { generation: 0, deadline_ms: NEVER_MS, filed: NEVER_MS, waker: None });
            // A connection each: the process runs out of descriptors long before this does.
            u32::try_from(wheel.entries.len() - 1).unwrap_or(u32::MAX)
        };
        Timer { timers: Rc::clone(self), entry, deadline_ms: Cell::new(NEVER_MS) }
    }

    /// Wakes whoever waits on a timer, due or not, so that they look at what else has changed.
    pub fn wake_all(&self) {
        let wakers: Vec<Waker> =
            self.wheel.borrow().entries.iter().filter_map(|entry| entry.waker.clone()).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Wakes those whose deadline has come. Runs as long as the worker does.
    pub async fn run(&self) {
        loop {
            let first = self.wheel.borrow().slots.keys().next().copied();
            match first {
                None => self.earlier.notified().await,
                Some(slot) => {
                    let due = self.started + Duration::from_millis(slot * SLOT_MS);
                    tokio::select! {
                        () = tokio::time::sleep_until(due.into()) => self.expire(Instant::now()),
                        () = self.earlier.notified() => {}
                    }
                }
            }
        }
    }

    fn ms(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.started);
        // `as_millis` would compute in 128 bits.
        since.as_secs().saturating_mul(1000).saturating_add(u64::from(since.subsec_millis()))
    }

    /// Looks at every slot up to `now`: wakes what is due and files the rest under its later deadline.
    fn expire(&self, now: Instant) {
        let now_ms = self.ms(now);
        let mut due = Vec::new();
        let mut wheel = self.wheel.borrow_mut();
        while let Some(slot) = wheel.slots.first_entry().filter(|slot| slot.key() * SLOT_MS <= now_ms) {
            let (slot, tickets) = slot.remove_entry();
            for ticket in tickets {
                if let Some(waker) = wheel.collect(ticket, slot, now_ms) {
                    due.push(waker);
                }
            }
        }
        drop(wheel);
        for waker in due {
            waker.wake();
        }
    }
}

impl Wheel {
    fn collect(&mut self, ticket: Ticket, slot: u64, now_ms: u64) -> Option<Waker> {
        let entry = &mut self.entries[ticket.entry as usize];
        // Its owner has gone, or it was filed earlier since: that ticket speaks for it.
        if entry.generation != ticket.generation || entry.filed != slot {
            return None;
        }
        entry.filed = NEVER_MS;
        if entry.deadline_ms <= now_ms {
            return entry.waker.take();
        }
        if entry.deadline_ms != NEVER_MS {
            self.file(ticket.entry);
        }
        None
    }

    /// Files `entry` under its deadline and says whether nothing was due before.
    fn file(&mut self, entry: u32) -> bool {
        let index = entry as usize;
        let slot = self.entries[index].deadline_ms.div_ceil(SLOT_MS);
        self.entries[index].filed = slot;
        let ticket = Ticket { entry, generation: self.entries[index].generation };
        let first = self.slots.keys().next().is_none_or(|first| slot < *first);
        self.slots.entry(slot).or_default().push(ticket);
        first
    }
}

/// One deadline, to be moved at will.
#[derive(Debug)]
pub(crate) struct Timer {
    timers: Rc<Timers>,
    entry: u32,
    /// As in the entry; here so that asking needs no borrow.
    deadline_ms: Cell<u64>,
}

impl Timer {
    /// Moves the deadline to `timeout` from `now`; none means no deadline.
    pub fn set(&self, now: Instant, timeout: Option<Duration>) {
        self.set_at(timeout.map(|timeout| now + timeout));
    }

    /// Moves the deadline to `at`; none means no deadline.
    pub fn set_at(&self, at: Option<Instant>) {
        let deadline_ms = at.map_or(NEVER_MS, |at| self.timers.ms(at));
        self.deadline_ms.set(deadline_ms);
        let mut wheel = self.timers.wheel.borrow_mut();
        let entry = &mut wheel.entries[self.entry as usize];
        entry.deadline_ms = deadline_ms;
        let filed = entry.filed;
        if deadline_ms != NEVER_MS && deadline_ms.div_ceil(SLOT_MS) < filed && wheel.file(self.entry) {
            self.timers.earlier.notify_one();
        }
    }

    /// Whether the deadline has passed; if not, the task is woken when it does.
    pub fn poll_expired(&self, cx: &Context<'_>) -> bool {
        let deadline_ms = self.deadline_ms.get();
        let mut wheel = self.timers.wheel.borrow_mut();
        let entry = &mut wheel.entries[self.entry as usize];
        if entry.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            // Filed, and not yet woken: no need to read the clock.
            return false;
        }
        entry.waker = Some(cx.waker().clone());
        let file = deadline_ms != NEVER_MS && entry.filed == NEVER_MS;
        if file && wheel.file(self.entry) {
            self.timers.earlier.notify_one();
        }
        drop(wheel);
        deadline_ms != NEVER_MS && deadline_ms <= self.timers.ms(Instant::now())
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut wheel = self.timers.wheel.borrow_mut();
        let entry = &mut wheel.entries[self.entry as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.deadline_ms = NEVER_MS;
        entry.filed = NEVER_MS;
        entry.waker = None;
        wheel.free.push(self.entry);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;

    async fn expired(timer: &Timer) {
        poll_fn(|cx| if timer.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn on_a_worker<F: Future>(test: impl FnOnce(Rc<Timers>) -> F) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let local = tokio::task::LocalSet::new();
        local.block_on(&runtime, async {
            let timers = Rc::new(Timers::new(Instant::now()));
            let running = Rc::clone(&timers);
            tokio::task::spawn_local(async move { running.run().await });
            test(timers).await;
        });
    }

    #[test]
    fn a_deadline_is_met_within_one_slot_of_its_time() {
        on_a_worker(|timers| async move {
            let start = Instant::now();
            let timer = timers.timer();
            timer.set(start, Some(Duration::from_millis(60)));
            expired(&timer).await;
            assert!(start.elapsed() >= Duration::from_millis(60), "{:?}", start.elapsed());
        });
    }

    #[test]
    fn a_deadline_moved_away_is_not_met_at_its_first_time() {
        on_a_worker(|timers| async move {
            let start = Instant::now();
            let (moved, other) = (timers.timer(), timers.timer());
            moved.set(start, Some(Duration::from_millis(60)));
            other.set(start, Some(Duration::from_millis(160)));
            moved.set(start, Some(Duration::from_mins(10)));
            tokio::select! {
                () = expired(&moved) => panic!("moved away, yet met"),
                () = expired(&other) => {}
            }
        });
    }

    #[test]
    fn a_deadline_moved_closer_is_met_at_its_new_time() {
        on_a_worker(|timers| async move {
            let start = Instant::now();
            let timer = timers.timer();
            timer.set(start, Some(Duration::from_mins(10)));
            timer.set(start, Some(Duration::from_millis(60)));
            expired(&timer).await;
            assert!(start.elapsed() < Duration::from_mins(1));
        });
    }

    #[test]
    fn moving_a_deadline_away_files_nothing() {
        on_a_worker(|timers| async move {
            let timer = timers.timer();
            for secs in 1..1000 {
                timer.set(Instant::now(), Some(Duration::from_secs(secs)));
            }
            assert_eq!(timers.wheel.borrow().slots.values().map(Vec::len).sum::<usize>(), 1);
        });
    }

    #[test]
    fn near_and_far_deadlines_in_turn_leave_no_tickets_behind() {
        on_a_worker(|timers| async move {
            let (start, timer) = (Instant::now(), timers.timer());
            for second in 0..1_000 {
                let now = start + Duration::from_secs(second);
                timer.set(now, Some(Duration::from_secs(10)));
                timer.set(now, Some(Duration::from_secs(75)));
                timers.expire(now);
            }
            let tickets: usize = timers.wheel.borrow().slots.values().map(Vec::len).sum();
            assert!(tickets <= 75, "{tickets}");
        });
    }

    #[test]
    fn a_dropped_timer_leaves_its_place_to_the_next() {
        on_a_worker(|timers| async move {
            for _ in 0..100 {
                let timer = timers.timer();
                timer.set(Instant::now(), Some(Duration::from_millis(1)));
            }
            assert_eq!(timers.wheel.borrow().entries.len(), 1);
            timers.expire(Instant::now() + Duration::from_secs(1));
            assert!(timers.wheel.borrow().slots.is_empty());
        });
    }
}
