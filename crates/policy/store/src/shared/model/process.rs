//! A gateway of the model: a session, one group, and the calls that use its units.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::provider::{Kind, WINDOW_MS};
use crate::shared::terms::{CALL_TIMEOUT_MS, more};
use crate::shared::{Block, Call, CallReply, Demand, GroupCall, Hold, Lease, Session, Terms, WakeUpHint};

/// A bucket fills slower by one part in this number, because the clock may be fast.
const DRIFT_PARTS: u64 = 400;

/// The behavior of a gateway's clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Load {
    /// As many calls wait as there are units.
    All,
    /// Calls arrive by themselves, and wait.
    Arrivals,
    /// Calls arrive by themselves, and are refused if no unit is free.
    Refusals,
    Idle,
}

/// An answer of the provider.
#[derive(Debug, Clone, Copy, Default)]
pub struct Answer {
    /// `true` if the call was above the limit and not counted.
    pub is_refused: bool,
    /// Units left, and the time until the count restarts, if the provider tells.
    pub left: Option<(u64, u64)>,
}

/// The units of a group in use, as the gateway counts them.
#[derive(Debug)]
struct Meter {
    kind: Kind,
    transit: u64,
    /// Units by the time at which they come back: by the gateway's clock, or by the store's for windows.
    cooling: BTreeMap<u64, u64>,
    /// The sum of `cooling`.
    cooling_units: u64,
    /// The debt of a bucket, in units times the window times `DRIFT_PARTS`.
    debt: u64,
    drained_ms: u64,
}

#[derive(Debug)]
pub struct Process {
    pub instance: u64,
    pub session: Session,
    terms: Terms,
    hold: Hold,
    block: Block,
    meter: Meter,
    pub load: Load,
    pub waiting: u64,
    /// Calls refused since the last call to the store.
    refused: u64,
    limit: u64,
    sent_ms: Option<u64>,
    begin_ms: u64,
    last_ms: u64,
    renew_ms: u64,
    is_hinted: bool,
    pub is_leaving: bool,
}

impl Process {
    pub fn new(terms: Terms, name: &str, instance: u64, kind: Kind, limit: u64) -> Self {
        let key: Arc<[u8]> = b"group".as_slice().into();
        let meter =
            Meter { kind, transit: 0, cooling: BTreeMap::new(), cooling_units: 0, debt: 0, drained_ms: 0 };
        Self {
            instance,
            session: Session::new(terms, name.into(), instance),
            terms,
            hold: Hold::new(key.clone(), limit, kind.cool_down_ms(), true),
            block: Block::new(key, limit),
            meter,
            load: Load::Idle,
            waiting: 0,
            refused: 0,
            limit,
            sent_ms: None,
            begin_ms: 0,
            last_ms: 0,
            renew_ms: 0,
            is_hinted: false,
            is_leaving: false,
        }
    }

    fn lease(&self, now_ms: u64) -> Lease {
        self.session.lease(now_ms)
    }

    /// Updates the time.
    pub fn advance(&mut self, now_ms: u64) {
        let lease = self.lease(now_ms);
        let filling = self.hold.filling(lease, self.hold.usable(lease), self.meter.used());
        let Some(store) = self.session.store_time(now_ms) else { return };
        let meter = &mut self.meter;
        match meter.kind {
            Kind::Sliding => meter.expire(now_ms),
            Kind::Fixed => meter.expire(store.earliest_ms),
            Kind::Bucket => {
                let drained = filling * (DRIFT_PARTS - 1) * now_ms.saturating_sub(meter.drained_ms);
                meter.debt = meter.debt.saturating_sub(drained);
                meter.drained_ms = now_ms;
            }
            Kind::Blocks => {
                let window_ms = meter.kind.window_ms();
                let begin_ms = store.earliest_ms / window_ms * window_ms;
                self.block.begin(begin_ms, begin_ms + window_ms);
            }
            Kind::Concurrency => {}
        }
    }

    /// Units held.
    pub fn held(&self) -> u64 {
        self.hold.units()
    }

    /// Units in use.
    pub fn used(&self) -> u64 {
        match self.meter.kind {
            Kind::Blocks => self.block.used(),
            _ => self.meter.used(),
        }
    }

    /// Units that are in use, or that may be. A process that was stopped counts its calls too late.
    pub fn exposure(&self, was_stopped: bool, now_ms: u64) -> u64 {
        let usable = self.hold.usable(self.lease(now_ms));
        match self.meter.kind {
            Kind::Blocks => 0,
            _ if was_stopped => usable,
            _ => usable.max(self.used()),
        }
    }

    fn free(&self, now_ms: u64) -> u64 {
        match (self.meter.kind, self.session.store_time(now_ms)) {
            (_, None) => 0,
            (Kind::Blocks, Some(store)) => self.block.free(store, self.lease(now_ms)),
            _ => self.hold.usable(self.lease(now_ms)).saturating_sub(self.used()),
        }
    }

    /// Takes the units that are free and wanted. Returns their number.
    pub fn take(&mut self, now_ms: u64) -> u64 {
        if self.is_leaving {
            return 0;
        }
        let wanted = if self.load == Load::All { u64::MAX } else { self.waiting };
        let taken = self.free(now_ms).min(wanted);
        self.waiting = self.waiting.saturating_sub(taken);
        if self.load == Load::Refusals {
            self.refused += std::mem::take(&mut self.waiting);
        }
        self.meter.transit += taken;
        if self.meter.kind == Kind::Blocks {
            if taken > 0 {
                self.block.take(taken, now_ms);
            } else if wanted > 0 {
                self.block.refuse(1, now_ms);
            }
        }
        taken
    }

