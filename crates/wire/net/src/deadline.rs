//! Coarse deadlines for thousands of connections at next to no cost.
//!
//! A kept-alive connection moves its deadline several times per exchange, nearly always to a later time, and
//! almost no deadline expires. So moving one is a single store: the connection stays filed under the earliest
//! time at which it was ever due, and is checked and filed again only at that time. tokio's own timers take a
//! lock and move an entry each time.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Waker};
use std::time::Duration;

use egret_clock::{Moment, planted};
use tokio::sync::Notify;

use crate::event_loop::sleep_until;

/// Maximum delay of an expired deadline.
const SLOT_NANOS: u64 = 50_000_000;

/// The deadlines of one worker.
#[derive(Debug, Default)]
pub struct Timers {
    wheel: RefCell<Wheel>,
    earlier: Notify,
}

#[derive(Debug, Default)]
struct Wheel {
    /// The tickets to check when the time of a slot comes.
    slots: BTreeMap<Moment, Vec<Ticket>>,
    entries: Vec<TimerEntry>,
    free: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Ticket {
    entry: u32,
    /// Distinguishes this ticket from those of the entry's earlier owners.
    generation: u32,
}

#[derive(Debug)]
struct TimerEntry {
    generation: u32,
    deadline: Moment,
    /// The earliest slot that holds a ticket of this entry.
    filed: Moment,
    waker: Option<Waker>,
}

impl Timers {
    /// Returns a timer without a deadline.
    pub fn timer(self: &Rc<Self>) -> Timer {
        let mut wheel = self.wheel.borrow_mut();
        let entry = if let Some(entry) = wheel.free.pop() {
            entry
        } else {
            wheel.entries.push(TimerEntry {
                generation: 0,
                deadline: Moment::NEVER,
                filed: Moment::NEVER,
                waker: None,
            });
            // Cannot overflow: each timer belongs to a connection, and the process runs out of file
            // descriptors first.
            u32::try_from(wheel.entries.len() - 1).unwrap_or(u32::MAX)
        };
        Timer { timers: Rc::clone(self), entry, deadline: Cell::new(Moment::NEVER) }
    }

    /// Wakes every task that waits on a timer, so it notices other changes.
    pub fn wake_all(&self) {
        let wakers: Vec<Waker> =
            self.wheel.borrow().entries.iter().filter_map(|entry| entry.waker.clone()).collect();
        for waker in wakers {
            waker.wake();
        }
    }

    /// Wakes tasks whose deadline has passed. Runs as long as the worker.
    pub async fn run(&self) {
        loop {
            let first = self.wheel.borrow().slots.keys().next().copied();
            match first {
                None => self.earlier.notified().await,
                Some(slot) => {
                    tokio::select! {
                        biased;
                        () = sleep_until(slot) => self.expire(Moment::now()),
                        () = self.earlier.notified() => {}
                    }
                }
            }
        }
    }

