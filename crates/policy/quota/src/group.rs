//! One group of a quota: its usage, the provider's reports, and the tasks that wait for units.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use egret_clock::Timestamp;
use egret_store::shared::{GroupCall, GroupReply, Listing, Press, SharedGroup};
use egret_store::{Borrower, Loan, StoreError};

use super::backing::Backed;
use super::config::OnStoreError;
use super::correction::Correction;
use super::learn::Learned;
use super::lease::{Count, Lease};
use super::meter::{Meter, Rule, Stage};
use super::refusal::Why;
use super::share::Share;
use super::status::SharedSnapshot;

/// Maximum number of tasks that wait for one group. A queue needs one. With more, the oldest is woken, and
/// registers again.
const WATCHERS_MAX: usize = 1024;

/// A group's state behind its lock, which is held for one decision and never while waiting for another.
#[derive(Debug)]
pub(super) struct Group {
    /// The group's name; empty for the calls without one.
    pub name: Box<[u8]>,
    state: Mutex<State>,
}

impl Group {
    /// Creates a group without usage. A store may already have a count for it.
    pub(super) fn new(name: &[u8], rule: Rule, backed: Backed) -> Self {
        let (lease, share) = match backed {
            Backed::Memory => (None, None),
            Backed::File(lease) => (Some(lease), None),
            Backed::Shared(share) => (None, Some(share)),
        };
        let state = State {
            meter: Meter::new(share.as_ref().map_or(rule, |share| share.first_rule())),
            correction: Correction::default(),
            abandoned_units: 0,
            watchers: Vec::new(),
            lease,
            share,
        };
        Self { name: name.into(), state: Mutex::new(state) }
    }

