//! One group of a quota: what it has used, what its provider said, and who waits for it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use egret_store::Timestamp;

use super::Why;
use super::learn::Correction;
use super::meter::{Meter, Rule, Stage};

/// Tasks that can wait for one group. A queue needs one; the oldest is woken when there are more, and asks again.
const WATCHERS_MAX: usize = 1024;

/// A group's state behind its lock, which is held for one decision and never while others are waited for.
#[derive(Debug)]
pub(super) struct Group {
    /// The group's name; empty for the calls that have none.
    pub name: Box<[u8]>,
    state: Mutex<State>,
}

impl Group {
    pub(super) fn new(name: &[u8], rule: Rule) -> Self {
        let state = State {
            meter: Meter::new(rule),
            correction: Correction::default(),
            strays: 0,
            watchers: Vec::new(),
        };
        Self { name: name.into(), state: Mutex::new(state) }
    }

    /// The state. It is whole after every statement, so that a panic elsewhere leaves nothing to be afraid of.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something that may free units, and wakes who waits for them.
    pub(super) fn free<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = work(&mut state);
        let watchers = std::mem::take(&mut state.watchers);
        drop(state);
        for watcher in watchers {
            watcher.wake();
        }
        result
    }
}

/// What a group has used.
#[derive(Debug)]
pub(super) struct State {
    pub meter: Meter,
    correction: Correction,
    /// Units in transit whose calls were given up since the time was last told.
    strays: u64,
    watchers: Vec<Waker>,
}

impl State {
    /// Takes note of the time.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let now = self.meter.advance(now);
        if self.strays > 0 {
            self.meter.abandoned(std::mem::take(&mut self.strays));
        }
        self.correction.expire(now);
    }

    /// Why that many units cannot be had at the time last told, and when they perhaps can.
    pub(super) fn refuses(&self, units: u64) -> Option<(Why, Option<Timestamp>)> {
        if units > self.meter.rule().most() {
            return Some((Why::CostAboveLimit, None));
        }
        let fits = self.meter.fits(units.saturating_add(self.correction.withheld()));
        if fits && self.correction.blocked_until().is_none() {
            return None;
        }
        Some((Why::Exhausted, self.when(units)))
    }

    /// The earliest time at which that many units could be had.
    pub(super) fn when(&self, units: u64) -> Option<Timestamp> {
        let by_count = self.meter.when(units)?;
        let by_provider = if self.meter.fits(units.saturating_add(self.correction.withheld())) {
            self.correction.blocked_until()
        } else {
            self.correction.ends()
        };
        Some(Timestamp::from_micros(by_provider.map_or(by_count, |until| until.max(by_count))))
    }

    /// A call was given up without an answer. Its units are counted when the time is next told: only then is it known how long
    /// they were in transit.
    pub(super) fn abandon(&mut self, units: u64) {
        self.strays = self.strays.saturating_add(units);
    }

    /// Believes a provider that has counted more than was counted here.
    pub(super) fn correct(&mut self, learned: &super::learn::Learned, wait_max_micros: u64) {
        let free = self.meter.allowance().saturating_sub(self.meter.used());
        let now = self.meter.now();
        self.correction.learn(learned, free, now, self.meter.reset(), wait_max_micros);
    }

    /// Settles a call whose answer arrived at the time last told.
    pub(super) fn settle(&mut self, units: u64, actual: u64, stage: Stage) {
        match actual.checked_sub(units) {
            Some(more) => self.meter.add(more),
            None => self.meter.give_back(units - actual, stage),
        }
    }

    /// Units that can be had.
    pub(super) fn remaining(&self) -> u64 {
        if self.correction.blocked_until().is_some() {
            return 0;
        }
        let taken = self.meter.used().saturating_add(self.correction.withheld());
        self.meter.allowance().saturating_sub(taken)
    }

    /// When all that is used now will have come back.
    pub(super) fn reset(&self) -> Timestamp {
        let reset = self.meter.reset();
        Timestamp::from_micros(self.correction.ends().map_or(reset, |ends| ends.max(reset)))
    }

    /// Whether a new group would be the same.
    pub(super) fn is_new(&self) -> bool {
        self.meter.is_full() && self.correction.is_none() && self.strays == 0 && self.watchers.is_empty()
    }

    /// Has `waker` woken when units come free at a time that could not be told before.
    pub(super) fn watch(&mut self, waker: &Waker) {
        if self.watchers.iter().any(|watcher| watcher.will_wake(waker)) {
            return;
        }
        if self.watchers.len() == WATCHERS_MAX {
            self.watchers.swap_remove(0).wake();
        }
        self.watchers.push(waker.clone());
    }
}
