//! The member's side of a group whose units are lent in blocks: those of a long window. A unit that was lent
//! counts as used until the window ends, whatever happens to the member.
//!
//! A call in transit at the end of a window may count in the next one too. So the member begins a window with
//! those calls, and the store counts all that may be in transit until the member calls with the number of
//! those that are.

use super::lease::Lease;
use super::message::{ClockCheck, GroupCall, GroupKey, GroupReply, WindowCall};
use super::report::PendingReport;

/// A block lasts for this time at the present demand.
const BLOCK_MS: u64 = 250;
/// Unused units are returned after this time without demand.
const QUIET_MS: u64 = 1_000;
/// A renewal lists a window in use at least this often. The total that the member hears then is what the
/// cluster knows if the store loses it.
const SILENT_MAX_MS: u64 = 3_000;

/// The units of a window that a member was lent.
#[derive(Debug, Clone, Default)]
pub struct Block {
    key: GroupKey,
    limit: u64,
    window: WindowCall,
    generation: u64,
    /// Units lent or used in this window.
    has: u64,
    /// Units used in this window, and those that were in transit when it began.
    used: u64,
    /// Units of calls in transit.
    transit: u64,
    /// Units of calls that ended when the next window may have begun.
    late: u64,
    /// Units for which calls were refused since the last call to the store.
    refused: u64,
    /// `true` if the store has just said that it lends nothing.
    is_closed: bool,
    /// The use and the time at the last call, which show the demand.
    used_then: u64,
    asked_ms: u64,
    /// Time of the last use or refusal.
    busy_ms: u64,
    report: PendingReport,
}

impl Block {
    /// Creates a block without units, before the first window.
    pub fn new(key: GroupKey, limit: u64) -> Self {
        Self { key, limit, ..Self::default() }
    }

    /// Begins the window from `begin_ms` to `end_ms`, if it is a later one. Call it with the window of the
    /// earliest time that the store's clock may show.
    pub fn begin(&mut self, begin_ms: u64, end_ms: u64) {
        if begin_ms > self.window.begin_ms {
            self.window = WindowCall { begin_ms, end_ms, ..WindowCall::default() };
            self.has = self.transit + std::mem::take(&mut self.late);
            self.used = self.has;
            self.used_then = self.has;
            self.is_closed = false;
        }
    }

    /// Applies another limit.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// The key of the group.
    pub fn key(&self) -> &GroupKey {
        &self.key
    }

    /// Begin and end of the window in milliseconds since the epoch, by the store's clock.
    pub fn window_ms(&self) -> (u64, u64) {
        (self.window.begin_ms, self.window.end_ms)
    }

    /// Units used or lent in the window, in the whole cluster, by the last reply.
    pub fn total(&self) -> u64 {
        self.window.total
    }

    /// Units used in this window.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Units that are lent and not used. Those of a window that may not have begun, or may be over, are void.
    /// A member that was cut off for too long uses none, because the store may have forgotten it.
    pub fn free(&self, store: ClockCheck, lease: Lease) -> u64 {
        let is_now = self.window.begin_ms <= store.earliest_ms && store.latest_ms < self.window.end_ms;
        if is_now && lease != Lease::Over { self.has.saturating_sub(self.used) } else { 0 }
    }

    /// Uses units for a call.
    pub fn take(&mut self, units: u64, now_ms: u64) {
        self.used = self.used.saturating_add(units);
        self.has = self.has.max(self.used);
        self.transit = self.transit.saturating_add(units);
        self.busy_ms = now_ms;
    }

    /// Ends calls: the provider has counted their units.
    pub fn finish(&mut self, units: u64, store: ClockCheck) {
        self.transit = self.transit.saturating_sub(units);
        if store.latest_ms >= self.window.end_ms {
            self.late = self.late.saturating_add(units);
        }
    }

    /// Gives units back that the provider did not count.
    pub fn give_back(&mut self, units: u64) {
        self.transit = self.transit.saturating_sub(units);
        self.used = self.used.saturating_sub(units);
    }

    /// Gives units back that an ended call turned out not to cost.
    pub fn refund(&mut self, units: u64) {
        self.used = self.used.saturating_sub(units);
    }

    /// Notes that units were refused.
    pub fn refuse(&mut self, units: u64, now_ms: u64) {
        self.refused = self.refused.saturating_add(units);
        self.busy_ms = now_ms;
    }

    /// Notes the provider's own count: `remaining` units until `reset_ms`, by the member's clock.
    pub fn report(&mut self, remaining: u64, reset_ms: u64) {
        self.report.note(remaining, reset_ms);
    }

    /// Returns `true` if a call to the store should not wait for the renewal.
    pub fn is_urgent(&self, generation: u64, now_ms: u64) -> bool {
        if generation != self.generation {
            return self.has > 0 || self.refused > 0 || self.window.total > 0;
        }
        let left = self.has.saturating_sub(self.used);
        let is_quiet = now_ms >= self.busy_ms + QUIET_MS;
        (self.refused > 0 && !self.is_closed) || (left > 0 && is_quiet)
    }

    /// Returns `true` if a renewal need not list this group: the store knows all about it.
    pub fn is_known(&self, generation: u64, now_ms: u64) -> bool {
        let is_in_use = self.has > 0 || self.window.total > 0;
        let is_recent = generation == self.generation && now_ms < self.asked_ms + SILENT_MAX_MS;
        let is_same = self.has == self.window.known && self.used == self.used_then;
        self.refused == 0 && !self.report.is_some() && (!is_in_use || (is_recent && is_same))
    }

