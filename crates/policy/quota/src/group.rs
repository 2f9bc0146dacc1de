//! One group of a quota: its usage, the provider's reports, and the tasks that wait for units.

use std::sync::Arc;
use std::task::Waker;

use egret_clock::Timestamp;
use egret_store::shared::{GroupCall, GroupReply, Listing, SharedGroup, WakeUpHint};
use egret_store::{Borrower, Loan, StoreError, Window};
use parking_lot::{Mutex, MutexGuard};

use super::alerts::{RaisedAlerts, WindowUse};
use super::backing::Backed;
use super::config::{OnStoreError, Percent};
use super::correction::Correction;
use super::group_kind::GroupKind;
use super::handed_state::{CorrectionState, GroupState, MeterState};
use super::learn::Learned;
use super::lease::{Count, Lease};
use super::meter::{LoadSign, Meter, REPORT_MICROS, Refill, Rule, Stage, UsageReport};
use super::refusal::Why;
use super::share::LeaseClock;
use super::status::SharedSnapshot;

/// Maximum number of tasks that wait for one group. A queue needs one. With more, the oldest is woken, and
/// registers again.
const WATCHERS_MAX: usize = 1024;

/// A group's state behind its lock, which is held for one decision and never while waiting for another.
#[derive(Debug)]
pub(super) struct Group {
    /// The group's name; empty for the calls without one.
    pub name: Box<[u8]>,
    /// The key and the lease of units that a cluster shares; `None` for other units. They are outside of the
    /// lock, because it is held while the cluster is asked for units.
    shared: Option<(Arc<[u8]>, LeaseClock)>,
    state: Mutex<GroupUsage>,
}

impl Group {
    /// Creates a group without usage. A store may already have a count for it.
    pub(super) fn new(name: &[u8], rule: Rule, backed: Backed) -> Self {
        let (rule, shared) = match &backed {
            Backed::Shared(share) => (share.first_rule(), Some((share.key(), share.lease_clock()))),
            Backed::Blocks(blocks) => (rule, Some((blocks.key(), blocks.lease_clock()))),
            Backed::Memory | Backed::File(_) => (rule, None),
        };
        let state = GroupUsage {
            meter: Meter::new(rule),
            correction: Correction::default(),
            abandoned_units: 0,
            watchers: Vec::new(),
            raised: RaisedAlerts::default(),
            backed,
            parting: None,
        };
        Self { name: name.into(), shared, state: Mutex::new(state) }
    }

    /// Returns `true` if the use of its units ends with a lease.
    pub(super) fn is_leased(&self) -> bool {
        self.shared.is_some()
    }

    /// Returns `true` if units that were taken may still be used.
    pub(super) fn is_usable(&self) -> bool {
        let Some((_, lease)) = &self.shared else { return true };
        lease.is_held() || self.lock().may_use()
    }

