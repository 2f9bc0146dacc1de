//! The member's side of a group whose units are lent in blocks: those of a long window. A unit that was lent
//! counts as used until the window ends, whatever happens to the member, so no lease limits its use.

use super::message::{ClockCheck, GroupCall, GroupKey, GroupReply, WindowCall};

/// A block lasts for this time at the present demand.
const BLOCK_MS: u64 = 250;
/// Unused units are returned after this time without demand.
const QUIET_MS: u64 = 1_000;

/// The units of a window that a member was lent.
#[derive(Debug, Clone)]
pub struct Block {
    key: GroupKey,
    limit: u64,
    window: WindowCall,
    generation: u64,
    /// Units lent or used in this window.
    has: u64,
    /// Units used in this window, and those in transit when it began.
    used: u64,
    /// Units for which calls were refused since the last call to the store.
    refused: u64,
    /// The use and the time at the last call, which tell the demand.
    used_then: u64,
    asked_ms: u64,
    /// Time of the last use or refusal.
    busy_ms: u64,
}

impl Block {
    /// Creates a block without units, before the first window.
    pub fn new(key: GroupKey, limit: u64) -> Self {
        let window = WindowCall { begin_ms: 0, end_ms: 0, total: 0 };
        Self {
            key,
            limit,
            window,
            generation: 0,
            has: 0,
            used: 0,
            refused: 0,
            used_then: 0,
            asked_ms: 0,
            busy_ms: 0,
        }
    }

    /// Begins the window from `begin_ms` to `end_ms`. Units in transit may be counted in it too.
    pub fn begin(&mut self, begin_ms: u64, end_ms: u64, transit: u64) {
        if begin_ms > self.window.begin_ms {
            self.window = WindowCall { begin_ms, end_ms, total: 0 };
            self.has = transit;
            self.used = transit;
            self.used_then = transit;
        }
    }

    /// Applies another limit.
    pub fn set_limit(&mut self, limit: u64) {
        self.limit = limit;
    }

    /// Units used in this window.
    pub fn used(&self) -> u64 {
        self.used
    }

    /// Units that are lent and not used. Those of a window that may not have begun, or may be over, are void.
    pub fn free(&self, store: ClockCheck) -> u64 {
        let is_now = self.window.begin_ms <= store.earliest_ms && store.latest_ms < self.window.end_ms;
        if is_now { self.has.saturating_sub(self.used) } else { 0 }
    }

    /// Uses units.
    pub fn take(&mut self, units: u64, now_ms: u64) {
        self.used = self.used.saturating_add(units);
        self.has = self.has.max(self.used);
        self.busy_ms = now_ms;
    }

    /// Notes that units were refused.
    pub fn refuse(&mut self, units: u64, now_ms: u64) {
        self.refused = self.refused.saturating_add(units);
        self.busy_ms = now_ms;
    }

    /// Returns `true` if a call to the store should not wait for the renewal.
    pub fn is_urgent(&self, generation: u64, now_ms: u64) -> bool {
        if generation != self.generation {
            return self.has > 0 || self.refused > 0;
        }
        let left = self.has.saturating_sub(self.used);
        let is_full = self.window.total >= self.limit;
        (self.refused > 0 && !is_full) || (left > 0 && now_ms >= self.busy_ms + QUIET_MS)
    }

    /// Creates the part of a call about this group.
    pub fn call(&mut self, now_ms: u64) -> GroupCall {
        let is_quiet = now_ms >= self.busy_ms + QUIET_MS;
        let want = if is_quiet { self.used } else { self.used + self.block(now_ms).max(self.refused) };
        // Unused units stay unless there is no demand: giving them back to get them again helps nobody.
        self.has = if is_quiet { self.used } else { self.has.max(self.used) };
        (self.used_then, self.asked_ms, self.refused) = (self.used, now_ms, 0);
        let Self { generation, limit, has, window, .. } = *self;
        let (key, want) = (self.key.clone(), want.max(has));
        GroupCall { key, generation, limit, cool_ms: 0, keeps: false, has, want, window: Some(window) }
    }

    /// Handles the reply to the last call, which came from this generation and was about the window that
    /// began at `begin_ms`.
    pub fn answered(&mut self, reply: &GroupReply, generation: u64, begin_ms: u64) {
        self.generation = generation;
        if begin_ms == self.window.begin_ms {
            self.has = reply.hold.max(self.used);
            self.window.total = reply.total;
        }
    }

    /// The units for the next moments.
    fn block(&self, now_ms: u64) -> u64 {
        let since_ms = now_ms.saturating_sub(self.asked_ms).max(1);
        (self.used.saturating_sub(self.used_then) * BLOCK_MS / since_ms).max(1)
    }
}
