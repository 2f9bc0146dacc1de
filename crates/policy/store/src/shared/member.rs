//! A running gateway as a member of a cluster: when it calls the store, about which groups, and what it does
//! with replies. It reads no clock and no socket; another part sends the calls.
//!
//! Invariants, which debug builds assert. Of each call that is sent:
//!
//! - `seq of the last call < seq`, and at most one call has no reply
//! - `groups <= GROUPS_MAX`, or `LEAVING_GROUPS_MAX` in the last call
//! - of a group whose units come back: `used <= has`, and `want <= max(limit, has)`
//! - of a window: `used <= has <= want`, `known <= has`, and `settled <= used`
//!
//! Between the calls:
//!
//! - `asked` and `are_asked` have the same groups, each once
//! - `end of the lease < sending of the last answered call + ttl`: it ends here before it ends in the store

use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;
use std::sync::{Arc, Weak};

use super::lease::SharedLease;
use super::message::{AllocatorReply, Call, GroupCall, GroupKey, GroupReply, Instance, WakeUpHint};
use super::session::Session;
use super::terms::{CALL_TIMEOUT_MS, Terms};

/// Maximum number of groups in one call. A call about more would hold up the calls of other members.
const GROUPS_MAX: usize = 256;
/// Maximum number of groups looked at for one call. Most need none.
const LOOKED_MAX: usize = 4_096;
/// If more groups were asked for than a call can have, calls follow each other at this part of the usual
/// gap: a new generation must hear about all units within its recovery window.
const HURRY_PARTS: u64 = 10;
/// Maximum number of groups in the last call.
const LEAVING_GROUPS_MAX: usize = 4_096;

/// The reason for which a group is asked for its part of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// The lease is renewed. A group that the store knows all about is omitted.
    Renewal,
    /// The group has asked, or a hint was about it.
    Asked,
    /// The gateway leaves, and all calls are over.
    Leaving,
}

/// A group whose units the members share.
pub trait SharedGroup: Send + Sync {
    /// The group's key.
    fn key(&self) -> GroupKey;
    /// The group's part of a call that is sent at once. Called with [`Listing::Renewal`], it may be omitted.
    fn call(&self, listing: Listing, now_ms: u64) -> Option<GroupCall>;
    /// Handles the reply to the last call.
    fn answered(&self, reply: &GroupReply, generation: u64, now_ms: u64);
    /// Returns `true` if a call about the group should not wait for the renewal.
    fn is_urgent(&self, now_ms: u64) -> bool;
    /// Returns `true` if a hint concerns the group.
    fn accepts(&self, hint: WakeUpHint) -> bool;
}

/// The leave message of a group that is dropped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaveMessage {
    /// The part of a call with the units that are still in use.
    pub call: GroupCall,
    /// Time at which none is in use any more.
    pub free_ms: u64,
}

/// Delivers groups to the thread of their member. It never blocks.
pub trait GroupSink: Send + Sync + fmt::Debug {
    /// The time in microseconds, by the clock of the lease. It does not stop while the machine is suspended.
    fn now_us(&self) -> u64;
    /// The time at which this thread turned to its present work, by the same clock. That is cheaper to know.
    fn turned_us(&self) -> u64 {
        self.now_us()
    }
    /// A text that stands for a name in the store. It is equal in all members, and does not show the name.
    fn digest(&self, name: &[u8]) -> String;
    /// Minimum number of members, by the config.
    fn members_min(&self) -> u64;
    /// The lease of this group's units.
    fn lease(&self, key: &GroupKey) -> Arc<SharedLease>;
    /// Asks for a call about a group soon. Returns `false` if the thread is too busy; ask again then.
    fn ask(&self, group: Arc<dyn SharedGroup>) -> bool;
    /// Tells that a group was dropped.
    fn leave(&self, message: LeaveMessage);
}

/// The member's side of a shard.
pub struct Member {
    terms: Terms,
    session: Session,
    groups: HashMap<GroupKey, Weak<dyn SharedGroup>>,
    /// The groups to call about soon, in order.
    asked: VecDeque<GroupKey>,
    are_asked: HashSet<GroupKey>,
    /// The groups that the renewal has not looked at yet. It may take several calls.
    renewing: VecDeque<GroupKey>,
    leaving: Vec<PendingLeave>,
    /// The groups that hold units for which others wait. They return them once they are free, so the member
    /// looks often.
    watched: HashSet<GroupKey>,
    pending: Option<PendingCall>,
    last_ms: u64,
    looked_ms: u64,
    renew_ms: u64,
}

/// A leave message that the store does not know completely.
struct PendingLeave {
    message: LeaveMessage,
    /// `true` if the store knows the units that are still in use.
    is_known: bool,
}