    /// Locks the state. The state is consistent after every statement, so a poisoned lock is safe to use.
    pub(super) fn lock(&self) -> MutexGuard<'_, GroupUsage> {
        self.state.lock()
    }

    /// Runs `work`, which may free units, and wakes the waiting tasks.
    pub(super) fn free<T>(&self, work: impl FnOnce(&mut GroupUsage) -> T) -> T {
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
        let took_us = now.as_micros().saturating_sub(made.as_micros());
        let stage = state.meter.responded(units, took_us);
        if let Backed::Blocks(blocks) = &mut state.backed {
            blocks.finish(units);
        }
        if state.delays() != delays {
            wake(state);
        }
        stage
    }

    /// Lets an adaptive limit learn from the end of a call that was made at `made`. Wakes the waiting tasks
    /// if the limit rises.
    pub(super) fn ended(&self, now: Timestamp, sign: LoadSign, made: Timestamp) {
        let mut state = self.lock();
        state.advance(now);
        if state.meter.ended(sign, made.as_micros()) {
            wake(state);
        }
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
fn wake(mut state: MutexGuard<'_, GroupUsage>) {
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
        self.shared.as_ref().map_or_else(|| [].into(), |(key, _)| key.clone())
    }

    fn call(&self, listing: Listing, now_ms: u64) -> Option<GroupCall> {
        let mut state = self.lock();
        state.advance_shared();
        let GroupUsage { meter, backed, .. } = &mut *state;
        match backed {
            Backed::Shared(share) => share.call(listing, now_ms, meter),
            Backed::Blocks(blocks) => blocks.call(listing, now_ms),
            Backed::Memory | Backed::File(_) => None,
        }
    }

    fn answered(&self, reply: &GroupReply, generation: u64, _: u64) {
        let mut state = self.lock();
        state.advance_shared();
        let GroupUsage { meter, backed, .. } = &mut *state;
        match backed {
            Backed::Shared(share) => share.answered(reply, generation, meter),
            Backed::Blocks(blocks) => blocks.answered(reply, generation, meter),
            Backed::Memory | Backed::File(_) => {}
        }
        // Tasks that still wait note their units again, so the next call tells the present demand.
        wake(state);
    }

    fn is_urgent(&self, _: u64) -> bool {
        let mut state = self.lock();
        state.advance_shared();
        let GroupUsage { meter, backed, .. } = &*state;
        match backed {
            Backed::Shared(share) => share.is_urgent(meter),
            Backed::Blocks(blocks) => blocks.is_urgent(),
            Backed::Memory | Backed::File(_) => false,
        }
    }

    fn accepts(&self, hint: WakeUpHint) -> bool {
        if let Backed::Shared(share) = &mut self.lock().backed { share.accepts(hint) } else { false }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let mut state = self.lock();
        state.give_back_lease();
        state.advance_shared();
        let GroupUsage { meter, backed, .. } = &mut *state;
        match backed {
            Backed::Shared(share) => share.leave(meter),
            Backed::Blocks(blocks) => blocks.leave(),
            Backed::Memory | Backed::File(_) => {}
        }
    }
}

/// The usage of a group.
#[derive(Debug)]
pub(super) struct GroupUsage {
    meter: Meter,
    correction: Correction,
    /// Units of calls in transit that were given up since the last update of the time.
    abandoned_units: u64,
    watchers: Vec<Waker>,
    raised: RaisedAlerts,
    backed: Backed,
    /// The lease of this window from before the counts were handed over. Units that still arrive are
    /// returned.
    parting: Option<Box<(Lease, Window)>>,
}

impl GroupUsage {
    pub(super) fn meter(&self) -> &Meter {
        &self.meter
    }

    /// Applies another rule of the same kind, and the behavior for a failing store.
    pub(super) fn set_rule(&mut self, rule: Rule, policy: OnStoreError) {
        match &mut self.backed {
            Backed::Memory => self.meter.set_rule(rule),
            Backed::File(lease) => {
                self.meter.set_rule(rule);
                lease.set_open(policy == OnStoreError::Open);
            }
            Backed::Shared(share) => share.set_rule(rule, policy, &mut self.meter),
            Backed::Blocks(blocks) => blocks.set_rule(rule, policy, &mut self.meter),
        }
    }

    /// Updates the time.
    pub(super) fn advance(&mut self, now: Timestamp) {
        match &mut self.backed {
            Backed::Memory => self.meter.advance(now),
            Backed::File(lease) => {
                self.meter.advance(now);
                lease.advance(count(&self.meter));
            }
            Backed::Shared(share) => share.advance(now, &mut self.meter),
            Backed::Blocks(blocks) => blocks.advance(now, &mut self.meter),
        }
        self.catch_up();
    }

    /// Updates the time of shared units, without a caller's time.
    fn advance_shared(&mut self) {
        match &mut self.backed {
            Backed::Shared(share) => share.advance_to_present(&mut self.meter),
            Backed::Blocks(blocks) => blocks.advance_to_present(&mut self.meter),
            Backed::Memory | Backed::File(_) => return,
        }
        self.catch_up();
    }

    /// Counts and corrects what depends on the time.
    fn catch_up(&mut self) {
        if self.abandoned_units > 0 {
            let units = std::mem::take(&mut self.abandoned_units);
            self.meter.abandoned(units);
            if let Backed::Blocks(blocks) = &mut self.backed {
                blocks.abandon(units);
            }
        }
        if !self.correction.is_none() {
            self.correction.expire(self.now());
        }
    }

