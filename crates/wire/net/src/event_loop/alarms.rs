//! The pending alarms of a loop.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use egret_clock::Moment;

use super::tasks::{Tasks, Waiter};

/// The identity of an alarm: its time, and a number that no other alarm of the loop has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct AlarmKey {
    at: Moment,
    number: u64,
}

/// The pending alarms of a loop.
#[derive(Default)]
pub(super) struct Alarms {
    set: RefCell<BTreeMap<AlarmKey, Waiter>>,
    count: Cell<u64>,
}

impl Alarms {
    /// Returns the time of the next alarm.
    pub fn first(&self) -> Option<Moment> {
        self.set.borrow().keys().next().map(|key| key.at)
    }

    /// Returns the key of a new alarm at `at`.
    pub fn key(&self, at: Moment) -> AlarmKey {
        AlarmKey { at, number: self.count.replace(self.count.get() + 1) }
    }

    /// Sets the alarm with `key`, which wakes `waiter`.
    pub fn set(&self, key: AlarmKey, waiter: Waiter) {
        self.set.borrow_mut().insert(key, waiter);
    }

    /// Removes the alarm with `key`.
    pub fn clear(&self, key: AlarmKey) {
        self.set.borrow_mut().remove(&key);
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
