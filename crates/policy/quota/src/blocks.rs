//! The units of a long window that the members of a cluster share. The store lends them in blocks.
//!
//! The meter of such a group counts what the whole cluster has used in the window, as far as this gateway
//! knows. Its times are those of the store's clock; before a reply has had one, those of the callers. The
//! gateway uses the units of its block. They count as used from the moment they are lent.

use std::sync::Arc;

use egret_clock::Timestamp;
use egret_store::shared::{
    Block, ClockCheck, GroupCall, GroupReply, GroupSink, Lease, LeaveMessage, Listing, SharedGroup,
    SharedLease, StoreClock,
};

use super::config::OnStoreError;
use super::meter::{Meter, Rule, STRAY_MICROS};
use super::refusal::Why;
use super::share::{ANSWER_MAX_US, LeaseClock, RETRY_US};
use super::status::SharedSnapshot;

/// The units of a long window, as far as this gateway knows them.
#[derive(Debug)]
pub(super) struct Blocks {
    sink: Arc<dyn GroupSink>,
    lease: Arc<SharedLease>,
    block: Block,
    policy: OnStoreError,
    /// The store's clock, in the reply with the lease that ends at this time.
    clock: Option<StoreClock>,
    clock_lease_ms: u64,
    /// The time by the lease's clock, and the bounds of the store's clock at that time.
    local_ms: u64,
    store: Option<ClockCheck>,
    /// Microseconds by which the callers' clock is ahead of the meter's.
    ahead: i64,
    /// `true` while the thread has been asked and has not called.
    is_asked: bool,
    /// Time of the question that is not answered yet, by the lease's clock.
    asked_ms: Option<u64>,
    /// Begin of the window that the last call was about.
    called_begin_ms: u64,
    /// With this many unused units left, more are asked for.
    low: u64,
    /// Units that nobody was lent, by the last reply.
    pool: i64,
    /// `true` if another member affirms a different limit.
    differs: bool,
}

impl Blocks {
    /// Creates the units of a group with this key and limit. None is lent yet.
    pub(super) fn new(sink: Arc<dyn GroupSink>, key: Arc<[u8]>, limit: u64) -> Self {
        let lease = sink.lease(&key);
        Self {
            sink,
            lease,
            block: Block::new(key, limit),
            policy: OnStoreError::Keep,
            clock: None,
            clock_lease_ms: 0,
            local_ms: 0,
            store: None,
            ahead: 0,
            is_asked: false,
            asked_ms: None,
            called_begin_ms: 0,
            low: 0,
            pool: 0,
            differs: false,
        }
    }

    /// The lease of the units.
    pub(super) fn lease_clock(&self) -> LeaseClock {
        LeaseClock::new(&self.sink, &self.lease)
    }

    /// Applies another rule of the same kind.
    pub(super) fn set_rule(&mut self, rule: Rule, policy: OnStoreError, meter: &mut Meter) {
        self.block.set_limit(rule.limit);
        self.policy = policy;
        meter.set_rule(rule);
    }

    /// Updates the meter's time. `now` is the caller's.
    pub(super) fn advance(&mut self, now: Timestamp, meter: &mut Meter) {
        self.advance_to(self.sink.turned_us(), now, meter);
        let ahead = i128::from(now.as_micros()) - i128::from(meter.now());
        self.ahead = i64::try_from(ahead).unwrap_or(0);
    }

    /// Updates the meter's time, without a caller's.
    pub(super) fn advance_to_present(&mut self, meter: &mut Meter) {
        self.advance_to(self.sink.now_us(), Timestamp::from_micros(meter.now()), meter);
    }

    fn advance_to(&mut self, local_us: u64, otherwise: Timestamp, meter: &mut Meter) {
        self.local_ms = self.local_ms.max(local_us / 1_000);
        let lease_ms = self.lease.ends_ms();
        if lease_ms != self.clock_lease_ms {
            self.clock_lease_ms = lease_ms;
            self.clock = self.lease.store_clock();
        }
        self.store = self.clock.map(|clock| clock.at(self.local_ms));
        let Some(store) = self.store else { return meter.advance(otherwise) };
        meter.advance(Timestamp::from_micros(store.earliest_ms.saturating_mul(1_000)));
        let (_, end_ms) = self.block.window_ms();
        if store.earliest_ms >= end_ms
            && let Some(window) = meter.window()
        {
            self.block.begin(window.begin / 1_000, window.end / 1_000);
            if end_ms == 0 {
                self.tell_used(store, meter);
            }
        }
    }