    /// Handles the refusal of a call that the provider did not count.
    fn refused(&mut self) {
        self.meter.transit -= 1;
        self.block.give_back(1);
    }

    /// Handles the answer to a call.
    pub fn answered(&mut self, answer: Answer, now_ms: u64) {
        self.advance(now_ms);
        if let Some((remaining, reset_in_ms)) = answer.left {
            self.hold.report(remaining, now_ms + reset_in_ms);
            self.block.report(remaining, now_ms + reset_in_ms);
        }
        if answer.is_refused { self.refused() } else { self.answer(now_ms) }
    }

    /// Counts a call.
    fn answer(&mut self, now_ms: u64) {
        let store = self.session.store_time(now_ms);
        let meter = &mut self.meter;
        meter.transit -= 1;
        match (meter.kind, store) {
            (Kind::Sliding, _) => meter.cool(now_ms + more(WINDOW_MS) + 1),
            (Kind::Fixed, Some(store)) => {
                meter.cool((store.latest_ms / WINDOW_MS + 1) * WINDOW_MS);
            }
            (Kind::Blocks, Some(store)) => self.block.finish(1, store),
            (Kind::Bucket, _) => meter.debt += WINDOW_MS * DRIFT_PARTS,
            _ => {}
        }
    }

    fn demand(&self) -> Demand {
        let waiting = match self.load {
            _ if self.is_leaving => 0,
            Load::All => self.limit,
            _ => self.waiting + self.refused,
        };
        Demand { used: self.used(), waiting }
    }

    pub fn hinted(&mut self, hint: WakeUpHint) {
        self.is_hinted |= hint.concerns(self.instance) && self.hold.accepts(hint);
    }

    /// Returns `true` if it is time for a call to the store.
    pub fn is_due(&self, now_ms: u64) -> bool {
        if self.is_leaving {
            return self.meter.transit == 0;
        }
        let is_waiting = self.sent_ms.is_some_and(|sent_ms| now_ms < sent_ms + CALL_TIMEOUT_MS);
        if is_waiting || now_ms < self.last_ms + self.terms.gap_ms {
            return false;
        }
        let generation = self.session.generation();
        let is_urgent = match self.meter.kind {
            Kind::Blocks => self.block.is_urgent(generation, now_ms),
            _ => self.hold.is_urgent(self.demand(), generation),
        };
        now_ms >= self.renew_ms || self.is_hinted || is_urgent || self.sent_ms.is_some()
    }

    /// Creates a call. `jitter` is between 0 and 200.
    pub fn call(&mut self, incarnation: &Arc<str>, nonce: u64, jitter: u64, now_ms: u64) -> Call {
        let groups = self.group_call(now_ms).into_iter().collect();
        self.sent_ms = Some(now_ms);
        self.last_ms = now_ms;
        self.renew_ms = now_ms + self.terms.renewal_ms * (900 + jitter) / 1_000;
        self.is_hinted = false;
        self.refused = 0;
        self.session.call(incarnation.clone(), nonce, groups, self.is_leaving, now_ms)
    }

    fn group_call(&mut self, now_ms: u64) -> Option<GroupCall> {
        if self.meter.kind == Kind::Blocks {
            self.session.store_time(now_ms)?;
            self.begin_ms = self.block.window_ms().0;
            return Some(if self.is_leaving { self.block.leave(now_ms) } else { self.block.call(now_ms) });
        }
        let (demand, lease) = (self.demand(), self.lease(now_ms));
        let is_known = self.hold.is_known(demand, self.session.generation(), now_ms);
        if is_known && lease == Lease::Held && !self.is_hinted && self.hold.usable(lease) >= self.hold.units()
        {
            return None;
        }
        Some(self.hold.call(demand, lease, self.session.member_count(), now_ms))
    }

    /// Begin of the window that the process is in.
    pub fn window_begin_ms(&self) -> u64 {
        self.block.window_ms().0
    }

    /// Handles a reply. Returns `true` if it was in time.
    pub fn replied(&mut self, seq: u64, reply: &CallReply, now_ms: u64) -> bool {
        self.advance(now_ms);
        if !self.session.answered(seq, reply, now_ms) {
            return false;
        }
        self.sent_ms = None;
        let Some(units) = reply.groups.first() else { return true };
        match self.meter.kind {
            Kind::Blocks => self.block.answered(units, reply.generation, self.begin_ms),
            _ => self.hold.answered(units, reply.generation, reply.view.member_count),
        }
        true
    }
}

impl Meter {
    /// Keeps one unit until this time.
    fn cool(&mut self, until_ms: u64) {
        *self.cooling.entry(until_ms).or_default() += 1;
        self.cooling_units += 1;
    }

    fn expire(&mut self, now_ms: u64) {
        while let Some(oldest) = self.cooling.first_entry()
            && *oldest.key() <= now_ms
        {
            self.cooling_units -= oldest.remove();
        }
    }

    fn used(&self) -> u64 {
        self.transit + self.cooling_units + self.debt.div_ceil(WINDOW_MS * DRIFT_PARTS)
    }
}
