//! The member's side of its lease: the numbers of its calls, and what it was told.

use std::sync::Arc;

use super::message::{Call, ClockCheck, GroupCall, Instance, Told, View};
use super::sharing::kept;
use super::terms::{Terms, less, more};

/// A member's lease of all that it holds in a segment.
#[derive(Debug, Clone)]
pub struct Session {
    terms: Terms,
    instance: Instance,
    name: Arc<str>,
    seq: u64,
    generation: u64,
    view: View,
    divisor: u64,
    told: Option<ToldTime>,
    /// End of the lease by the member's clock.
    ends_ms: u64,
    /// The sending of the call that is not answered yet.
    sent_ms: Option<u64>,
}

/// The store's time in the last reply, and the times between which the store read it, in milliseconds.
#[derive(Debug, Clone, Copy)]
struct ToldTime {
    store: u64,
    sent: u64,
    received: u64,
}

/// The units that a member may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// All that it holds.
    Held,
    /// A part of it, at most its limit divided by this: the member is cut off.
    Kept(u64),
    /// None: the member is cut off.
    Over,
}

impl Lease {
    /// Units that a member with this hold and limit may use.
    pub fn usable(self, hold: u64, limit: u64, keeps: bool) -> u64 {
        match self {
            Self::Held => hold,
            Self::Kept(divisor) if keeps => hold.min(kept(limit, divisor)),
            Self::Kept(_) | Self::Over => 0,
        }
    }
}

impl Session {
    /// Creates the session of a process that has just started. `instance` must be unique.
    pub fn new(terms: Terms, name: Arc<str>, instance: Instance) -> Self {
        Self {
            terms,
            instance,
            name,
            seq: 0,
            generation: 0,
            view: View::default(),
            divisor: 0,
            told: None,
            ends_ms: 0,
            sent_ms: None,
        }
    }

    /// The generation told last; 0 before the first reply.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of members, as told last.
    pub fn roster(&self) -> u64 {
        self.view.roster
    }

    /// The state of the lease at `now_ms`, by a clock that does not stop while the machine is suspended.
    pub fn lease(&self, now_ms: u64) -> Lease {
        if now_ms < self.ends_ms {
            Lease::Held
        } else if self.divisor > 0 && now_ms < self.ends_ms.saturating_add(less(self.terms.keep_ms)) {
            Lease::Kept(self.divisor)
        } else {
            Lease::Over
        }
    }

    /// The earliest and the latest time that the store's clock may show, if it was told.
    pub fn store_time(&self, now_ms: u64) -> Option<ClockCheck> {
        let told = self.told?;
        Some(ClockCheck {
            earliest_ms: told.store + less(now_ms.saturating_sub(told.received)),
            latest_ms: told.store + more(now_ms.saturating_sub(told.sent)),
        })
    }

    /// Creates the next call. A call that is not answered yet is given up.
    pub fn call(
        &mut self,
        run: Arc<str>,
        nonce: u64,
        groups: Vec<GroupCall>,
        leaves: bool,
        now_ms: u64,
    ) -> Call {
        self.seq += 1;
        self.sent_ms = Some(now_ms);
        Call {
            instance: self.instance,
            name: self.name.clone(),
            seq: self.seq,
            run,
            generation: self.generation,
            nonce,
            clock: self.store_time(now_ms),
            view: self.view,
            divisor: self.divisor,
            leaves,
            groups,
        }
    }

    /// Handles the reply to call `seq`. Returns `false` if that call was given up: the reply has no effect
    /// then, and its groups must not be handled.
    pub fn answered(&mut self, seq: u64, told: &Told, now_ms: u64) -> bool {
        if seq != self.seq {
            return false;
        }
        let Some(sent_ms) = self.sent_ms.take() else { return false };
        self.ends_ms = sent_ms + less(self.terms.ttl_ms);
        self.generation = told.generation;
        self.view = told.view;
        self.divisor = told.divisor;
        self.told = Some(ToldTime { store: told.time_ms, sent: sent_ms, received: now_ms });
        true
    }
}