    /// Adds what was used in the first window before a reply has had the store's time.
    fn tell_used(&mut self, store: ClockCheck, meter: &Meter) {
        self.block.take(meter.used(), self.local_ms);
        self.block.finish(meter.used().saturating_sub(meter.transit()), store);
    }

    /// Microseconds by which the callers' clock is ahead.
    pub(super) fn ahead(&self) -> i64 {
        self.ahead
    }

    /// Units that are lent and not used.
    fn free(&self, lease: Lease) -> u64 {
        self.store.map_or(0, |store| self.block.free(store, lease))
    }

    fn lease(&self) -> Lease {
        self.lease.at(self.local_ms)
    }

    /// Units that this gateway may use in this window although it is cut off, besides those that are lent.
    fn allowed_alone(&self, lease: Lease, meter: &Meter) -> u64 {
        let limit = meter.rule().limit;
        let own = if self.store.is_some() { self.block.used() } else { meter.used() };
        match self.policy {
            _ if lease == Lease::Held => 0,
            OnStoreError::Keep | OnStoreError::Closed => 0,
            OnStoreError::Share => {
                (limit / self.lease.member_count().max(self.sink.members_min()).max(1)).saturating_sub(own)
            }
            OnStoreError::Open => limit.saturating_sub(meter.used()),
        }
    }

    /// Returns `true` if units that were taken may be used at the meter's time.
    pub(super) fn may_use(&self) -> bool {
        match self.lease() {
            Lease::Held => true,
            // The store assumes that calls of a window end in it or in the next one.
            Lease::Fallback(_) if !self.is_at_edge() => true,
            Lease::Fallback(_) | Lease::Over => {
                matches!(self.policy, OnStoreError::Share | OnStoreError::Open)
            }
        }
    }

    /// Returns `true` if the window may be over, and the next one may not have begun.
    fn is_at_edge(&self) -> bool {
        self.store.is_some_and(|store| store.latest_ms >= self.block.window_ms().1)
    }

    /// Returns the reason why units that the cluster seems to have cannot be used yet, and the time at which
    /// this may end.
    pub(super) fn refuses(&mut self, units: u64, meter: &Meter) -> Option<(Why, u64)> {
        let lease = self.lease();
        if units <= self.free(lease) || units <= self.allowed_alone(lease, meter) {
            return None;
        }
        Some(self.refusal(units, lease, meter))
    }

    #[cold]
    fn refusal(&mut self, units: u64, lease: Lease, meter: &Meter) -> (Why, u64) {
        if lease == Lease::Held && self.is_at_edge() {
            let (_, end_ms) = self.block.window_ms();
            return (Why::Fetching, end_ms.saturating_add(1).saturating_mul(1_000));
        }
        self.block.refuse(units, self.local_ms);
        let waited_us = self.local_ms.saturating_sub(self.asked_ms.unwrap_or(self.local_ms)) * 1_000;
        let is_asking = self.asked_ms.is_some() || self.should_ask();
        if is_asking && let Some(left_us) = ANSWER_MAX_US.checked_sub(waited_us).filter(|left| *left > 0) {
            return (Why::Fetching, meter.now().saturating_add(left_us));
        }
        let why = if lease == Lease::Held { Why::Exhausted } else { Why::StoreDown };
        (why, meter.now().saturating_add(RETRY_US))
    }

    fn should_ask(&self) -> bool {
        !self.is_asked && self.block.is_urgent(self.lease.generation(), self.local_ms)
    }

    /// Asks for a call to the store about `group`, if units were refused or are running low.
    pub(super) fn ask_if_due(&mut self, group: &Arc<impl SharedGroup + 'static>) {
        let is_low =
            !self.is_asked && self.asked_ms.is_none() && self.pool > 0 && self.free(self.lease()) <= self.low;
        if (is_low || self.should_ask()) && self.sink.ask(group.clone()) {
            self.is_asked = true;
            self.asked_ms.get_or_insert(self.local_ms);
        }
    }

