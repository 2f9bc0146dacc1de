//! The units of a group that the members of a cluster share: how many of them this gateway may use.
//!
//! The meter of such a group counts against the units that the gateway holds. Its times are those of the
//! lease's clock, which nobody sets and which goes on while the machine is suspended. None is converted from
//! the callers' clock: then a clock that was set, or a machine that was suspended, could make a lease seem
//! longer than the store takes it for.
//!
//! A grant is judged by the time at which its thread turned to its work. That is late by at most one turn,
//! and never goes back behind what another thread has seen. Before the request is sent, its permit reads the
//! clock itself.

use std::sync::Arc;

use egret_clock::Timestamp;
use egret_store::shared::{
    Demand, GroupCall, GroupReply, GroupSink, Hold, Lease, LeaveMessage, Listing, SharedGroup, SharedLease,
    WakeUpHint,
};

use super::config::OnStoreError;
use super::group_kind::GroupKind;
use super::meter::{Meter, Refill, Rule};
use super::refusal::Why;
use super::status::SharedSnapshot;

/// Clocks may differ by one part in this number, so all times are longer by it.
const DRIFT_PARTS: u64 = 400;
/// Time after which an unanswered question to the store counts as failed, and calls do not wait for it.
pub(super) const ANSWER_MAX_US: u64 = 500_000;
/// Time after an answer in which the store is not asked again for the same.
const ANSWER_FRESH_US: u64 = 100_000;
/// Time after which a refused call tries again, if nothing wakes it before.
pub(super) const RETRY_US: u64 = 1_000_000;

/// The cluster that shares a quota's groups.
#[derive(Debug, Clone)]
pub(super) struct SharedBacking {
    pub sink: Arc<dyn GroupSink>,
    pub quota: Box<str>,
    /// Stands for the way of counting: gateways that count in other ways share nothing.
    pub fingerprint: Box<str>,
}

impl SharedBacking {
    /// The key of a group in the store.
    pub(super) fn key(&self, kind: GroupKind, name: &[u8]) -> Arc<[u8]> {
        let digest = if name.is_empty() { String::new() } else { self.sink.digest(name) };
        format!("{}:{}:{}{digest}", self.quota, self.fingerprint, kind.tag()).into_bytes().into()
    }

    /// Creates the units of a group with this key and rule. None is held yet.
    pub(super) fn share(&self, key: Arc<[u8]>, rule: &Rule) -> Share {
        let lease = self.sink.lease(&key);
        Share {
            sink: self.sink.clone(),
            hold: Hold::new(key, rule.max_units(), cool_down_ms(rule), true),
            lease,
            whole: rule.clone(),
            policy: OnStoreError::Keep,
            waiting: 0,
            is_asked: false,
            asked_at: None,
            answered_at: None,
            pool: 0,
            differs: false,
            applied: (0, 0),
            applied_lease_ms: 0,
            applied_until: 0,
            ahead: 0,
        }
    }
}

/// The lease of a group's units, with its clock.
#[derive(Debug)]
pub(super) struct LeaseClock {
    sink: Arc<dyn GroupSink>,
    lease: Arc<SharedLease>,
}

impl LeaseClock {
    pub(super) fn new(sink: &Arc<dyn GroupSink>, lease: &Arc<SharedLease>) -> Self {
        Self { sink: sink.clone(), lease: lease.clone() }
    }

    /// Returns `true` if all units that are held may be used at this moment.
    pub(super) fn is_held(&self) -> bool {
        self.sink.now_us() < self.lease.ends_ms().saturating_mul(1_000)
    }
}

/// The units of a group that this gateway holds.
#[derive(Debug)]
pub(super) struct Share {
    sink: Arc<dyn GroupSink>,
    lease: Arc<SharedLease>,
    hold: Hold,
    /// The rule for the whole cluster.
    whole: Rule,
    policy: OnStoreError,
    /// Units that calls wait for, or were refused, since the last answer of the store.
    waiting: u64,
    /// `true` while the thread has been asked and has not called.
    is_asked: bool,
    /// Time of the question that is not answered yet, and of the last answer.
    asked_at: Option<u64>,
    answered_at: Option<u64>,
    /// Units that nobody held, by the last reply.
    pool: i64,
    /// `true` if another member affirms a different limit.
    differs: bool,
    /// The units that the meter may use, and those that fill its bucket.
    applied: (u64, u64),
    /// The end of the lease for which that is so, and the time until which it is so under this lease. 0 once
    /// the hold has changed.
    applied_lease_ms: u64,
    applied_until: u64,
    /// Microseconds by which the callers' clock is ahead of the lease's.
    ahead: u64,
}