    /// Checks every slot up to `now`: wakes the tasks that are due and files the others under their later
    /// deadline.
    fn expire(&self, now: Moment) {
        let mut due = Vec::new();
        let mut wheel = self.wheel.borrow_mut();
        while let Some(slot) = wheel.slots.first_entry().filter(|slot| *slot.key() <= now) {
            let (slot, tickets) = slot.remove_entry();
            for ticket in tickets {
                if let Some(waker) = wheel.collect(ticket, slot, now) {
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
    fn collect(&mut self, ticket: Ticket, slot: Moment, now: Moment) -> Option<Waker> {
        let entry = &mut self.entries[ticket.entry as usize];
        // The entry has a new owner, or was filed earlier since. Then another ticket is responsible for it.
        if entry.generation != ticket.generation || entry.filed != slot {
            return None;
        }
        entry.filed = Moment::NEVER;
        if entry.deadline <= now {
            return entry.waker.take();
        }
        if entry.deadline != Moment::NEVER {
            self.file(ticket.entry);
        }
        None
    }

    /// Files `entry` under its deadline. Returns `true` if no other entry is due before it.
    fn file(&mut self, entry: u32) -> bool {
        let index = entry as usize;
        let slot = slot_of(self.entries[index].deadline);
        self.entries[index].filed = slot;
        let ticket = Ticket { entry, generation: self.entries[index].generation };
        let first = self.slots.keys().next().is_none_or(|first| slot < *first);
        self.slots.entry(slot).or_default().push(ticket);
        first
    }
}

/// Returns the slot in which a deadline is checked: the next one.
fn slot_of(deadline: Moment) -> Moment {
    Moment::from_nanos(deadline.as_nanos().div_ceil(SLOT_NANOS).saturating_mul(SLOT_NANOS))
}

/// One movable deadline.
#[derive(Debug)]
pub struct Timer {
    timers: Rc<Timers>,
    entry: u32,
    /// A copy of the entry's deadline, which can be read without a borrow.
    deadline: Cell<Moment>,
}

impl Timer {
    /// Sets the deadline to `timeout` after `now`. `None` means no deadline.
    pub fn set(&self, now: Moment, timeout: Option<Duration>) {
        self.set_at(now.after(timeout));
    }

    /// Sets the deadline.
    pub fn set_at(&self, deadline: Moment) {
        self.deadline.set(deadline);
        let mut wheel = self.timers.wheel.borrow_mut();
        let entry = &mut wheel.entries[self.entry as usize];
        entry.deadline = deadline;
        if planted!(DeadlineMissed) {
            return;
        }
        if deadline < entry.filed && slot_of(deadline) < entry.filed && wheel.file(self.entry) {
            self.timers.earlier.notify_one();
        }
    }

    /// Returns `true` if the deadline has passed. Otherwise registers the task to be woken at the deadline.
    pub fn poll_expired(&self, cx: &Context<'_>) -> bool {
        let deadline = self.deadline.get();
        let mut wheel = self.timers.wheel.borrow_mut();
        let entry = &mut wheel.entries[self.entry as usize];
        if entry.waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            // Filed and not woken yet, so the clock need not be read.
            return false;
        }
        entry.waker = Some(cx.waker().clone());
        let file = deadline != Moment::NEVER && entry.filed == Moment::NEVER;
        if file && wheel.file(self.entry) {
            self.timers.earlier.notify_one();
        }
        drop(wheel);
        deadline != Moment::NEVER && deadline <= Moment::now()
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut wheel = self.timers.wheel.borrow_mut();
        let entry = &mut wheel.entries[self.entry as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.deadline = Moment::NEVER;
        entry.filed = Moment::NEVER;
        entry.waker = None;
        wheel.free.push(self.entry);
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;

    use super::*;
    use crate::event_loop::{run, spawn};

    async fn expired(timer: &Timer) {
        poll_fn(|cx| if timer.poll_expired(cx) { Poll::Ready(()) } else { Poll::Pending }).await;
    }

    fn on_a_worker<F: Future>(test: impl FnOnce(Rc<Timers>) -> F) {
        run(async {
            let timers = Rc::new(Timers::default());
            let running = Rc::clone(&timers);
            spawn(async move { running.run().await });
            test(timers).await;
        });
    }

    #[test]
    fn a_deadline_is_met_within_one_slot_of_its_time() {
        on_a_worker(|timers| async move {
            let start = Moment::now();
            let timer = timers.timer();
            timer.set(start, Some(Duration::from_millis(60)));
            expired(&timer).await;
            assert!(
                Moment::now().since(start) >= Duration::from_millis(60),
                "{:?}",
                Moment::now().since(start)
            );
        });
    }

    #[test]
    fn a_deadline_moved_away_is_not_met_at_its_first_time() {
        on_a_worker(|timers| async move {
            let start = Moment::now();
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
            let start = Moment::now();
            let timer = timers.timer();
            timer.set(start, Some(Duration::from_mins(10)));
            timer.set(start, Some(Duration::from_millis(60)));
            expired(&timer).await;
            assert!(Moment::now().since(start) < Duration::from_mins(1));
        });
    }

    #[test]
    fn moving_a_deadline_away_files_nothing() {
        on_a_worker(|timers| async move {
            let timer = timers.timer();
            for secs in 1..1000 {
                timer.set(Moment::now(), Some(Duration::from_secs(secs)));
            }
            assert_eq!(timers.wheel.borrow().slots.values().map(Vec::len).sum::<usize>(), 1);
        });
    }

    #[test]
    fn near_and_far_deadlines_in_turn_leave_no_tickets_behind() {
        on_a_worker(|timers| async move {
            let (start, timer) = (Moment::now(), timers.timer());
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
                timer.set(Moment::now(), Some(Duration::from_millis(1)));
            }
            assert_eq!(timers.wheel.borrow().entries.len(), 1);
            timers.expire(Moment::now() + Duration::from_secs(1));
            assert!(timers.wheel.borrow().slots.is_empty());
        });
    }
}
