//! The world of the model: gateways, a store, a provider, and a network between them that loses, delays and
//! repeats messages. Time passes from event to event.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use egret_fake_redis::Keys;

use super::allocator::Allocator;
use super::loans::{Loans, ReplyIndex};
use super::process::{Answer, Load, Process};
use super::provider::{Kind, Provider, WINDOW_MS};
use super::shares::Shares;
use crate::shared::{AllocatorReply, Call, CallReply, Terms, WakeUpHint};

/// The durations of the model; short ones, so histories are short.
pub const TERMS: Terms = Terms {
    ttl_ms: 3_000,
    renewal_ms: 1_000,
    gap_ms: 100,
    settle_time_ms: 1_000,
    recovery_ms: 6_000,
    fallback_ms: 20_000,
    turn_ms: 3_000,
};
/// Time between two looks of a gateway at its clock.
const TICK_MS: u64 = 5;
/// A process is started at this time of its clock, at the earliest.
const UPTIME_MS: u64 = 1_000_000;
/// The store's clock at the beginning; a multiple of all windows.
const EPOCH_MS: u64 = 1_000_000_000;

/// An event that disturbs the cluster.
#[derive(Debug, Clone, Copy)]
pub enum Fault {
    /// A gateway dies, and starts again later.
    Kill { slot: usize, down_ms: u64 },
    /// A gateway drains, leaves, and starts again with another limit.
    Restart { slot: usize, limit: u64 },
    /// A gateway is stopped and goes on later.
    Stop { slot: usize, for_ms: u64 },
    /// No message gets through between a gateway and the store.
    Cut { slot: usize, for_ms: u64 },
    /// The store is stopped, or cannot be reached.
    Away { for_ms: u64 },
    /// Another process takes over with an older state.
    Failover { lost_ms: u64 },
    /// The store is empty and a new process.
    Empty,
    /// The store's clock is set.
    Step { by_ms: i64 },
    /// The clients of a gateway change.
    Load { slot: usize, load: Load },
}

#[derive(Debug)]
enum Event {
    Tick,
    Arrive,
    Call {
        slot: usize,
        call: Box<Call>,
    },
    Reply {
        slot: usize,
        instance: u64,
        seq: u64,
        reply: Box<CallReply>,
        loan: Option<(u64, ReplyIndex)>,
    },
    Hint {
        slot: usize,
        hint: WakeUpHint,
    },
    Count {
        id: u64,
        instance: u64,
        begin_ms: u64,
    },
    Answer {
        id: u64,
        slot: usize,
        instance: u64,
    },
    /// A call from outside the cluster.
    Outside,
    Start {
        slot: usize,
    },
    Fault(Fault),
    Snapshot,
}

/// A place for a gateway.
#[derive(Debug)]
struct Slot {
    process: Option<Process>,
    limit: u64,
    load: Load,
    /// Drift of the clock, in parts per million.
    drift: i64,
    stopped_until_ms: u64,
    cut_until_ms: u64,
    /// Answers that arrive while the process is stopped.
    late: Vec<Answer>,
}

#[derive(Debug)]
pub struct World {
    now_ms: u64,
    order: u64,
    events: BTreeMap<(u64, u64), Event>,
    random: u64,
    kind: Kind,
    limit_max: u64,
    slots: Vec<Slot>,
    allocator: Allocator,
    incarnation: Arc<str>,
    incarnations: u64,
    snapshots: Vec<Keys>,
    has_failovers: bool,
    offset_ms: i64,
    away_until_ms: u64,
    /// Chance in 1,000 that a message is lost.
    pub loss: u64,
    /// Calls that arrive at gateways that do not always have some, in percent of the limit.
    pub arrivals_percent: u64,
    /// Measures how the units are shared, from the time at which it is set.
    pub shares: Option<Shares>,
    pub provider: Provider,
    loans: Loans,
    /// The most by which the limit was exceeded, because the store has lost its state.
    pub excess: u64,
    /// Calls that were sent in a window before the one that counts them.
    pub carried: u64,
    /// Time between two calls from outside.
    outside_ms: u64,
    /// Calls of members that the provider has refused.
    pub refused: u64,
    refused_ids: HashSet<u64>,
    /// Calls to the store.
    pub calls: u64,
    /// Calls to the provider, by gateway.
    pub served: Vec<u64>,
}

