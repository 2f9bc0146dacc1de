//! The member's side of one group: the units that it holds, and how many it wants.

use super::lease::Lease;
use super::message::{GroupCall, GroupKey, GroupReply, WakeUpHint};
use super::report::PendingReport;

/// Time in which the remembered peak of the demand halves.
const HALVING_MS: u64 = 1_000;
/// A renewal lists a hold at least this often, in case a message about it was lost.
const SILENT_MAX_MS: u64 = 3_000;

/// Beyond its demand, a member holds the units that nobody holds, divided by this and by the number of
/// members. So calls need not wait when there are more of them than a moment ago.
const RESERVE_PARTS: u64 = 4;

/// The demand for a group's units at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Demand {
    /// Units in use: of calls in transit, and those in their cool-down.
    pub used: u64,
    /// Units that calls wait for, or were refused since the last call to the store.
    pub waiting: u64,
}

/// The units of a group that a member holds.
#[derive(Debug, Clone, Default)]
pub struct Hold {
    key: GroupKey,
    limit: u64,
    cool_down_ms: u64,
    has_fallback: bool,
    held: u64,
    cap: u64,
    /// The peak of the demand, and the time at which it was last changed.
    peak: u64,
    peak_ms: u64,
    /// Units wanted beyond the demand.
    reserve: u64,
    /// Units that nobody held and that could be lent, by the last reply.
    pool: u64,
    /// The generation of the last reply about this group; 0 if the store does not know it.
    generation: u64,
    /// The hold and the want that the store knows.
    known: (u64, u64),
    /// The want in the last call, and its time.
    sent: u64,
    sent_ms: u64,
    report: PendingReport,
}

impl Hold {
    /// Creates a hold without units.
    pub fn new(key: GroupKey, limit: u64, cool_down_ms: u64, has_fallback: bool) -> Self {
        Self { key, limit, cool_down_ms, has_fallback, cap: u64::MAX, ..Self::default() }
    }

    /// Applies another limit.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The key of the group.
    pub fn key(&self) -> &GroupKey {
        &self.key
    }

    /// Units held.
    pub fn units(&self) -> u64 {
        self.held
    }

    /// Units that are this member's, whether it may use them or should return some.
    fn owned(&self, lease: Lease) -> u64 {
        lease.usable(self.held, self.limit, self.has_fallback)
    }

    /// Units at whose share of the rate a bucket fills, of which `used` are in use and `usable` may be. While
    /// a member that is cut off uses more than it may, it takes none, and the store counts all that it held:
    /// so all of this fills.
    pub fn filling(&self, lease: Lease, usable: u64, used: u64) -> u64 {
        match lease {
            Lease::Held => self.held,
            _ if used > usable => self.held.max(usable),
            _ => usable,
        }
    }

    /// Units that may be in use at the same time.
    pub fn usable(&self, lease: Lease) -> u64 {
        self.owned(lease).min(self.cap).min(self.limit)
    }

    /// Returns `true` if a call to the store should not wait for the renewal: units must be returned, or more
    /// are wanted than the store knows of.
    pub fn is_urgent(&self, demand: Demand, generation: u64) -> bool {
        if generation != self.generation {
            return demand.waiting > 0 || self.held > 0;
        }
        let (_, want) = self.known;
        // Others wait for what is not in use here. It is returned in halves, so there are few calls.
        let is_idle = self.cap != u64::MAX && demand.waiting == 0 && demand.used < self.held / 2;
        let returns = is_idle || (self.held > self.cap && demand.used < self.held);
        let wanted = demand.used.saturating_add(demand.waiting);
        let is_news = wanted > want.saturating_add(want / 4) || (self.may_grow() && wanted > self.held);
        returns || (demand.waiting > 0 && is_news && want < self.limit)
    }

    /// Returns `true` if a renewal need not list this hold: the store knows all about it, and there is enough
    /// for all.
    pub fn is_known(&self, demand: Demand, generation: u64, now_ms: u64) -> bool {
        let want = self.want(demand, now_ms);
        let is_enough = self.cap == u64::MAX && self.held >= want;
        let is_recent = now_ms < self.sent_ms + SILENT_MAX_MS || (self.held == 0 && want == 0);
        is_enough
            && is_recent
            && !self.report.is_some()
            && generation == self.generation
            && self.known == (self.has(demand, Lease::Held, want), want)
    }