impl Share {
    /// The rule of a meter that may use nothing yet.
    pub(super) fn first_rule(&self) -> Rule {
        self.rule(0, 0)
    }

    /// The lease of the units.
    pub(super) fn lease_clock(&self) -> LeaseClock {
        LeaseClock::new(&self.sink, &self.lease)
    }

    /// Applies another rule of the same kind.
    pub(super) fn set_rule(&mut self, rule: Rule, policy: OnStoreError, meter: &mut Meter) {
        self.hold.set_limit(rule.max_units());
        self.whole = rule;
        self.policy = policy;
        self.applied_until = 0;
        self.advance_to_present(meter);
    }

    /// Maximum number of units of the whole cluster at once.
    pub(super) fn max_units(&self) -> u64 {
        self.whole.max_units()
    }

    /// Units that nobody held, by the last reply.
    pub(super) fn pool(&self) -> u64 {
        u64::try_from(self.pool).unwrap_or(0)
    }

    /// The units of the cluster.
    pub(super) fn snapshot(&self, meter: &Meter) -> SharedSnapshot {
        let lease = self.lease.at(meter.now() / 1_000);
        SharedSnapshot {
            hold: self.hold.units(),
            pool: self.pool,
            fallback: if lease == Lease::Held { 0 } else { self.usable(lease) },
            config_differs: self.differs,
        }
    }

    /// Updates the meter's time. `now` is the caller's, by another clock, which may be set.
    pub(super) fn advance(&mut self, now: Timestamp, meter: &mut Meter) {
        let local = self.sink.turned_us();
        self.ahead = now.as_micros().saturating_sub(local);
        self.advance_to(local, meter);
    }

    /// Updates the meter's time, without a caller's.
    pub(super) fn advance_to_present(&mut self, meter: &mut Meter) {
        self.advance_to(self.sink.now_us(), meter);
    }

    fn advance_to(&mut self, local: u64, meter: &mut Meter) {
        meter.pass_to(local);
        if meter.now() >= self.applied_until || self.lease.ends_ms() != self.applied_lease_ms {
            self.apply(meter);
        }
    }

    /// Microseconds by which the callers' clock is ahead.
    pub(super) fn ahead(&self) -> u64 {
        self.ahead
    }

    /// Lets the meter use the units that the lease allows at its time.
    #[cold]
    fn apply(&mut self, meter: &mut Meter) {
        let now_ms = meter.now() / 1_000;
        self.applied_lease_ms = self.lease.ends_ms();
        let (lease, until_ms) = self.lease.at_until(now_ms);
        let (usable, used) = (self.usable(lease), meter.used());
        let applied = (usable, self.hold.filling(lease, usable, used));
        if applied != self.applied {
            self.applied = applied;
            meter.set_rule(self.rule(applied.0, applied.1));
        }
        let edge_until_ms = self.set_edge(now_ms, meter);
        // The bucket of a member that is cut off fills more slowly once no more are in use than may be.
        let is_bucket = matches!(self.whole.refill, Refill::Bucket { .. });
        let used_until_ms = if is_bucket && lease != Lease::Held && used > usable { 0 } else { u64::MAX };
        self.applied_until = until_ms.min(edge_until_ms).min(used_until_ms).saturating_mul(1_000);
    }