impl World {
    pub fn new(kind: Kind, limit: u64, limit_max: u64, members: usize, seed: u64) -> Self {
        let mut world = Self {
            now_ms: 0,
            order: 0,
            events: BTreeMap::new(),
            random: seed,
            kind,
            limit_max,
            slots: Vec::new(),
            allocator: Allocator::new(),
            incarnation: "0".into(),
            incarnations: 0,
            snapshots: Vec::new(),
            has_failovers: false,
            offset_ms: 0,
            away_until_ms: 0,
            loss: 0,
            arrivals_percent: 80,
            shares: None,
            provider: Provider::new(kind, limit_max),
            loans: Loans::default(),
            excess: 0,
            carried: 0,
            outside_ms: 0,
            refused: 0,
            refused_ids: HashSet::new(),
            calls: 0,
            served: vec![0; members],
        };
        for slot in 0..members {
            let drift = i64::try_from(world.below(1_801)).unwrap_or(0) - 900;
            let load = Load::All;
            world.slots.push(Slot {
                process: None,
                limit,
                load,
                drift,
                stopped_until_ms: 0,
                cut_until_ms: 0,
                late: Vec::new(),
            });
            let delay = world.below(1_000);
            world.later(delay, Event::Start { slot });
        }
        world.later(0, Event::Tick);
        world.later(0, Event::Arrive);
        world.later(0, Event::Snapshot);
        world
    }

    /// Splitmix64.
    fn next(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn later(&mut self, delay_ms: u64, event: Event) {
        self.order += 1;
        self.events.insert((self.now_ms + delay_ms, self.order), event);
    }

    pub fn plan(&mut self, at_ms: u64, fault: Fault) {
        self.has_failovers |= matches!(fault, Fault::Failover { .. });
        self.later(at_ms, Event::Fault(fault));
    }

    fn local_ms(&self, slot: usize) -> u64 {
        let drifted = i64::try_from(self.now_ms).unwrap_or(0) * self.slots[slot].drift / 1_000_000;
        (UPTIME_MS + self.now_ms).saturating_add_signed(drifted)
    }

    fn store_ms(&self) -> u64 {
        (EPOCH_MS + self.now_ms).saturating_add_signed(self.offset_ms)
    }

    /// Lets time pass. Returns the first rule that was broken.
    pub fn run_until(&mut self, end_ms: u64) -> Result<(), String> {
        while let Some(entry) = self.events.first_entry() {
            if entry.key().0 > end_ms {
                break;
            }
            let ((at_ms, _), event) = entry.remove_entry();
            self.now_ms = at_ms;
            self.handle(event)?;
        }
        self.now_ms = end_ms;
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::Tick => {
                for slot in 0..self.slots.len() {
                    self.look(slot);
                }
                self.later(TICK_MS, Event::Tick);
                self.note_shares();
                return self.judge();
            }
            Event::Arrive => self.arrive(),
            Event::Call { slot, call } => return self.apply(slot, &call),
            Event::Reply { slot, instance, seq, reply, loan } => {
                let now_ms = self.local_ms(slot);
                if let Some(process) = self.running(slot, instance) {
                    let is_in_time = process.replied(seq, &reply, now_ms);
                    let begin_ms = process.window_begin_ms();
                    if let Some(loan) = loan.filter(|loan| is_in_time && loan.0 == begin_ms) {
                        self.loans.arrived(loan);
                    }
                    self.look(slot);
                }
            }
            Event::Hint { slot, hint } => {
                if let Some(process) = &mut self.slots[slot].process {
                    process.hinted(hint);
                }
                self.look(slot);
            }
            Event::Count { id, instance, begin_ms } => return self.count(id, instance, begin_ms),
            Event::Answer { id, slot, instance } => self.answer(id, slot, instance),
            Event::Outside => self.call_outside(),
            Event::Start { slot } => self.start(slot),
            Event::Fault(fault) => self.fault(fault),
            Event::Snapshot => {
                if !self.has_failovers {
                    return Ok(());
                }
                self.snapshots.push(self.allocator.keys());
                if self.snapshots.len() > 10 {
                    self.snapshots.remove(0);
                }
                self.later(100, Event::Snapshot);
            }
        }
        Ok(())
    }

    /// Counts a call at the provider, which was sent in the window that began at `sent_ms`.
    fn count(&mut self, id: u64, instance: u64, sent_ms: u64) -> Result<(), String> {
        let now_ms = EPOCH_MS + self.now_ms;
        let begin_ms = now_ms - now_ms % self.kind.window_ms();
        let is_blocks = self.kind == Kind::Blocks;
        if is_blocks && sent_ms < begin_ms {
            self.loans.carried(begin_ms, instance);
            self.carried += 1;
        }
        let excess = self.provider.count(now_ms);
        if excess > 0 && self.provider.refuses {
            self.refused += 1;
            self.refused_ids.insert(id);
            return Ok(());
        }
        let lost = if is_blocks && excess > 0 { self.loans.lost(begin_ms) } else { 0 };
        if excess > lost {
            return Err(format!("{excess} above the limit at {} ms, of which {lost} were lost", self.now_ms));
        }
        self.excess = self.excess.max(excess);
        Ok(())
    }

