//! One group of a quota: what it has used, what its provider said, and who waits for it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use egret_clock::Timestamp;
use egret_store::{Borrower, Loan, StoreError};

use super::Why;
use super::correction::Correction;
use super::learn::Learned;
use super::lease::{Count, Lease};
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
    /// A group that has used nothing; with a lease, nothing but what its store knows of.
    pub(super) fn new(name: &[u8], rule: Rule, lease: Option<Lease>) -> Self {
        let state = State {
            meter: Meter::new(rule),
            correction: Correction::default(),
            strays: 0,
            watchers: Vec::new(),
            lease,
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
        wake(state);
        result
    }

    /// The response to a call arrived, which was made at `made`. Whoever waits is woken where it has turned
    /// out that this takes longer than was foreseen.
    pub(super) fn answered(&self, now: Timestamp, units: u64, made: Timestamp) -> Stage {
        let mut state = self.lock();
        state.advance(now);
        let delays = state.delays();
        let stage = state.meter.answered(units, made.as_micros());
        if state.delays() != delays {
            wake(state);
        }
        stage
    }

    /// Corrects the count by what a provider has said, and wakes who waits if that concerns them.
    pub(super) fn correct(&self, now: Timestamp, learned: &Learned, wait_max_micros: u64) {
        let mut state = self.lock();
        state.advance(now);
        if state.correct(learned, wait_max_micros) {
            wake(state);
        }
    }
}

/// Wakes all who wait, with the lock given back.
fn wake(mut state: MutexGuard<'_, State>) {
    let watchers = std::mem::take(&mut state.watchers);
    drop(state);
    for watcher in watchers {
        watcher.wake();
    }
}

impl Borrower for Group {
    fn lent(&self, answer: Result<Loan, StoreError>) {
        self.free(|state| state.lent(answer.ok()));
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.lock().give_back_lease();
    }
}

/// What a group has used.
#[derive(Debug)]
pub(super) struct State {
    meter: Meter,
    correction: Correction,
    /// Units in transit whose calls were given up since the time was last told.
    strays: u64,
    watchers: Vec<Waker>,
    lease: Option<Lease>,
}

impl State {
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Goes on by another rule of the same kind, and grants units while the store fails, or does not.
    pub(super) fn set_rule(&mut self, rule: Rule, is_open: bool) {
        self.meter.set_rule(rule);
        if let Some(lease) = &mut self.lease {
            lease.set_open(is_open);
        }
    }