    /// Returns `true` if the units in use may be used at this moment.
    fn may_use(&mut self) -> bool {
        self.advance_shared();
        match &self.backed {
            Backed::Shared(share) => share.may_use(&self.meter),
            Backed::Blocks(blocks) => blocks.may_use(),
            Backed::Memory | Backed::File(_) => true,
        }
    }

    /// The time by the callers' clock.
    fn now(&self) -> u64 {
        self.outside(self.meter.now())
    }

    /// Converts a time of the meter to one of the callers.
    fn outside(&self, micros: u64) -> u64 {
        match &self.backed {
            Backed::Shared(share) => micros.saturating_add(share.ahead()),
            Backed::Blocks(blocks) => micros.saturating_add_signed(blocks.ahead()),
            Backed::Memory | Backed::File(_) => micros,
        }
    }

    /// Maximum number of units that are ever available at once.
    pub(super) fn max_units(&self) -> u64 {
        match &self.backed {
            Backed::Shared(share) => share.max_units(),
            Backed::Memory | Backed::File(_) | Backed::Blocks(_) => self.meter.rule().max_units(),
        }
    }

    /// Total units at the moment, used or not, in all gateways that share them.
    pub(super) fn allowance(&self) -> u64 {
        match &self.backed {
            Backed::Shared(share) => share.max_units(),
            Backed::Memory | Backed::File(_) | Backed::Blocks(_) => self.meter.allowance(),
        }
    }

    /// Notes that calls wait for so many units together.
    pub(super) fn note_waiting(&mut self, units: u64) {
        match &mut self.backed {
            Backed::Shared(share) => share.note_waiting(units),
            Backed::Memory => {
                self.meter.want(units);
            }
            Backed::File(_) | Backed::Blocks(_) => {}
        }
    }

    /// Returns the reason why that many units are not available now, and the time at which they may be.
    pub(super) fn refuses(&mut self, units: u64) -> Option<(Why, Option<Timestamp>)> {
        if !self.fits(units) {
            return Some(self.refusal(units));
        }
        let (why, until) = match &mut self.backed {
            Backed::Memory | Backed::Shared(_) => return None,
            Backed::File(lease) => lease.refuses(units, self.meter.now())?,
            Backed::Blocks(blocks) => blocks.refuses(units, &self.meter)?,
        };
        Some((why, Some(Timestamp::from_micros(self.outside(until)))))
    }

    /// Why units that are not available are refused, and until when.
    #[cold]
    fn refusal(&mut self, units: u64) -> (Why, Option<Timestamp>) {
        if units > self.max_units() {
            return (Why::CostAboveLimit, None);
        }
        let when = self.when(units);
        // The process that counts may lend more.
        if self.correction.blocked_until().is_none() && self.meter.want(units) {
            return (Why::Fetching, when);
        }
        match &mut self.backed {
            Backed::Shared(share) if self.correction.blocked_until().is_none() => {
                let (why, until) = share.refuses(units, when, &self.meter);
                (why, Some(until))
            }
            _ => match self.held_until(units) {
                Some(until) => (Why::Held, Some(until)),
                None => (Why::Exhausted, when),
            },
        }
    }

    /// Takes units that are available.
    pub(super) fn take(&mut self, units: u64) {
        self.meter.take(units);
        match &mut self.backed {
            Backed::Memory | Backed::Shared(_) => {}
            Backed::File(lease) => lease.spend(units),
            Backed::Blocks(blocks) => blocks.take(units),
        }
    }

    /// Asks the store for more units if they are needed; `group` is this group.
    pub(super) fn ask_if_due(&mut self, group: &Arc<Group>) {
        match &mut self.backed {
            Backed::Memory => {}
            Backed::File(lease) => {
                let count = count(&self.meter);
                if let Some(window) = self.meter.window()
                    && lease.is_due(count)
                {
                    lease.ask(group.clone(), window, count);
                }
            }
            Backed::Shared(share) => share.ask_if_due(group, &self.meter),
            Backed::Blocks(blocks) => blocks.ask_if_due(group),
        }
    }