    /// Uses a share of the provider's limit from outside the cluster, in percent. The provider refuses calls
    /// above the limit, and may tell how many units are left.
    pub fn use_outside(&mut self, percent: u64, tells: bool) {
        self.provider.refuses = true;
        self.provider.tells = tells;
        self.outside_ms = self.kind.window_ms() * 100 / (percent * self.limit_max);
        self.later(0, Event::Outside);
    }

    fn call_outside(&mut self) {
        self.provider.count(EPOCH_MS + self.now_ms);
        self.later(self.outside_ms, Event::Outside);
    }

    fn note_shares(&mut self) {
        let Some(shares) = &mut self.shares else { return };
        let processes = || self.slots.iter().filter_map(|place| place.process.as_ref());
        let held: Vec<u64> = processes().map(Process::held).collect();
        shares.note(&held, processes().map(Process::used).sum(), self.limit_max);
    }

    /// The units in use and those that may be used are never more than the limit.
    fn judge(&self) -> Result<(), String> {
        let exposure = |(slot, place): (usize, &Slot)| {
            let was_stopped = place.stopped_until_ms + 2 * WINDOW_MS + TERMS.settle_time_ms > self.now_ms;
            place.process.as_ref().map_or(0, |process| process.exposure(was_stopped, self.local_ms(slot)))
        };
        let sum: u64 = self.slots.iter().enumerate().map(exposure).sum();
        if sum > self.limit_max {
            return Err(format!("{sum} units exist at {} ms", self.now_ms));
        }
        Ok(())
    }

    /// The process in a slot, if it is this one and runs.
    fn running(&mut self, slot: usize, instance: u64) -> Option<&mut Process> {
        let now_ms = self.now_ms;
        let place = &mut self.slots[slot];
        place
            .process
            .as_mut()
            .filter(|process| process.instance == instance && place.stopped_until_ms <= now_ms)
    }

    fn start(&mut self, slot: usize) {
        let instance = self.next();
        let place = &mut self.slots[slot];
        let mut process = Process::new(TERMS, &format!("member-{slot}"), instance, self.kind, place.limit);
        process.load = place.load;
        place.process = Some(process);
        place.late.clear();
    }

    /// A turn of a gateway's loop.
    fn look(&mut self, slot: usize) {
        let local_ms = self.local_ms(slot);
        let place = &mut self.slots[slot];
        if place.stopped_until_ms > self.now_ms {
            return;
        }
        let late = std::mem::take(&mut place.late);
        let Some(process) = &mut place.process else { return };
        for answer in late {
            process.answered(answer, local_ms);
        }
        process.advance(local_ms);
        let taken = process.take(local_ms);
        let (instance, is_due) = (process.instance, process.is_due(local_ms));
        let begin_ms = process.window_begin_ms();
        self.served[slot] += taken;
        for _ in 0..taken {
            let is_slow = self.below(200) == 0;
            let answered_ms = 1 + self.below(if is_slow { TERMS.settle_time_ms - 10 } else { 60 });
            let counted_ms = self.below(answered_ms + 1);
            let id = self.next();
            self.later(counted_ms, Event::Count { id, instance, begin_ms });
            self.later(answered_ms, Event::Answer { id, slot, instance });
        }
        if is_due {
            self.call(slot, local_ms);
        }
    }

    fn call(&mut self, slot: usize, local_ms: u64) {
        let (nonce, jitter, incarnation) = (self.next() | 1, self.below(201), self.incarnation.clone());
        let place = &mut self.slots[slot];
        let Some(process) = &mut place.process else { return };
        let call = process.call(&incarnation, nonce, jitter, local_ms);
        if process.is_leaving {
            place.process = None;
            let delay_ms = 100 + self.below(2_000);
            self.later(delay_ms, Event::Start { slot });
        }
        self.calls += 1;
        let is_twice = self.loss > 0 && self.below(50) == 0;
        for _ in 0..=u64::from(is_twice) {
            if let Some(delay_ms) = self.delay(slot) {
                self.later(delay_ms, Event::Call { slot, call: Box::new(call.clone()) });
            }
        }
    }