    /// Uses units for a call.
    pub(super) fn take(&mut self, units: u64) {
        // Before the first window, the meter alone counts them.
        if self.store.is_some() {
            self.block.take(units, self.local_ms);
        }
    }

    /// Notes that the provider has counted units of calls in transit.
    pub(super) fn finish(&mut self, units: u64) {
        if let Some(store) = self.store {
            self.block.finish(units, store);
        }
    }

    /// Notes that units of calls in transit were given up: the provider may count them a little later.
    pub(super) fn abandon(&mut self, units: u64) {
        if let Some(store) = self.store {
            let latest_ms = store.latest_ms.saturating_add(STRAY_MICROS / 1_000);
            self.block.finish(units, ClockCheck { latest_ms, ..store });
        }
    }

    /// Charges units that a call has cost in addition.
    pub(super) fn add(&mut self, units: u64) {
        self.take(units);
        self.finish(units);
    }

    /// Gives units of a call in transit back.
    pub(super) fn give_back(&mut self, units: u64) {
        if self.store.is_some() {
            self.block.give_back(units);
        }
    }

    /// Gives units back that a call turned out not to cost.
    pub(super) fn refund(&mut self, units: u64) {
        self.block.refund(units);
    }

    /// Notes the provider's own count, for the store.
    pub(super) fn report(&mut self, remaining: u64, reset_in_ms: u64) {
        self.block.report(remaining, self.local_ms.saturating_add(reset_in_ms));
    }

    /// The group's key.
    pub(super) fn key(&self) -> Arc<[u8]> {
        self.block.key().clone()
    }

    /// Creates the group's part of a call.
    pub(super) fn call(&mut self, listing: Listing, now_ms: u64) -> Option<GroupCall> {
        self.is_asked = false;
        self.called_begin_ms = self.block.window_ms().0;
        match listing {
            Listing::Leaving => Some(self.block.leave(now_ms)),
            Listing::Renewal if self.block.is_known(self.lease.generation(), now_ms) => None,
            Listing::Renewal | Listing::Asked => Some(self.block.call(now_ms)),
        }
    }

    /// Handles the reply to the last call.
    pub(super) fn answered(&mut self, reply: &GroupReply, generation: u64, meter: &mut Meter) {
        self.block.answered(reply, generation, self.called_begin_ms);
        self.asked_ms = None;
        (self.pool, self.differs) = (reply.pool, reply.differs);
        let free = self.free(self.lease());
        self.low = free / 2;
        if self.called_begin_ms == self.block.window_ms().0 {
            meter.set(self.block.total().saturating_sub(free).max(self.block.used()), 0);
        }
    }

    /// Returns `true` if units must be returned, or were refused.
    pub(super) fn is_urgent(&self) -> bool {
        self.block.is_urgent(self.lease.generation(), self.local_ms)
    }

    /// Returns `true` if the store cannot be reached.
    pub(super) fn has_store_failed(&self) -> bool {
        self.lease() != Lease::Held
    }

    /// Returns `true` if the group can be dropped without a loss.
    pub(super) fn is_forgettable(&self) -> bool {
        !self.is_asked && self.asked_ms.is_none()
    }

    /// Returns the unused units to the store, because the group is dropped.
    pub(super) fn leave(&mut self) {
        if self.block.used() > 0 || self.free(self.lease()) > 0 {
            let call = self.block.leave(self.local_ms);
            self.sink.leave(LeaveMessage { call, free_ms: 0 });
        }
    }

    /// The units of the cluster.
    pub(super) fn snapshot(&self, meter: &Meter) -> SharedSnapshot {
        let lease = self.lease();
        let free = self.free(lease);
        let fallback = if lease == Lease::Held { 0 } else { free.max(self.allowed_alone(lease, meter)) };
        SharedSnapshot {
            hold: self.block.used().saturating_add(free),
            pool: self.pool,
            fallback,
            config_differs: self.differs,
        }
    }
}