/// A call without a reply.
struct PendingCall {
    seq: u64,
    sent_ms: u64,
    /// The keys of the called groups, in order.
    keys: Vec<GroupKey>,
}

impl Member {
    /// Creates the member of a process that has just started. `instance` must be unique.
    pub fn new(terms: Terms, name: Arc<str>, instance: Instance) -> Self {
        Self {
            terms,
            session: Session::new(terms, name, instance),
            groups: HashMap::new(),
            asked: VecDeque::new(),
            are_asked: HashSet::new(),
            renewing: VecDeque::new(),
            leaving: Vec::new(),
            watched: HashSet::new(),
            looked_ms: 0,
            pending: None,
            last_ms: 0,
            renew_ms: 0,
        }
    }

    /// Sets the generation that the member knew before the process was started; 0 for none. A store that has
    /// forgotten it thus learns that there was one.
    #[must_use]
    pub fn knowing(mut self, generation: u64) -> Self {
        self.session.know(generation);
        self
    }

    /// The generation of the last reply.
    pub fn generation(&self) -> u64 {
        self.session.generation()
    }

    /// The lease, as the threads that use the units see it.
    pub fn lease(&self) -> &Arc<SharedLease> {
        self.session.shared_lease()
    }

    /// The process of the member.
    pub fn instance(&self) -> Instance {
        self.session.instance()
    }

    /// Number of groups known.
    pub fn group_count(&self) -> usize {
        self.groups.len()
    }

    /// Calls about a group soon.
    pub fn ask(&mut self, group: &Arc<dyn SharedGroup>) {
        let key = group.key();
        self.groups.insert(key.clone(), Arc::downgrade(group));
        self.ask_about(key);
    }

    /// Gives up a group that was dropped.
    pub fn leave_group(&mut self, message: LeaveMessage) {
        // Another group may have taken the key over.
        if self.group(&message.call.key).is_none() {
            self.groups.remove(&message.call.key);
            self.leaving.push(PendingLeave { message, is_known: false });
        }
    }

    /// Handles the hint that another member caused.
    pub fn hinted(&mut self, key: &[u8], hint: WakeUpHint) {
        if let Some((key, group)) = self.groups.get_key_value(key)
            && hint.concerns(self.session.instance())
            && group.upgrade().is_some_and(|group| group.accepts(hint))
        {
            self.ask_about(key.clone());
        }
    }

    /// Looks for groups that have units to return. Returns `true` if it is time for a call.
    pub fn is_due(&mut self, now_ms: u64) -> bool {
        if !self.watched.is_empty() && now_ms >= self.looked_ms + self.terms.gap_ms {
            self.looked_ms = now_ms;
            for key in std::mem::take(&mut self.watched) {
                let Some(group) = self.group(&key) else { continue };
                if group.is_urgent(now_ms) {
                    self.ask_about(key);
                } else {
                    self.watched.insert(key);
                }
            }
        }
        now_ms >= self.call_due_ms()
    }

    /// Time at which [`is_due`](Self::is_due) should be asked next.
    pub fn due_ms(&self) -> u64 {
        let look_ms = if self.watched.is_empty() { u64::MAX } else { self.looked_ms + self.terms.gap_ms };
        self.call_due_ms().min(look_ms)
    }

    fn call_due_ms(&self) -> u64 {
        let is_soon = !self.asked.is_empty() || !self.renewing.is_empty() || self.pending.is_some();
        let leaving_ms = self.leaving.iter().map(PendingLeave::due_ms).min().unwrap_or(u64::MAX);
        let due_ms = if is_soon { 0 } else { self.renew_ms.min(leaving_ms) };
        let waits_ms = self.pending.as_ref().map_or(0, |pending| pending.sent_ms + CALL_TIMEOUT_MS);
        let is_hurried = self.asked.len() > GROUPS_MAX;
        let gap_ms = if is_hurried { self.terms.gap_ms / HURRY_PARTS } else { self.terms.gap_ms };
        due_ms.max(waits_ms).max(self.last_ms + gap_ms)
    }

    /// Creates a call to this server incarnation. `nonce` is random and not 0; `jitter` is a random
    /// number from 0 to 200.
    pub fn call(&mut self, incarnation: Arc<str>, nonce: u64, jitter: u64, now_ms: u64) -> Call {
        // The store may not have heard of these.
        for key in self.pending.take().map(|pending| pending.keys).unwrap_or_default() {
            self.ask_about(key);
        }
        let mut groups = self.asked_groups(now_ms);
        if now_ms >= self.renew_ms {
            self.renew_ms = now_ms + self.terms.renewal_ms * (900 + jitter) / 1_000;
            self.begin_renewal();
        }
        self.renew(&mut groups, now_ms);
        self.send(incarnation, nonce, groups, false, now_ms)
    }

