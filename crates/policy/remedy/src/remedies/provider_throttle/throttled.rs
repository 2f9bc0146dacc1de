//! The paused groups of a `provider-throttle`, which the gateways of a cluster share.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_clock::Timestamp;
use egret_store::marks::{Mark, MarkHolder, MarkKey, MarkNews, MarkSink, ProbeAnswer, ProbeTicket};

use serde::{Deserialize, Serialize};

use crate::grouping::{GroupKey, Groups};

/// Time after which another call may probe.
const PROBE_TIME: Duration = Duration::from_secs(10);
/// Maximum time for which a probe waits for the cluster's permission.
pub(super) const ANSWER_MAX: Duration = Duration::from_millis(250);
/// A call that begins this long before the end of a pause also proves that it is over. There is none, but its
/// time reaches the other gateways by another way than the pause.
const PROOF_SLACK_MS: i64 = 100;

/// The paused groups.
#[derive(Debug)]
pub(super) struct Throttled {
    states: Arc<Groups<ThrottledGroup>>,
    /// The way to the other gateways, and the name of the remedy there.
    cluster: Option<(Arc<dyn MarkSink>, u128)>,
    wait_max: Duration,
}

/// A paused group. A group that is not paused has no state.
#[derive(Debug, Default)]
pub(super) struct ThrottledGroup {
    until: Timestamp,
    /// Time until which a probe may run, and the number of the probe.
    probe_until: Timestamp,
    probe: u64,
    /// `true` if the probe is one of another gateway.
    is_elsewhere: bool,
}

/// A pause as one process hands it over to the next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandedPause {
    /// Name of its group.
    name: Vec<u8>,
    until_us: u64,
}

/// The decision about a call.
#[derive(Debug)]
pub(super) enum Admission {
    /// Its group is not paused.
    Free,
    /// It finds out if the pause is over.
    Probe(Probe),
    /// It must not be sent before this time.
    Paused(Timestamp),
}

/// The only call of its group, after a pause.
#[derive(Debug)]
pub(super) struct Probe {
    throttled: Arc<Throttled>,
    key: GroupKey,
    number: u64,
    began: Timestamp,
    /// The cluster's permission.
    ticket: Option<ProbeTicket>,
    is_decided: bool,
}

impl Throttled {
    /// Creates the paused groups of a remedy with these states, which are those of its cluster, if any.
    pub(super) fn new(
        states: Arc<Groups<ThrottledGroup>>,
        cluster: Option<(Arc<dyn MarkSink>, u128)>,
        wait_max: Duration,
    ) -> Arc<Self> {
        let throttled = Arc::new(Self { states, cluster, wait_max });
        if let Some((sink, scope)) = &throttled.cluster {
            let holder: Arc<dyn MarkHolder> = throttled.clone();
            sink.watch(*scope, Arc::downgrade(&holder));
        }
        throttled
    }

    pub(super) fn states(&self) -> &Groups<ThrottledGroup> {
        &self.states
    }

    /// Decides about a call. The first one after a pause becomes the probe.
    pub(super) fn admit(self: &Arc<Self>, key: GroupKey, now: Timestamp) -> Admission {
        let admitted = self.states.look(key, |state| {
            let retry_at = state.until.max(state.probe_until);
            if now < retry_at {
                return Err(retry_at);
            }
            state.probe += 1;
            state.probe_until = now + PROBE_TIME;
            state.is_elsewhere = false;
            Ok(state.probe)
        });
        match admitted {
            None => Admission::Free,
            Some(Err(retry_at)) => Admission::Paused(retry_at),
            Some(Ok(number)) => Admission::Probe(Probe {
                throttled: Arc::clone(self),
                key,
                number,
                began: now,
                ticket: self.cluster.as_ref().map(|(sink, scope)| sink.probe(mark_key(*scope, key))),
                is_decided: false,
            }),
        }
    }

    /// Pauses a group with this name, here and in the whole cluster.
    pub(super) fn pause(
        &self,
        key: GroupKey,
        name: impl FnOnce() -> Box<[u8]>,
        until: Timestamp,
        now: Timestamp,
    ) {
        let is_later = self.extend(key, name, until, now);
        if let Some((sink, scope)) = self.cluster.as_ref().filter(|_| is_later) {
            let left_ms = millis(until.since(now));
            let proof_ms = left_ms.cast_signed() - PROOF_SLACK_MS;
            sink.mark(mark_key(*scope, key), Mark { left_ms, proof_ms, note: 0 });
        }
    }