    fn lent(&mut self, loan: Option<Loan>) {
        if let Some((lease, window)) = self.parting.as_deref_mut() {
            lease.lent(loan, self.meter.now());
            return lease.give_back(*window);
        }
        let Backed::File(lease) = &mut self.backed else { return };
        if let Some((used, spilled)) = lease.lent(loan, self.meter.now()) {
            self.meter.set(used, spilled);
        }
        if lease.is_ending() {
            self.give_back_lease();
        }
    }

    /// Returns the borrowed units to the store.
    pub(super) fn give_back_lease(&mut self) {
        if let (Backed::File(lease), Some(window)) = (&mut self.backed, self.meter.window()) {
            lease.give_back(window);
        }
    }

    /// Returns `true` if there is a store and it does not respond.
    pub(super) fn has_store_failed(&self) -> bool {
        match &self.backed {
            Backed::Memory => false,
            Backed::File(lease) => lease.has_failed(),
            Backed::Shared(share) => share.has_store_failed(&self.meter),
            Backed::Blocks(blocks) => blocks.has_store_failed(),
        }
    }

    /// The units of the cluster, if it shares the group.
    pub(super) fn shared(&self) -> Option<SharedSnapshot> {
        match &self.backed {
            Backed::Memory | Backed::File(_) => None,
            Backed::Shared(share) => Some(share.snapshot(&self.meter)),
            Backed::Blocks(blocks) => Some(blocks.snapshot(&self.meter)),
        }
    }

    /// The earliest time at which that many units could be available.
    pub(super) fn when(&self, units: u64) -> Option<Timestamp> {
        Some(self.when_by(self.outside(self.meter.when(units)?), units))
    }

    /// The time at which that many units are available, if calls take as long as recently.
    pub(super) fn forecast(&self, units: u64) -> Option<Timestamp> {
        Some(self.when_by(self.outside(self.meter.forecast(units)?), units))
    }

    /// Returns `true` if that many units are available.
    pub(super) fn fits(&self, units: u64) -> bool {
        let fits = self.meter.fits(units.saturating_add(self.correction.held_back()));
        fits && self.correction.blocked_until().is_none()
    }

    /// Estimates when calls in transit end, if they may then give back enough for that many units; `None` if
    /// they do not give back anything, or not enough.
    pub(super) fn held_until(&self, units: u64) -> Option<Timestamp> {
        let is_possible = self.meter.rule().is_estimated
            && self.correction.blocked_until().is_none()
            // A cluster lends this gateway a part of the units only.
            && !matches!(self.backed, Backed::Shared(_));
        let wanted = units.saturating_add(self.correction.held_back());
        let is_held = is_possible && self.meter.fits_beside_counted(wanted);
        is_held.then(|| Timestamp::from_micros(self.outside(self.meter.transit_end())))
    }

    /// A number that changes when units turn out to come back later than estimated.
    pub(super) fn delays(&self) -> u64 {
        self.meter.delays()
    }