    /// Sets the time at which the units of a fixed window come back. Returns the time until which it is
    /// right.
    fn set_edge(&self, now_ms: u64, meter: &mut Meter) -> u64 {
        let Refill::Windows { schedule, .. } = &self.whole.refill else { return u64::MAX };
        let Some(clock) = self.lease.store_clock() else { return u64::MAX };
        let store = clock.at(now_ms);
        let (_, end) = schedule.window(store.latest_ms.saturating_mul(1_000));
        let end_ms = end.div_ceil(1_000);
        meter.set_edge(Some((clock.local_time(end_ms) + 1) * 1_000));
        // Until then, the store's clock cannot show the end, even if it is fast.
        let left_ms = end_ms.saturating_sub(store.latest_ms);
        now_ms + left_ms.saturating_sub(left_ms.div_ceil(DRIFT_PARTS) + 2)
    }

    /// Returns `true` if all units that are in use may be in use at the meter's time.
    pub(super) fn may_use(&self, meter: &Meter) -> bool {
        let lease = self.lease.at(meter.now() / 1_000);
        // Units in use are this gateway's while the lease lasts, even if it should return some.
        lease == Lease::Held || meter.used() <= self.usable(lease)
    }

    fn usable(&self, lease: Lease) -> u64 {
        if lease == Lease::Held {
            return self.hold.usable(lease);
        }
        let limit = self.max_units();
        match self.policy {
            OnStoreError::Keep => self.hold.usable(lease),
            OnStoreError::Share => limit / self.lease.member_count().max(self.sink.members_min()).max(1),
            OnStoreError::Closed => 0,
            OnStoreError::Open => limit,
        }
    }

    /// The rule of a meter with so many units. A bucket fills at the share of the rate of those that fill it.
    fn rule(&self, usable: u64, filling: u64) -> Rule {
        let (limit, refill) = match &self.whole.refill {
            Refill::Sliding { window } => (usable, Refill::Sliding { window: longer(*window) }),
            Refill::Windows { schedule, .. } => {
                let window = longer(schedule.length().unwrap_or_default());
                (usable, Refill::Sliding { window })
            }
            Refill::Bucket { window, burst } => {
                let common = greatest_common_divisor(self.whole.limit, *burst).max(1);
                let window = longer(*window).saturating_mul(burst / common);
                let limit = (self.whole.limit / common).saturating_mul(filling);
                (limit, Refill::Bucket { window, burst: usable })
            }
            Refill::Slots => (usable, Refill::Slots),
        };
        Rule { limit, refill, is_estimated: self.whole.is_estimated, adaptation: None }
    }

    fn demand(&self, meter: &Meter) -> Demand {
        Demand { used: meter.used(), waiting: self.waiting }
    }

    /// Notes that calls wait for so many units together.
    pub(super) fn note_waiting(&mut self, units: u64) {
        self.waiting = self.waiting.max(units);
    }

    /// Returns the reason why units are not available, and the time for the next attempt. `when` is the time
    /// at which the units that this gateway holds could suffice.
    pub(super) fn refuses(&mut self, units: u64, when: Option<Timestamp>, meter: &Meter) -> (Why, Timestamp) {
        let (now, ahead) = (meter.now(), self.ahead);
        let outside = |local: u64| Timestamp::from_micros(local.saturating_add(ahead));
        self.waiting = self.waiting.saturating_add(units);
        let retry_at = now.saturating_add(RETRY_US);
        let is_fresh = self.answered_at.is_some_and(|at| now < at.saturating_add(ANSWER_FRESH_US));
        let is_lacking = units > self.applied.0;
        let waits_until = self.asked_at.unwrap_or(now).saturating_add(ANSWER_MAX_US);
        let is_asking = self.asked_at.is_some() || self.should_ask(meter);
        let may_come = self.hold.may_grow() || (is_lacking && !is_fresh);
        if may_come && is_asking && now < waits_until {
            return (Why::Fetching, outside(waits_until));
        }
        match self.lease.at(now / 1_000) {
            Lease::Held if is_lacking => (Why::Exhausted, outside(retry_at)),
            Lease::Fallback(_) | Lease::Over if is_lacking => (Why::StoreDown, outside(retry_at)),
            _ => (Why::Exhausted, when.unwrap_or_else(|| outside(retry_at))),
        }
    }

    fn should_ask(&self, meter: &Meter) -> bool {
        !self.is_asked && self.hold.is_urgent(self.demand(meter), self.lease.generation())
    }

