//! The member's side of its lease: the numbers of its calls, and its last reply.

use std::sync::Arc;

use super::lease::{Lease, SharedLease};
use super::message::{Call, CallReply, ClockCheck, GroupCall, Instance, View};
use super::terms::Terms;

/// A member's lease of all that it holds in a shard.
#[derive(Debug, Default)]
pub struct Session {
    terms: Terms,
    instance: Instance,
    name: Arc<str>,
    seq: u64,
    generation: u64,
    view: View,
    divisor: u64,
    lease: Arc<SharedLease>,
    /// The sending of the call that is not answered yet.
    sent_ms: Option<u64>,
}

impl Session {
    /// Creates the session of a process that has just started. `instance` must be unique.
    pub fn new(terms: Terms, name: Arc<str>, instance: Instance) -> Self {
        Self { terms, instance, name, ..Self::default() }
    }

    /// The process of the member.
    pub fn instance(&self) -> Instance {
        self.instance
    }

    /// Number of the last call.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Sets the generation that an earlier process of the member knew.
    pub fn know(&mut self, generation: u64) {
        self.generation = generation;
    }

    /// The generation of the last reply; 0 before the first, unless an earlier process knew one.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// Number of members, by the last reply.
    pub fn member_count(&self) -> u64 {
        self.view.member_count
    }

    /// The lease, as the threads that use the units see it.
    pub fn shared_lease(&self) -> &Arc<SharedLease> {
        &self.lease
    }

    /// The state of the lease at `now_ms`, by a clock that does not stop while the machine is suspended.
    pub fn lease(&self, now_ms: u64) -> Lease {
        self.lease.at(now_ms)
    }

    /// The earliest and the latest time that the store's clock may show, if a reply has had it.
    pub fn store_time(&self, now_ms: u64) -> Option<ClockCheck> {
        self.lease.store_time(now_ms)
    }

    /// Creates the next call. A call that is not answered yet is given up.
    pub fn call(
        &mut self,
        incarnation: Arc<str>,
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
            incarnation,
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
    pub fn answered(&mut self, seq: u64, reply: &CallReply, now_ms: u64) -> bool {
        if seq != self.seq {
            return false;
        }
        let Some(sent_ms) = self.sent_ms.take() else { return false };
        self.generation = reply.generation;
        self.view = reply.view;
        self.divisor = reply.divisor;
        self.lease.renew(&self.terms, reply, sent_ms, now_ms);
        true
    }
}