    /// The later of the time by the own count, and the time by the provider's reports.
    fn when_by(&self, by_count: u64, units: u64) -> Timestamp {
        let by_provider = if self.meter.fits(units.saturating_add(self.correction.held_back())) {
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
        let learned = self.report(learned, wait_max_micros);
        let free = self.meter.allowance().saturating_sub(self.meter.used());
        let now = self.now();
        let before = self.correction;
        self.correction.learn(&learned, free, now, self.outside(self.meter.reset()), wait_max_micros);
        let after = &self.correction;
        let is_blocked = after.blocked_until() > before.blocked_until();
        if is_blocked {
            self.meter.note_delay();
        }
        is_blocked || after.held_back() < before.held_back() || after.ends() < before.ends()
    }

    /// Passes the provider's count of shared units on to the store, which knows what all gateways have used.
    /// Returns the part of the report that this gateway can judge alone.
    fn report(&mut self, learned: &Learned, wait_max_micros: u64) -> Learned {
        if matches!(self.backed, Backed::Memory | Backed::File(_)) {
            return *learned;
        }
        let reset = learned.reset.map_or_else(|| self.outside(self.meter.reset()), Timestamp::as_micros);
        let reset_in_ms = reset.saturating_sub(self.now()).min(wait_max_micros) / 1_000;
        if let Some(remaining) = learned.remaining {
            match &mut self.backed {
                Backed::Shared(share) => share.report(remaining, reset_in_ms, &self.meter),
                Backed::Blocks(blocks) => blocks.report(remaining, reset_in_ms),
                Backed::Memory | Backed::File(_) => {}
            }
        }
        Learned {
            remaining: learned.remaining.filter(|left| *left == 0 && learned.reset.is_some()),
            ..*learned
        }
    }

    /// Returns units that were taken and not used.
    pub(super) fn give_back(&mut self, units: u64, stage: Stage) {
        let before = self.meter.used();
        self.meter.give_back(units, stage);
        let back = before.saturating_sub(self.meter.used());
        match &mut self.backed {
            Backed::Memory | Backed::Shared(_) => {}
            Backed::File(lease) => lease.unspend(back),
            Backed::Blocks(blocks) if stage == Stage::Transit => blocks.give_back(units),
            Backed::Blocks(blocks) => blocks.refund(back),
        }
    }

    /// Replaces a charge of `units` by the actual cost.
    pub(super) fn settle(&mut self, units: u64, actual: u64, stage: Stage) {
        let Some(more) = actual.checked_sub(units) else {
            return self.give_back(units - actual, stage);
        };
        self.meter.add(more);
        match &mut self.backed {
            Backed::Memory | Backed::Shared(_) => {}
            Backed::File(lease) => lease.spend(more),
            Backed::Blocks(blocks) => blocks.add(more),
        }
    }

    /// Returns those of `percents` whose use this window has newly reached, and its use.
    pub(super) fn raise<'a>(
        &mut self,
        now: Timestamp,
        percents: &'a [Percent],
    ) -> Option<(WindowUse, &'a [Percent])> {
        self.advance(now);
        let window = self.meter.window_use()?;
        Some((window, self.raised.raise(window, percents)))
    }

    /// Forgets which alerts were raised, because one was not taken.
    pub(super) fn raise_again(&mut self) {
        self.raised = RaisedAlerts::default();
    }