    /// Asks for a call to the store about `group`, if it should not wait for the renewal.
    pub(super) fn ask_if_due(&mut self, group: &Arc<impl SharedGroup + 'static>, meter: &Meter) {
        let is_calm = self.waiting == 0 && self.hold.units() > 0;
        if !is_calm && self.should_ask(meter) && self.sink.ask(group.clone()) {
            self.is_asked = true;
            self.asked_at.get_or_insert(meter.now());
        }
    }

    /// The group's key.
    pub(super) fn key(&self) -> Arc<[u8]> {
        self.hold.key().clone()
    }

    /// Creates the group's part of a call.
    pub(super) fn call(&mut self, listing: Listing, now_ms: u64, meter: &Meter) -> Option<GroupCall> {
        let (demand, lease) = (self.demand(meter), self.lease.at(now_ms));
        self.applied_until = 0;
        if listing == Listing::Leaving {
            return Some(self.hold.leave(demand.used, now_ms));
        }
        let is_known = self.hold.is_known(demand, self.lease.generation(), now_ms);
        let is_omitted =
            listing == Listing::Renewal && is_known && self.hold.usable(lease) >= self.hold.units();
        self.is_asked = false;
        if is_omitted && lease == Lease::Held {
            return None;
        }
        Some(GroupCall {
            has_fallback: self.has_fallback(),
            ..self.hold.call(demand, lease, self.lease.member_count(), now_ms)
        })
    }

    fn has_fallback(&self) -> bool {
        matches!(self.policy, OnStoreError::Keep | OnStoreError::Share)
    }

    /// Handles the reply to the last call. Tasks that still wait must note their units again.
    pub(super) fn answered(&mut self, reply: &GroupReply, generation: u64, meter: &mut Meter) {
        self.hold.answered(reply, generation, self.lease.member_count());
        self.pool = reply.pool;
        self.differs = reply.differs;
        self.waiting = 0;
        self.asked_at = None;
        self.answered_at = Some(meter.now());
        self.apply(meter);
    }

    /// Notes the provider's own count, for the store.
    pub(super) fn report(&mut self, remaining: u64, reset_in_ms: u64, meter: &Meter) {
        self.hold.report(remaining, (meter.now() / 1_000).saturating_add(reset_in_ms));
    }

    /// Returns `true` if units must be returned, or more are wanted than the store knows of.
    pub(super) fn is_urgent(&self, meter: &Meter) -> bool {
        self.hold.is_urgent(self.demand(meter), self.lease.generation())
    }

    /// Returns `true` if the group accepts a wake-up hint.
    pub(super) fn accepts(&mut self, hint: WakeUpHint) -> bool {
        self.hold.accepts(hint)
    }

    /// Returns `true` if the store cannot be reached.
    pub(super) fn has_store_failed(&self, meter: &Meter) -> bool {
        self.lease.at(meter.now() / 1_000) != Lease::Held
    }

    /// Returns the units to the store as they become free, because the group is dropped.
    pub(super) fn leave(&mut self, meter: &Meter) {
        if self.hold.units() == 0 && meter.used() == 0 {
            return;
        }
        let call = self.hold.leave(meter.used(), meter.now() / 1_000);
        let free_ms = if meter.used() == 0 { 0 } else { meter.reset() / 1_000 + 1 };
        self.sink.leave(LeaveMessage { call, free_ms });
    }
}

/// Cool-down of a used unit, in milliseconds. A bucket is full after it.
pub(super) fn cool_down_ms(rule: &Rule) -> u64 {
    let cool_down = match &rule.refill {
        Refill::Sliding { window } => *window,
        Refill::Windows { schedule, .. } => schedule.length().unwrap_or_default(),
        Refill::Bucket { window, burst } => {
            let full = u128::from(*window) * u128::from(*burst) / u128::from(rule.limit.max(1));
            u64::try_from(full).unwrap_or(u64::MAX)
        }
        Refill::Slots => 0,
    };
    cool_down.div_ceil(1_000)
}

fn longer(micros: u64) -> u64 {
    micros.saturating_add(micros.div_ceil(DRIFT_PARTS)).saturating_add(1_000)
}

fn greatest_common_divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { greatest_common_divisor(b, a % b) }
}