    /// Returns `true` if the store had units to lend when it was called last.
    pub fn may_grow(&self) -> bool {
        self.pool > 0
    }

    /// Returns `true` if this member accepts a hint. If others are short of units, it gives up its reserve.
    pub fn accepts(&mut self, hint: WakeUpHint) -> bool {
        match hint {
            WakeUpHint::Short => {
                self.reserve = 0;
                self.held > 0
            }
            WakeUpHint::Freed(_) => self.held < self.known.1,
        }
    }

    /// Notes the provider's own count: `remaining` units until `reset_ms`, by the member's clock.
    pub fn report(&mut self, remaining: u64, reset_ms: u64) {
        self.report.note(remaining, reset_ms);
    }

    /// Creates the part of a call about this group, in a cluster of so many members. Free units that are not
    /// wanted are given up at once.
    pub fn call(&mut self, demand: Demand, lease: Lease, members: u64, now_ms: u64) -> GroupCall {
        if self.held == 0 && self.cap == u64::MAX && members > 0 {
            // What it knows of the pool may be old, so it assumes that nobody holds anything.
            self.reserve = self.limit / members / RESERVE_PARTS;
        }
        let peak = self.recent_peak(demand, now_ms);
        if peak != self.peak {
            self.peak = peak;
            self.peak_ms = now_ms;
        }
        let want = self.with_reserve(peak);
        self.held = self.has(demand, lease, want);
        (self.sent, self.sent_ms) = (want, now_ms);
        let Self { generation, limit, cool_down_ms, has_fallback, held: has, .. } = *self;
        let (key, used, report) = (self.key.clone(), demand.used, self.report.take(now_ms));
        GroupCall {
            key,
            generation,
            limit,
            cool_down_ms,
            has_fallback,
            has,
            want,
            used,
            report,
            window: None,
        }
    }

    /// Creates the part of the last call, which returns all units that are not in use.
    pub fn leave(&mut self, used: u64, now_ms: u64) -> GroupCall {
        self.peak = 0;
        self.reserve = 0;
        self.cap = 0;
        self.call(Demand { used, waiting: 0 }, Lease::Over, 0, now_ms)
    }

    /// Handles the reply to the last call, which came from this generation with so many members.
    pub fn answered(&mut self, reply: &GroupReply, generation: u64, members: u64) {
        self.held = reply.hold;
        self.cap = reply.cap;
        self.generation = generation;
        self.known = (reply.hold, self.sent);
        let lends = reply.cap == u64::MAX && reply.recovery_ms == 0;
        self.pool = if lends { u64::try_from(reply.pool).unwrap_or(0) } else { 0 };
        self.reserve = self.reserve_among(members);
    }

    /// The units that it should hold beyond its demand. Small changes are not worth a call.
    fn reserve_among(&self, members: u64) -> u64 {
        if !self.may_grow() {
            return 0;
        }
        let part = self.pool.saturating_add(self.reserve) / members.max(1) / RESERVE_PARTS;
        if part.abs_diff(self.reserve) <= self.reserve / 4 { self.reserve } else { part }
    }

    fn has(&self, demand: Demand, lease: Lease, want: u64) -> u64 {
        demand.used.max(self.owned(lease).min(self.cap).min(want))
    }

    /// The units that the member could use. It needs no reserve while nobody calls.
    fn want(&self, demand: Demand, now_ms: u64) -> u64 {
        self.with_reserve(self.recent_peak(demand, now_ms))
    }

    fn with_reserve(&self, peak: u64) -> u64 {
        let reserve = if peak == 0 { 0 } else { self.reserve };
        peak.saturating_add(reserve).min(self.limit)
    }

    /// The demand, or a recent peak of it.
    fn recent_peak(&self, demand: Demand, now_ms: u64) -> u64 {
        let current = demand.used.saturating_add(demand.waiting);
        let halvings = u32::try_from(now_ms.saturating_sub(self.peak_ms) / HALVING_MS).unwrap_or(u32::MAX);
        let peak = self.peak.checked_shr(halvings).unwrap_or(0);
        let is_quiet = demand.waiting == 0 && demand.used < self.held.div_ceil(2);
        let peak = if is_quiet { peak.min(demand.used.saturating_mul(2)) } else { peak };
        current.max(peak).min(self.limit)
    }
}