    /// The delay of a message, or `None` if it is lost.
    fn delay(&mut self, slot: usize) -> Option<u64> {
        let is_lost = self.below(1_000) < self.loss || self.slots[slot].cut_until_ms > self.now_ms;
        if is_lost {
            return None;
        }
        let is_slow = self.loss > 0 && self.below(300) == 0;
        Some(self.below(if is_slow { 2_000 } else { 8 }))
    }

    fn apply(&mut self, slot: usize, call: &Call) -> Result<(), String> {
        if self.away_until_ms > self.now_ms {
            let delay_ms = self.away_until_ms - self.now_ms;
            self.later(delay_ms, Event::Call { slot, call: Box::new(call.clone()) });
            return Ok(());
        }
        let now_ms = self.store_ms();
        let AllocatorReply::Applied(reply) = self.allocator.apply(call, now_ms)? else { return Ok(()) };
        let loan = self.loans.note(call, &reply);
        for &(_, hint) in &reply.hints {
            for other in 0..self.slots.len() {
                if other != slot
                    && let Some(delay_ms) = self.delay(other)
                {
                    self.later(delay_ms, Event::Hint { slot: other, hint });
                }
            }
        }
        if let Some(delay_ms) = self.delay(slot) {
            self.later(
                delay_ms,
                Event::Reply { slot, instance: call.instance, seq: call.seq, reply: Box::new(reply), loan },
            );
        }
        Ok(())
    }

    fn answer(&mut self, id: u64, slot: usize, instance: u64) {
        self.provider.end();
        let left = self.provider.tells.then(|| self.provider.left(EPOCH_MS + self.now_ms));
        let answer = Answer { is_refused: self.refused_ids.remove(&id), left };
        let (local_ms, now_ms) = (self.local_ms(slot), self.now_ms);
        let place = &mut self.slots[slot];
        let Some(process) = place.process.as_mut().filter(|process| process.instance == instance) else {
            return;
        };
        if place.stopped_until_ms > now_ms {
            place.late.push(answer);
        } else {
            process.answered(answer, local_ms);
            self.look(slot);
        }
    }

    /// Calls arrive at random.
    fn arrive(&mut self) {
        let window_ms = self.kind.window_ms();
        let mean_ms = (window_ms * 100 / self.arrivals_percent / self.limit_max).max(1);
        for _ in 0..(mean_ms * self.arrivals_percent * self.limit_max / 100).div_ceil(window_ms) {
            let slot = usize::try_from(self.below(self.slots.len() as u64)).unwrap_or(0);
            if let Some(process) = &mut self.slots[slot].process
                && matches!(process.load, Load::Arrivals | Load::Refusals)
                && process.waiting < self.limit_max
            {
                process.waiting += 1;
                self.look(slot);
            }
        }
        let delay_ms = self.below(2 * mean_ms + 1);
        self.later(delay_ms, Event::Arrive);
    }

    fn fault(&mut self, fault: Fault) {
        match fault {
            Fault::Kill { slot, down_ms } => {
                if self.slots[slot].process.take().is_some() {
                    self.later(down_ms, Event::Start { slot });
                }
            }
            Fault::Restart { slot, limit } => {
                self.slots[slot].limit = limit;
                if let Some(process) = &mut self.slots[slot].process {
                    process.is_leaving = true;
                }
            }
            Fault::Stop { slot, for_ms } => self.slots[slot].stopped_until_ms = self.now_ms + for_ms,
            Fault::Cut { slot, for_ms } => self.slots[slot].cut_until_ms = self.now_ms + for_ms,
            Fault::Away { for_ms } => self.away_until_ms = self.now_ms + for_ms,
            Fault::Failover { lost_ms } => {
                let back = usize::try_from(lost_ms / 100).unwrap_or(0).min(self.snapshots.len() - 1);
                self.restore(self.snapshots[self.snapshots.len() - 1 - back].clone());
            }
            Fault::Empty => self.restore(Keys::new()),
            Fault::Step { by_ms } => self.offset_ms += by_ms,
            Fault::Load { slot, load } => {
                self.slots[slot].load = load;
                if let Some(process) = &mut self.slots[slot].process {
                    process.load = load;
                    process.waiting = 0;
                }
            }
        }
    }

    /// Another process of the store takes over, with this state.
    fn restore(&mut self, keys: Keys) {
        self.allocator.restore(keys);
        self.incarnations += 1;
        self.incarnation = self.incarnations.to_string().into();
        // A connection ends with its process.
        self.events.retain(|_, event| !matches!(event, Event::Call { .. }));
    }
}