    /// Takes note of the time.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let now = self.meter.advance(now);
        if self.strays > 0 {
            self.meter.abandoned(std::mem::take(&mut self.strays));
        }
        self.correction.expire(now);
        if let Some(lease) = &mut self.lease {
            lease.advance(count(&self.meter));
        }
    }

    /// Why that many units cannot be had at the time last told, and when they perhaps can.
    pub(super) fn refuses(&mut self, units: u64) -> Option<(Why, Option<Timestamp>)> {
        if units > self.meter.rule().most() {
            return Some((Why::CostAboveLimit, None));
        }
        let fits = self.meter.fits(units.saturating_add(self.correction.withheld()));
        if !fits || self.correction.blocked_until().is_some() {
            return Some((Why::Exhausted, self.when(units)));
        }
        let (why, until) = self.lease.as_mut()?.refuses(units, self.meter.now())?;
        Some((why, Some(Timestamp::from_micros(until))))
    }

    /// Takes units that are not refused.
    pub(super) fn take(&mut self, units: u64) {
        self.meter.take(units);
        if let Some(lease) = &mut self.lease {
            lease.spend(units);
        }
    }

    /// Asks the store for more units, if it is time to; `group` is this one.
    pub(super) fn ask_if_due(&mut self, group: &Arc<Group>) {
        let Some(lease) = &mut self.lease else { return };
        let count = count(&self.meter);
        if let Some(window) = self.meter.window()
            && lease.is_due(count)
        {
            lease.ask(group.clone(), window, count);
        }
    }

    fn lent(&mut self, loan: Option<Loan>) {
        let now = self.meter.now();
        if let Some((used, spilled)) = self.lease.as_mut().and_then(|lease| lease.lent(loan, now)) {
            self.meter.set(used, spilled);
        }
        if self.lease.as_ref().is_some_and(Lease::is_ending) {
            self.give_back_lease();
        }
    }

    /// Gives back what the store lent.
    pub(super) fn give_back_lease(&mut self) {
        if let (Some(lease), Some(window)) = (&mut self.lease, self.meter.window()) {
            lease.give_back(window);
        }
    }

    /// Whether there is a store and it does not answer.
    pub(super) fn has_store_failed(&self) -> bool {
        self.lease.as_ref().is_some_and(Lease::has_failed)
    }

    /// The earliest time at which that many units could be had.
    pub(super) fn when(&self, units: u64) -> Option<Timestamp> {
        Some(self.when_by(self.meter.when(units)?, units))
    }

    /// The time at which that many units can be had, if calls take as long as of late.
    pub(super) fn forecast(&self, units: u64) -> Option<Timestamp> {
        Some(self.when_by(self.meter.forecast(units)?, units))
    }

    /// A number that changes when it turns out that units come back later than was foreseen.
    pub(super) fn delays(&self) -> u64 {
        self.meter.delays()
    }

    /// The later of the time at which units come back by what was counted here, and by what the provider has
    /// said.
    fn when_by(&self, by_count: u64, units: u64) -> Timestamp {
        let by_provider = if self.meter.fits(units.saturating_add(self.correction.withheld())) {
            self.correction.blocked_until()
        } else {
            self.correction.ends()
        };
        Timestamp::from_micros(by_provider.map_or(by_count, |until| until.max(by_count)))
    }

    /// A call was given up without an answer. Its units are counted when the time is next told: only then is it known how long
    /// they were in transit.
    pub(super) fn abandon(&mut self, units: u64) {
        self.strays = self.strays.saturating_add(units);
    }

    /// Believes a provider that has counted more than was counted here. Says whether anybody who waits is to
    /// know: less is withheld than before, or for less long, or there is nothing until a later time.
    fn correct(&mut self, learned: &Learned, wait_max_micros: u64) -> bool {
        let free = self.meter.allowance().saturating_sub(self.meter.used());
        let now = self.meter.now();
        let before = self.correction;
        self.correction.learn(learned, free, now, self.meter.reset(), wait_max_micros);
        let after = &self.correction;
        let is_blocked = after.blocked_until() > before.blocked_until();
        if is_blocked {
            self.meter.note_delay();
        }
        is_blocked || after.withheld() < before.withheld() || after.ends() < before.ends()
    }

    /// Units were taken and not used.
    pub(super) fn give_back(&mut self, units: u64, stage: Stage) {
        let before = self.meter.used();
        self.meter.give_back(units, stage);
        if let Some(lease) = &mut self.lease {
            lease.unspend(before.saturating_sub(self.meter.used()));
        }
    }

    /// A call that was charged `units` turned out to cost `actual`.
    pub(super) fn settle(&mut self, units: u64, actual: u64, stage: Stage) {
        let Some(more) = actual.checked_sub(units) else {
            return self.give_back(units - actual, stage);
        };
        self.meter.add(more);
        if let Some(lease) = &mut self.lease {
            lease.spend(more);
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
        // What a store knows of need not be kept here.
        let is_kept = self.lease.as_ref().is_some_and(|lease| lease.is_forgettable() && self.meter.is_idle());
        let is_unused = self.meter.is_full() || is_kept;
        is_unused && self.correction.is_none() && self.strays == 0 && self.watchers.is_empty()
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

fn count(meter: &Meter) -> Count {
    Count { now: meter.now(), epoch: meter.epoch(), used: meter.used(), allowance: meter.allowance() }
}