    /// Returns the pauses for the next process; none of a cluster, which tells it itself.
    pub(super) fn hand_over(&self) -> Vec<HandedPause> {
        let mut pauses = Vec::new();
        self.states.each_named(|name, state| {
            if self.cluster.is_none() && !name.is_empty() {
                pauses.push(HandedPause { name: name.into(), until_us: state.until.as_micros() });
            }
        });
        pauses
    }

    /// Takes over the pauses of an earlier process.
    pub(super) fn inherit(&self, now: Timestamp, pauses: &[HandedPause]) {
        for HandedPause { name, until_us } in pauses {
            let until = Timestamp::from_micros(*until_us).min(now + self.wait_max);
            if let Some(key) = self.states.key_of_bytes(name).filter(|_| self.cluster.is_none()) {
                self.extend(key, || name.clone().into(), until, now);
            }
        }
    }

    /// Ends a pause after the success of its probe, unless another response has asked for a longer one.
    pub(super) fn succeed(&self, probe: &Probe, now: Timestamp) {
        let Probe { key, number, began, .. } = *probe;
        let is_over = |state: &ThrottledGroup| state.probe == number && state.until <= now;
        if self.states.forget(key, is_over)
            && let Some((sink, scope)) = &self.cluster
        {
            sink.end(mark_key(*scope, key), millis(now.since(began)));
        }
    }

    /// Returns `true` if the group is now paused for longer.
    fn extend(
        &self,
        key: GroupKey,
        name: impl FnOnce() -> Box<[u8]>,
        until: Timestamp,
        now: Timestamp,
    ) -> bool {
        let extend = |state: &mut ThrottledGroup| {
            let is_later = until > state.until;
            state.until = state.until.max(until);
            is_later
        };
        self.states.with(key, name, |state| state.until <= now, extend)
    }
}

impl MarkHolder for Throttled {
    fn told(&self, name: u128, news: MarkNews, now: Timestamp) {
        let key = GroupKey::of_number(name);
        match news {
            MarkNews::Marked(mark) => {
                let left = Duration::from_millis(mark.left_ms).min(self.wait_max);
                self.extend(key, Box::default, now + left, now);
            }
            MarkNews::Ended(_) => {
                self.states.forget(key, |state| state.until <= now);
            }
            MarkNews::Freed => {
                self.states.look(key, |state| {
                    if std::mem::take(&mut state.is_elsewhere) {
                        state.probe_until = Timestamp::default();
                    }
                });
            }
        }
    }
}

impl Probe {
    /// Returns `true` once it is decided whether the call is sent.
    pub(super) fn is_decided(&self) -> bool {
        self.is_decided
    }

    /// Time at which the probe no longer waits for permission.
    pub(super) fn answer_due(&self) -> Timestamp {
        self.began + ANSWER_MAX
    }

    /// Waits for the cluster's permission. Without it, returns the time before which the call must not be
    /// sent.
    pub(super) fn poll(&mut self, now: Timestamp, cx: &Context<'_>) -> Poll<Result<(), Timestamp>> {
        let answer = self.ticket.as_ref().map(|ticket| ticket.poll(cx));
        if answer == Some(Poll::Pending) && now < self.answer_due() {
            return Poll::Pending;
        }
        self.is_decided = true;
        let Some(Poll::Ready(ProbeAnswer::Wait(left))) = answer else { return Poll::Ready(Ok(())) };
        self.ticket = None;
        let retry_at = now + left.min(self.throttled.wait_max);
        self.throttled.states.look(self.key, |state| {
            if state.probe == self.number {
                state.probe += 1;
                state.probe_until = retry_at;
                state.is_elsewhere = true;
            }
        });
        Poll::Ready(Err(retry_at))
    }
}

impl Drop for Probe {
    /// The next call may probe: the probe had no result, or its result is known.
    fn drop(&mut self) {
        self.throttled.states.look(self.key, |state| {
            if state.probe == self.number {
                state.probe_until = Timestamp::default();
            }
        });
        if let (Some((sink, scope)), Some(ticket)) = (&self.throttled.cluster, &self.ticket) {
            sink.release(mark_key(*scope, self.key), ticket.owner());
        }
    }
}

fn mark_key(scope: u128, key: GroupKey) -> MarkKey {
    MarkKey { scope, name: key.number() }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
