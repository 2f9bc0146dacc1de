//! The pending alarms of a loop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use egret_clock::Moment;

use super::tasks::{Tasks, Waiter};

/// The pending alarms of a loop.
#[derive(Default)]
pub(super) struct Alarms {
    set: RefCell<BTreeMap<(Moment, u64), Waiter>>,
    count: Cell<u64>,
}

impl Alarms {
    /// Returns the time of the next alarm.
    pub fn first(&self) -> Option<Moment> {
        self.set.borrow().keys().next().map(|(at, _)| *at)
    }

    /// Returns the key of a new alarm at `at`.
    pub fn key(&self, at: Moment) -> (Moment, u64) {
        (at, self.count.replace(self.count.get() + 1))
    }

    /// Sets the alarm with `key`, which wakes `waiter`.
    pub fn set(&self, key: (Moment, u64), waiter: Waiter) {
        self.set.borrow_mut().insert(key, waiter);
    }

    /// Removes the alarm with `key`.
    pub fn clear(&self, key: &(Moment, u64)) {
        self.set.borrow_mut().remove(key);
    }

    /// Wakes the tasks whose alarms are at or before `now`.
    pub fn expire(&self, now: Moment, tasks: &Tasks) {
        while self.first().is_some_and(|at| at <= now) {
            let first = self.set.borrow_mut().pop_first();
            if let Some((_, waiter)) = first {
                tasks.wake_waiter(waiter);
            }
        }
    }
}