    /// Creates the part of a call about this group.
    pub fn call(&mut self, now_ms: u64) -> GroupCall {
        let is_quiet = now_ms >= self.busy_ms + QUIET_MS;
        let block = if is_quiet { 0 } else { self.block(now_ms).max(self.refused) };
        let want = self.used.saturating_add(block);
        // Unused units stay unless there is no demand: giving them back to get them again helps nobody.
        self.has = if is_quiet { self.used } else { self.has.max(self.used) };
        self.window.known = self.window.known.min(self.has);
        self.window.settled = self.used.saturating_sub(self.transit.saturating_add(self.late));
        (self.used_then, self.asked_ms, self.refused) = (self.used, now_ms, 0);
        GroupCall {
            key: self.key.clone(),
            generation: self.generation,
            limit: self.limit,
            cool_down_ms: 0,
            has_fallback: false,
            has: self.has,
            want: want.max(self.has),
            used: self.used,
            report: self.report.take(now_ms),
            window: Some(self.window),
        }
    }

    /// Creates the part of the last call, which returns all units that are not used.
    pub fn leave(&mut self, now_ms: u64) -> GroupCall {
        self.busy_ms = 0;
        self.call(now_ms)
    }

    /// Handles the reply to the last call, which came from this generation and was about the window that
    /// began at `begin_ms`.
    pub fn answered(&mut self, reply: &GroupReply, generation: u64, begin_ms: u64) {
        self.generation = generation;
        if begin_ms == self.window.begin_ms {
            self.has = reply.hold.max(self.used);
            self.window.known = reply.hold;
            self.window.total = reply.total;
            self.is_closed = reply.pool <= 0 || reply.recovery_ms > 0;
        }
    }

    /// The units for the next moments.
    fn block(&self, now_ms: u64) -> u64 {
        let since_ms = now_ms.saturating_sub(self.asked_ms).max(1);
        (self.used.saturating_sub(self.used_then) * BLOCK_MS / since_ms).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STORE: ClockCheck = ClockCheck { earliest_ms: 60_010, latest_ms: 60_020 };

    fn reply(hold: u64, total: u64) -> GroupReply {
        GroupReply { hold, cap: u64::MAX, pool: 1, recovery_ms: 0, total, differs: false }
    }

    /// A block of 10 units in the window from 60 s to 120 s.
    fn block() -> Block {
        let mut block = Block::new(b"group".as_slice().into(), 1_000);
        block.begin(60_000, 120_000);
        block.refuse(1, 5_000);
        assert_eq!(block.call(5_000).want, 1);
        block.answered(&reply(10, 40), 7, 60_000);
        block
    }

    #[test]
    fn units_are_free_in_their_window_alone_and_while_the_lease_lasts() {
        let block = block();
        let at = |earliest_ms, latest_ms| ClockCheck { earliest_ms, latest_ms };
        assert_eq!(block.free(STORE, Lease::Held), 10);
        assert_eq!(block.free(STORE, Lease::Fallback(4)), 10);
        assert_eq!(block.free(STORE, Lease::Over), 0);
        assert_eq!(block.free(at(59_999, 60_005), Lease::Held), 0);
        assert_eq!(block.free(at(119_990, 120_000), Lease::Held), 0);
    }

    #[test]
    fn a_window_begins_with_the_calls_that_it_may_count() {
        let mut block = block();
        block.take(3, 5_100);
        block.finish(1, STORE);
        block.finish(1, ClockCheck { earliest_ms: 119_995, latest_ms: 120_001 });
        let window = block.call(5_200).window.unwrap();
        assert_eq!((window.total, window.known, window.settled), (40, 10, 1));
        block.begin(120_000, 180_000);
        let call = block.call(5_300);
        assert_eq!((call.has, call.used), (2, 2));
        assert_eq!(call.window.map(|window| (window.total, window.known)), Some((0, 0)));
    }

    #[test]
    fn unused_units_go_back_after_a_second_of_quiet() {
        let mut block = block();
        block.take(4, 5_100);
        assert!(!block.is_urgent(7, 6_099));
        assert!(block.is_urgent(7, 6_100));
        let call = block.call(6_100);
        assert_eq!((call.has, call.want, call.used), (4, 4, 4));
        assert_eq!(block.free(STORE, Lease::Held), 0);
    }

    #[test]
    fn a_call_that_the_provider_did_not_count_gives_its_unit_back() {
        let mut block = block();
        block.take(4, 5_100);
        block.give_back(1);
        assert_eq!((block.used(), block.free(STORE, Lease::Held)), (3, 7));
        assert_eq!(block.call(5_200).window.map(|window| window.settled), Some(0));
    }

    #[test]
    fn a_renewal_lists_a_used_window_at_intervals() {
        let mut block = block();
        assert!(block.is_known(7, 5_001) && !block.is_known(7, 8_000) && !block.is_known(8, 5_001));
        assert!(block.is_urgent(8, 5_001), "another generation must hear of the units");
        block.refuse(1, 5_100);
        assert!(!block.is_known(7, 5_101) && block.is_urgent(7, 5_101));
    }
}