    /// Number of units available.
    pub(super) fn remaining(&self) -> u64 {
        if self.correction.blocked_until().is_some() {
            return 0;
        }
        let taken = self.meter.used().saturating_add(self.correction.held_back());
        let pool = if let Backed::Shared(share) = &self.backed { share.pool() } else { 0 };
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
        let is_kept = match &self.backed {
            Backed::File(lease) => lease.is_forgettable() && self.meter.transit() == 0,
            Backed::Blocks(blocks) => blocks.is_forgettable() && self.meter.transit() == 0,
            Backed::Memory | Backed::Shared(_) => false,
        };
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

/// The counts when one process hands them over to the next.
impl Group {
    /// Returns the counts for the next process, which counts from now on; `None` if they are those of a new
    /// group, or of a cluster. This process may still use the units of calls in transit, and as many others
    /// as `calls` may need at once.
    pub(super) fn hand_over(&self, kind: GroupKind, now: Timestamp, calls: u64) -> Option<GroupState> {
        let mut state = self.lock();
        let handed = state.hand_over(now, calls);
        wake(state);
        let (meter, correction) = handed?;
        Some(GroupState { kind, name: self.name.to_vec(), meter, correction })
    }

    /// Takes over the counts of an earlier process. Its corrections end within `wait_max_micros`. Returns the
    /// units that it may still use.
    pub(super) fn inherit(&self, state: &GroupState, now: Timestamp, wait_max_micros: u64) -> u64 {
        let mut own = self.lock();
        let is_shared = matches!(own.backed, Backed::Shared(_) | Backed::Blocks(_));
        if is_shared || !own.meter.inherit(&state.meter, now) {
            return 0;
        }
        own.correction.inherit(state.correction, now.as_micros().saturating_add(wait_max_micros));
        state.meter.held
    }

    /// Reports to the next process, and keeps unused units for at most so many `calls`. Returns `None` if
    /// there is nothing to report.
    pub(super) fn report(&self, now: Timestamp, calls: u64) -> Option<UsageReport> {
        let mut state = self.lock();
        if !state.meter.is_handed() {
            return None;
        }
        state.advance(now);
        state.meter.report(calls).filter(|report| *report != UsageReport::default())
    }

    /// Adds units that the next process has lent; `None` if it does not lend any more.
    pub(super) fn lend(&self, units: Option<u64>) {
        self.free(|state| state.meter.lend(units));
    }
}

/// The units that one process uses after it has handed its counts over to the next one.
impl Group {
    /// Counts what an earlier process has used of the `held` units, and takes those that it wants in
    /// addition. Returns the units held afterwards, and the lent ones among them.
    pub(super) fn settle(self: &Arc<Self>, now: Timestamp, held: u64, report: UsageReport) -> (u64, u64) {
        let mut state = self.lock();
        state.advance(now);
        let left = state.settle_held(held, report);
        state.correction.promise(0, 0);
        let units = state.lend_up_to(report.wanted);
        let promised_until = state.now().saturating_add(5 * REPORT_MICROS);
        state.correction.promise(report.wanted - units, promised_until);
        state.ask_if_due(self);
        wake(state);
        (left.saturating_add(units), units)
    }
}

impl GroupUsage {
    fn hand_over(&mut self, now: Timestamp, calls: u64) -> Option<(MeterState, CorrectionState)> {
        if matches!(self.backed, Backed::Shared(_) | Backed::Blocks(_)) || self.meter.is_handed() {
            return None;
        }
        self.advance(now);
        let is_used = !self.meter.is_full() || !self.correction.is_none();
        let spare = if is_used { calls.min(self.available()) } else { 0 };
        let window = self.meter.window();
        if let (Backed::File(mut lease), Some(window)) =
            (std::mem::replace(&mut self.backed, Backed::Memory), window)
        {
            lease.spend(spare);
            lease.give_back(window);
            self.parting = Some(Box::new((*lease, window)));
        }
        let meter = self.meter.hand_over(spare);
        let correction = self.correction.state();
        self.correction.release();
        is_used.then_some((meter, correction))
    }

    /// Number of units that calls may take now.
    fn available(&self) -> u64 {
        if self.correction.blocked_until().is_some() {
            return 0;
        }
        let taken = self.meter.used().saturating_add(self.correction.held_back());
        let free = self.meter.allowance().saturating_sub(taken);
        if let Backed::File(lease) = &self.backed { free.min(lease.available()) } else { free }
    }

    /// Counts what an earlier process has used of the `held` units, and returns the units still held.
    fn settle_held(&mut self, held: u64, report: UsageReport) -> u64 {
        let counted = report.counted.min(held);
        let abandoned = report.abandoned.min(held - counted);
        let returned = report.returned.min(held - counted - abandoned);
        self.meter.count_held(counted);
        if self.meter.rule().refill == Refill::Slots {
            self.give_back(abandoned.saturating_add(returned), Stage::Transit);
        } else {
            self.meter.abandoned(abandoned);
            self.give_back(returned, Stage::Transit);
        }
        // The cost of a call was higher than expected.
        let more = (report.counted - counted).saturating_add(report.abandoned - abandoned);
        if more > 0 {
            self.settle(0, more, Stage::Transit);
        }
        held - counted - abandoned - returned
    }

    /// Takes up to `wanted` units, and returns how many.
    fn lend_up_to(&mut self, wanted: u64) -> u64 {
        if wanted == 0 {
            return 0;
        }
        // Notes the units for the store, if there is one and it has not lent enough.
        let units = if self.refuses(wanted).is_none() { wanted } else { wanted.min(self.available()) };
        if units > 0 {
            self.take(units);
        }
        units
    }
}

fn count(meter: &Meter) -> Count {
    Count { now: meter.now(), epoch: meter.epoch(), used: meter.used(), allowance: meter.allowance() }
}