    /// Locks the state. The state is consistent after every statement, so a poisoned lock is safe to use.
    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work`, which may free units, and wakes the waiting tasks.
    pub(super) fn free<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        let mut state = self.lock();
        let result = work(&mut state);
        wake(state);
        result
    }

    /// Counts the response to a call that was made at `made`. Wakes the waiting tasks if calls take longer
    /// than estimated.
    pub(super) fn responded(&self, now: Timestamp, units: u64, made: Timestamp) -> Stage {
        let mut state = self.lock();
        state.advance(now);
        let delays = state.delays();
        let stage = state.responded(units, made);
        if state.delays() != delays {
            wake(state);
        }
        stage
    }

    /// Corrects the count by a provider's report, and wakes the waiting tasks if it affects them.
    pub(super) fn correct(&self, now: Timestamp, learned: &Learned, wait_max_micros: u64) {
        let mut state = self.lock();
        state.advance(now);
        if state.correct(learned, wait_max_micros) {
            wake(state);
        }
    }
}

/// Wakes all waiting tasks after releasing the lock.
fn wake(mut state: MutexGuard<'_, State>) {
    let watchers = std::mem::take(&mut state.watchers);
    drop(state);
    for watcher in watchers {
        watcher.wake();
    }
}

impl Borrower for Group {
    fn lent(&self, loan: Result<Loan, StoreError>) {
        self.free(|state| state.lent(loan.ok()));
    }
}

impl SharedGroup for Group {
    fn key(&self) -> Arc<[u8]> {
        self.lock().share.as_ref().map_or_else(|| [].into(), |share| share.key())
    }

    fn call(&self, listing: Listing, now_ms: u64) -> Option<GroupCall> {
        let mut state = self.lock();
        state.advance_share();
        let State { meter, share, .. } = &mut *state;
        share.as_mut()?.call(listing, now_ms, meter)
    }

    fn answered(&self, reply: &GroupReply, generation: u64, _: u64) {
        let mut state = self.lock();
        let before = state.meter.allowance();
        let now = state.advance_share();
        if let Some(share) = &mut state.share {
            share.answered(reply, generation, now);
        }
        // An answer without units ends the wait of calls too.
        let _ = state.advance_share();
        if state.meter.allowance() > before || reply.hold == 0 {
            wake(state);
        }
    }

    fn is_urgent(&self, _: u64) -> bool {
        let mut state = self.lock();
        state.advance_share();
        let State { meter, share, .. } = &*state;
        share.as_ref().is_some_and(|share| share.is_urgent(meter))
    }

    fn heeds(&self, press: Press) -> bool {
        self.lock().share.as_ref().is_some_and(|share| share.heeds(press))
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut state = self.lock();
        state.give_back_lease();
        state.advance_share();
        let State { meter, share, .. } = &mut *state;
        if let Some(share) = share {
            share.farewell(meter);
        }
    }
}

/// The usage of a group.
#[derive(Debug)]
pub(super) struct State {
    meter: Meter,
    correction: Correction,
    /// Units of calls in transit that were given up since the last update of the time.
    abandoned_units: u64,
    watchers: Vec<Waker>,
    lease: Option<Box<Lease>>,
    share: Option<Box<Share>>,
}

impl State {
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Applies another rule of the same kind, and the behavior for a failing store.
    pub(super) fn set_rule(&mut self, rule: Rule, policy: OnStoreError) {
        if let Some(share) = &mut self.share {
            share.set_rule(rule, policy);
            self.advance_share();
            return;
        }
        self.meter.set_rule(rule);
        if let Some(lease) = &mut self.lease {
            lease.set_open(policy == OnStoreError::Open);
        }
    }

    /// Updates the time.
    pub(super) fn advance(&mut self, now: Timestamp) {
        let local = self.share.as_mut().map_or(now, |share| share.local(now));
        self.advance_meter(local);
        if let Some(lease) = &mut self.lease {
            lease.advance(count(&self.meter));
        }
    }

    /// Updates the time of shared units. Returns it.
    fn advance_share(&mut self) -> u64 {
        let Some(share) = &self.share else { return self.meter.now() };
        let now = share.now();
        self.advance_meter(now);
        self.meter.now()
    }

    fn advance_meter(&mut self, now: Timestamp) {
        self.meter.advance(now);
        if let Some(share) = &mut self.share {
            share.apply(&mut self.meter);
        }
        if self.abandoned_units > 0 {
            self.meter.abandoned(std::mem::take(&mut self.abandoned_units));
        }
        self.correction.expire(self.now());
    }

    /// The time by the callers' clock.
    fn now(&self) -> u64 {
        self.outside(self.meter.now())
    }

    /// Converts a time of the meter to one of the callers.
    fn outside(&self, micros: u64) -> u64 {
        micros.saturating_add(self.share.as_ref().map_or(0, |share| share.ahead()))
    }

    /// Maximum number of units that are ever available at once.
    pub(super) fn most(&self) -> u64 {
        self.share.as_ref().map_or_else(|| self.meter.rule().most(), |share| share.most())
    }

    /// Total units at the moment, used or not, in all gateways that share them.
    pub(super) fn allowance(&self) -> u64 {
        self.share.as_ref().map_or_else(|| self.meter.allowance(), |share| share.most())
    }

    /// Notes that calls wait for so many units together.
    pub(super) fn note_waiting(&mut self, units: u64) {
        if let Some(share) = &mut self.share {
            share.note_waiting(units);
        }
    }

    /// Counts the response to a call that was made at `made`.
    fn responded(&mut self, units: u64, made: Timestamp) -> Stage {
        let ahead = self.share.as_ref().map_or(0, |share| share.ahead());
        self.meter.responded(units, made.as_micros().saturating_sub(ahead))
    }

    /// Returns the reason why that many units are not available now, and the time at which they may be.
    pub(super) fn refuses(&mut self, units: u64) -> Option<(Why, Option<Timestamp>)> {
        if units > self.most() {
            return Some((Why::CostAboveLimit, None));
        }
        let fits = self.meter.fits(units.saturating_add(self.correction.withheld()));
        if !fits || self.correction.blocked_until().is_some() {
            let when = self.when(units);
            let is_blocked = self.correction.blocked_until().is_some();
            let (meter, ahead) = (&self.meter, self.share.as_ref().map_or(0, |share| share.ahead()));
            let Some(share) = self.share.as_mut().filter(|_| !is_blocked) else {
                return Some((Why::Exhausted, when));
            };
            let local = when.map(|when| when.as_micros().saturating_sub(ahead));
            let (why, until) = share.refuses(units, local, meter);
            return Some((why, Some(Timestamp::from_micros(until.saturating_add(ahead)))));
        }
        let (why, until) = self.lease.as_mut()?.refuses(units, self.meter.now())?;
        Some((why, Some(Timestamp::from_micros(until))))
    }

    /// Takes units that are available.
    pub(super) fn take(&mut self, units: u64) {
        self.meter.take(units);
        if let Some(lease) = &mut self.lease {
            lease.spend(units);
        }
    }

    /// Asks the store for more units if they are needed; `group` is this group.
    pub(super) fn ask_if_due(&mut self, group: &Arc<Group>) {
        if let Some(share) = &mut self.share {
            return share.ask_if_due(|| group.clone(), &self.meter);
        }
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
        if self.lease.as_ref().is_some_and(|lease| lease.is_ending()) {
            self.give_back_lease();
        }
    }

    /// Returns the borrowed units to the store.
    pub(super) fn give_back_lease(&mut self) {
        if let (Some(lease), Some(window)) = (&mut self.lease, self.meter.window()) {
            lease.give_back(window);
        }
    }

    /// Returns `true` if there is a store and it does not respond.
    pub(super) fn has_store_failed(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| lease.has_failed())
            || self.share.as_ref().is_some_and(|share| share.has_store_failed(&self.meter))
    }

    /// The units of the cluster, if it shares the group.
    pub(super) fn shared(&self) -> Option<SharedSnapshot> {
        self.share.as_ref().map(|share| share.snapshot(&self.meter))
    }

    /// The earliest time at which that many units could be available.
    pub(super) fn when(&self, units: u64) -> Option<Timestamp> {
        Some(self.when_by(self.outside(self.meter.when(units)?), units))
    }

    /// The time at which that many units are available, if calls take as long as recently.
    pub(super) fn forecast(&self, units: u64) -> Option<Timestamp> {
        Some(self.when_by(self.outside(self.meter.forecast(units)?), units))
    }

    /// A number that changes when units turn out to come back later than estimated.
    pub(super) fn delays(&self) -> u64 {
        self.meter.delays()
    }

    /// The later of the time by the own count, and the time by the provider's reports.
    fn when_by(&self, by_count: u64, units: u64) -> Timestamp {
        let by_provider = if self.meter.fits(units.saturating_add(self.correction.withheld())) {
            self.correction.blocked_until()
        } else {
            self.correction.ends()
        };
        Timestamp::from_micros(by_provider.map_or(by_count, |until| until.max(by_count)))
    }

    /// Notes a call that was given up without a response. Its units are counted at the next update of the
    /// time: only then is it known for how long they were in transit.
    pub(super) fn abandon(&mut self, units: u64) {
        self.abandoned_units = self.abandoned_units.saturating_add(units);
    }

    /// Applies a provider's report. Returns `true` if it affects waiting tasks: less is withheld, or for a
    /// shorter time, or nothing is available until a later time.
    fn correct(&mut self, learned: &Learned, wait_max_micros: u64) -> bool {
        let free = self.meter.allowance().saturating_sub(self.meter.used());
        let now = self.now();
        let before = self.correction;
        self.correction.learn(learned, free, now, self.outside(self.meter.reset()), wait_max_micros);
        let after = &self.correction;
        let is_blocked = after.blocked_until() > before.blocked_until();
        if is_blocked {
            self.meter.note_delay();
        }
        is_blocked || after.withheld() < before.withheld() || after.ends() < before.ends()
    }

    /// Returns units that were taken and not used.
    pub(super) fn give_back(&mut self, units: u64, stage: Stage) {
        let before = self.meter.used();
        self.meter.give_back(units, stage);
        if let Some(lease) = &mut self.lease {
            lease.unspend(before.saturating_sub(self.meter.used()));
        }
    }

    /// Replaces a charge of `units` by the actual cost.
    pub(super) fn settle(&mut self, units: u64, actual: u64, stage: Stage) {
        let Some(more) = actual.checked_sub(units) else {
            return self.give_back(units - actual, stage);
        };
        self.meter.add(more);
        if let Some(lease) = &mut self.lease {
            lease.spend(more);
        }
    }

    /// Number of units available.
    pub(super) fn remaining(&self) -> u64 {
        if self.correction.blocked_until().is_some() {
            return 0;
        }
        let taken = self.meter.used().saturating_add(self.correction.withheld());
        let pool = self.share.as_ref().map_or(0, |share| share.pool());
        self.meter.allowance().saturating_sub(taken).saturating_add(pool).min(self.allowance())
    }

    /// Time at which all units used now will have come back.
    pub(super) fn reset(&self) -> Timestamp {
        let reset = self.outside(self.meter.reset());
        Timestamp::from_micros(self.correction.ends().map_or(reset, |ends| ends.max(reset)))
    }

    /// Returns `true` if the state equals that of a new group.
    pub(super) fn is_new(&self) -> bool {
        // State that a store keeps need not be kept here.
        let is_kept = self.lease.as_ref().is_some_and(|lease| lease.is_forgettable() && self.meter.is_idle());
        let is_unused = self.meter.is_full() || is_kept;
        is_unused && self.correction.is_none() && self.abandoned_units == 0 && self.watchers.is_empty()
    }

    /// Wakes `waker` when units become free at a time that was not predictable.
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