    /// Creates the last call, which returns all units. No call to a provider is in transit.
    pub fn leave(&mut self, incarnation: Arc<str>, nonce: u64, now_ms: u64) -> Call {
        let groups = self.groups.values().filter_map(Weak::upgrade);
        let calls = groups.filter_map(|group| group.call(Listing::Leaving, now_ms));
        let groups = calls.take(LEAVING_GROUPS_MAX).collect();
        self.send(incarnation, nonce, groups, true, now_ms)
    }

    /// Handles the reply to call `seq`. Returns `false` if the call was given up; then the reply has no
    /// effect.
    pub fn answered(&mut self, seq: u64, reply: &AllocatorReply, now_ms: u64) -> bool {
        let AllocatorReply::Applied(reply) = reply else { return false };
        let generation = self.session.generation();
        if self.pending.as_ref().is_none_or(|pending| pending.seq != seq)
            || !self.session.answered(seq, reply, now_ms)
        {
            return false;
        }
        let Some(PendingCall { keys, sent_ms, .. }) = self.pending.take() else { return false };
        debug_assert!(self.lease().ends_ms() < sent_ms + self.terms.ttl_ms);
        for (key, units) in keys.iter().zip(&reply.groups) {
            if let Some(group) = self.group(key) {
                group.answered(units, reply.generation, now_ms);
                if units.hold > 0 && units.cap < u64::MAX {
                    self.watched.insert(key.clone());
                } else {
                    self.watched.remove(key);
                }
            }
        }
        let known: HashSet<&GroupKey> = keys.iter().collect();
        self.leaving.retain_mut(|pending| {
            let is_known = known.contains(&pending.message.call.key);
            pending.is_known |= is_known;
            !(is_known && pending.message.free_ms <= sent_ms)
        });
        if reply.generation != generation {
            // A new generation must hear about all units.
            for key in self.groups.keys().cloned().collect::<Vec<_>>() {
                self.ask_about(key);
            }
        }
        true
    }

    /// Number of the last call.
    pub fn seq(&self) -> u64 {
        self.session.seq()
    }

    fn send(
        &mut self,
        incarnation: Arc<str>,
        nonce: u64,
        groups: Vec<GroupCall>,
        leaves: bool,
        now_ms: u64,
    ) -> Call {
        debug_assert!(groups.iter().all(GroupCall::is_valid), "{groups:?}");
        debug_assert!(groups.len() <= if leaves { LEAVING_GROUPS_MAX } else { GROUPS_MAX });
        let keys = groups.iter().map(|group| group.key.clone()).collect();
        let last = self.session.seq();
        let call = self.session.call(incarnation, nonce, groups, leaves, now_ms);
        debug_assert!(last < call.seq);
        self.last_ms = now_ms;
        self.pending = Some(PendingCall { seq: call.seq, sent_ms: now_ms, keys });
        call
    }

    fn group(&self, key: &[u8]) -> Option<Arc<dyn SharedGroup>> {
        self.groups.get(key)?.upgrade()
    }

    fn ask_about(&mut self, key: GroupKey) {
        if self.are_asked.insert(key.clone()) {
            self.asked.push_back(key);
        }
        debug_assert_eq!(self.asked.len(), self.are_asked.len());
    }

    /// Takes the groups to call about now.
    fn asked_groups(&mut self, now_ms: u64) -> Vec<GroupCall> {
        let due = self.leaving.iter().filter(|pending| pending.due_ms() <= now_ms);
        let mut groups: Vec<GroupCall> = due.take(GROUPS_MAX).map(|pending| pending.call(now_ms)).collect();
        while groups.len() < GROUPS_MAX
            && let Some(key) = self.asked.pop_front()
        {
            self.are_asked.remove(&key);
            groups.extend(self.group(&key).and_then(|group| group.call(Listing::Asked, now_ms)));
        }
        groups
    }

    /// Begins to renew all groups, unless an earlier renewal still goes on: each group has its turn.
    fn begin_renewal(&mut self) {
        self.groups.retain(|_, group| group.strong_count() > 0);
        if self.renewing.is_empty() {
            self.renewing.extend(self.groups.keys().cloned());
        }
    }

    /// Adds the next groups of the renewal that are not in the call yet and belong there.
    fn renew(&mut self, groups: &mut Vec<GroupCall>, now_ms: u64) {
        let called: HashSet<GroupKey> = groups.iter().map(|group| group.key.clone()).collect();
        for _ in 0..LOOKED_MAX {
            if groups.len() >= GROUPS_MAX {
                return;
            }
            let Some(key) = self.renewing.pop_front() else { return };
            if !called.contains(&key) {
                groups.extend(self.group(&key).and_then(|group| group.call(Listing::Renewal, now_ms)));
            }
        }
    }
}

impl PendingLeave {
    fn due_ms(&self) -> u64 {
        if self.is_known { self.message.free_ms } else { 0 }
    }

    fn call(&self, now_ms: u64) -> GroupCall {
        let LeaveMessage { call, free_ms } = &self.message;
        // The units of a window do not come back.
        if call.window.is_some() {
            return call.clone();
        }
        let has = if *free_ms <= now_ms { 0 } else { call.has };
        GroupCall { has, want: has, used: has, ..call.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::shared::{CallReply, View};

    /// A group that always has a part of a call, and notes when it was asked.
    struct Busy {
        key: GroupKey,
        called_ms: Mutex<Vec<u64>>,
    }

    impl SharedGroup for Busy {
        fn key(&self) -> GroupKey {
            self.key.clone()
        }

        fn call(&self, _: Listing, now_ms: u64) -> Option<GroupCall> {
            self.called_ms.lock().unwrap().push(now_ms);
            Some(GroupCall {
                key: self.key.clone(),
                generation: 1,
                limit: 10,
                cool_down_ms: 1_000,
                has_fallback: true,
                has: 1,
                used: 1,
                want: 1,
                window: None,
                report: None,
            })
        }

        fn answered(&self, _: &GroupReply, _: u64, _: u64) {}

        fn is_urgent(&self, _: u64) -> bool {
            false
        }

        fn accepts(&self, _: WakeUpHint) -> bool {
            false
        }
    }

    struct Many {
        member: Member,
        groups: Vec<Arc<Busy>>,
        now_ms: u64,
        generation: u64,
        calls: Vec<(u64, usize)>,
    }

    impl Many {
        fn new(count: usize) -> Self {
            let mut member = Member::new(Terms::default(), "a".into(), 1);
            let group = |number: usize| {
                let key = format!("group {number}").into_bytes().into();
                Arc::new(Busy { key, called_ms: Mutex::default() })
            };
            let groups: Vec<Arc<Busy>> = (0..count).map(group).collect();
            for group in &groups {
                let group: Arc<dyn SharedGroup> = group.clone();
                member.ask(&group);
            }
            Self { member, groups, now_ms: 10_000, generation: 1, calls: Vec::new() }
        }

        /// Plays so many milliseconds with a store that answers at once.
        fn play(&mut self, ms: u64) {
            for _ in 0..ms {
                self.now_ms += 1;
                if self.member.is_due(self.now_ms) {
                    let call = self.member.call("run".into(), 7, 100, self.now_ms);
                    self.calls.push((self.now_ms, call.groups.len()));
                    let units = GroupReply {
                        hold: 1,
                        cap: u64::MAX,
                        pool: 0,
                        recovery_ms: 0,
                        total: 0,
                        differs: false,
                    };
                    let reply = CallReply {
                        time_ms: self.now_ms,
                        generation: self.generation,
                        view: View::default(),
                        divisor: 0,
                        groups: vec![units; call.groups.len()],
                        hints: Vec::new(),
                    };
                    assert!(self.member.answered(call.seq, &AllocatorReply::Applied(reply), self.now_ms));
                }
            }
        }

        /// Forgets the calls so far.
        fn forget(&mut self) {
            self.calls.clear();
            for group in &self.groups {
                group.called_ms.lock().unwrap().clear();
            }
        }

        fn fewest(&self) -> usize {
            self.groups.iter().map(|group| group.called_ms.lock().unwrap().len()).min().unwrap()
        }
    }

    #[test]
    fn every_group_is_renewed_in_bounded_calls() {
        let mut many = Many::new(2_000);
        many.play(3_000);
        many.forget();
        many.play(10_000);
        // Eight calls renew all, one each 100 ms.
        assert!((9..=11).contains(&many.fewest()), "{}", many.fewest());
        assert!(many.calls.iter().all(|(_, groups)| *groups <= GROUPS_MAX));
        assert!(many.calls.windows(2).all(|pair| pair[1].0 >= pair[0].0 + 100));
    }

    #[test]
    fn the_lease_is_renewed_however_many_groups_there_are() {
        let mut many = Many::new(20_000);
        many.play(30_000);
        let gap = many.calls.windows(2).map(|pair| pair[1].0 - pair[0].0).max();
        assert!(gap <= Some(1_100), "{gap:?}");
    }

    #[test]
    fn a_new_generation_hears_about_all_groups_while_it_learns() {
        let mut many = Many::new(100_000);
        many.play(10_000);
        many.forget();
        many.generation = 2;
        many.play(9_000);
        assert!(many.fewest() >= 1);
    }
}
