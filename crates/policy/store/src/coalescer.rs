//! Coalesces concurrent requests for the same response: the first one (the leader) is sent to the provider,
//! the others wait for its result.
//!
//! A request never waits for two leaders in a row. If the leader's response turns out not to be shareable,
//! all waiters proceed at once, and for a while requests for that response do not wait at all. If the leader
//! is dropped without a response, the next request becomes the leader.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use egret_clock::Timestamp;
use parking_lot::{Mutex, MutexGuard};

/// Number of shards, each with its own lock.
const SHARDS: usize = 16;
/// Time for which requests do not wait after a response that could not be stored.
const UNCACHEABLE_FOR: Duration = Duration::from_secs(30);
/// Maximum number of such keys that a shard remembers.
const UNCACHEABLE_MAX: usize = 1024;

/// The calls in flight that other requests may wait for.
#[derive(Debug)]
pub struct Coalescer {
    shards: Box<[Mutex<Shard>]>,
}

#[derive(Debug, Default)]
struct Shard {
    in_flight: HashMap<u128, Arc<SharedCall>>,
    /// Keys whose responses could not be stored, and the time until which requests for them do not wait.
    uncacheable: HashMap<u128, Timestamp>,
}

/// A call in flight with its waiters.
#[derive(Debug, Default)]
struct SharedCall(Mutex<Waiters>);

#[derive(Debug, Default)]
struct Waiters {
    ending: Option<Ending>,
    /// The wakers of the waiters, by slot.
    wakers: Vec<Option<Waker>>,
    free: Vec<usize>,
}

/// The end of a call, for its waiters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// There is a response, stored or not.
    Finished,
    /// The leader was dropped.
    Abandoned,
}

/// The role of a request that finds nothing stored.
#[derive(Debug)]
pub enum CoalescedRole {
    /// It is sent to the provider, and others may wait for it.
    Leader(Leader),
    /// It waits for the leader.
    Wait(Waiter),
    /// It is sent to the provider, and no request waits for it.
    Alone,
}

impl Coalescer {
    /// Creates a coalescer without any call in flight.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { shards: (0..SHARDS).map(|_| Mutex::default()).collect() })
    }

    /// Assigns a role to a request for `id` at `now`.
    pub fn join(self: &Arc<Self>, id: u128, now: Timestamp) -> CoalescedRole {
        let mut shard = self.shard(id);
        if let Some(until) = shard.uncacheable.get(&id) {
            if *until > now {
                return CoalescedRole::Alone;
            }
            shard.uncacheable.remove(&id);
        }
        if let Some(call) = shard.in_flight.get(&id) {
            return CoalescedRole::Wait(Waiter { call: Arc::clone(call), slot: None });
        }
        let call = Arc::new(SharedCall::default());
        shard.in_flight.insert(id, Arc::clone(&call));
        CoalescedRole::Leader(Leader { coalescer: Arc::clone(self), id, call, is_over: false })
    }

    /// Returns a leader for `id`, unless the request would have another role.
    pub fn leader(self: &Arc<Self>, id: u128, now: Timestamp) -> Option<Leader> {
        match self.join(id, now) {
            CoalescedRole::Leader(leader) => Some(leader),
            CoalescedRole::Wait(_) | CoalescedRole::Alone => None,
        }
    }

    /// Disables waiting for responses under `id` for a while.
    pub fn note_uncacheable(&self, id: u128, now: Timestamp) {
        let mut shard = self.shard(id);
        let known = &mut shard.uncacheable;
        if known.len() >= UNCACHEABLE_MAX {
            known.retain(|_, until| *until > now);
        }
        if known.len() >= UNCACHEABLE_MAX {
            // The keys that matter are noted again.
            known.clear();
        }
        known.insert(id, now + UNCACHEABLE_FOR);
    }

    /// Enables waiting for responses under `id` again.
    pub fn note_cacheable(&self, id: u128) {
        self.shard(id).uncacheable.remove(&id);
    }

    fn shard(&self, id: u128) -> MutexGuard<'_, Shard> {
        let at = usize::try_from(id % SHARDS as u128).unwrap_or_default();
        self.shards[at].lock()
    }
}

/// The request that is sent to the provider for all waiters. If this is dropped, another request becomes the
/// leader.
#[derive(Debug)]
pub struct Leader {
    coalescer: Arc<Coalescer>,
    id: u128,
    call: Arc<SharedCall>,
    is_over: bool,
}

impl Leader {
    /// Ends the call with a response. The waiters look for a stored response, and proceed on their own if
    /// there is none.
    pub fn finish(mut self) {
        self.end(Ending::Finished);
    }

    /// Returns the requests that wait for the call.
    pub fn followers(&self) -> Followers {
        Followers(Arc::clone(&self.call))
    }

    fn end(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.is_over, true) {
            return;
        }
        self.coalescer.shard(self.id).in_flight.remove(&self.id);
        let mut waiters = self.call.0.lock();
        waiters.ending = Some(ending);
        let wakers = std::mem::take(&mut waiters.wakers);
        drop(waiters);
        wakers.into_iter().flatten().for_each(Waker::wake);
    }
}

impl Drop for Leader {
    fn drop(&mut self) {
        self.end(Ending::Abandoned);
    }
}

/// The requests that wait for a call.
#[derive(Debug, Clone)]
pub struct Followers(Arc<SharedCall>);

impl Followers {
    /// Returns `true` if any request waits for the call at this moment.
    pub fn is_waiting(&self) -> bool {
        self.0.0.lock().wakers.iter().any(Option::is_some)
    }
}

/// A call that is made in the background, for later requests.
#[derive(Debug)]
pub struct Background {
    /// The leader, for which other requests may wait.
    pub leader: Leader,
    /// Index of the remedy that starts the call. The call skips this remedy and the inner ones.
    pub slot: usize,
}

impl Background {
    /// Creates a call for `leader`, before it is known which remedy starts it.
    pub fn new(leader: Leader) -> Self {
        Self { leader, slot: 0 }
    }
}

/// A request that waits for a leader.
#[derive(Debug)]
pub struct Waiter {
    call: Arc<SharedCall>,
    slot: Option<usize>,
}

impl Waiter {
    /// Returns `Ready` once the call has ended.
    pub fn poll(&mut self, cx: &Context<'_>) -> Poll<Ending> {
        let mut waiters = self.call.0.lock();
        if let Some(ending) = waiters.ending {
            return Poll::Ready(ending);
        }
        let slot = *self.slot.get_or_insert_with(|| {
            waiters.free.pop().unwrap_or_else(|| {
                waiters.wakers.push(None);
                waiters.wakers.len() - 1
            })
        });
        let known = &mut waiters.wakers[slot];
        if known.as_ref().is_none_or(|known| !known.will_wake(cx.waker())) {
            *known = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let Some(slot) = self.slot else { return };
        let mut waiters = self.call.0.lock();
        // After the call has ended there are no slots.
        if let Some(waker) = waiters.wakers.get_mut(slot) {
            *waker = None;
            waiters.free.push(slot);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
    use std::task::Wake;

    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    fn waiting(coalescer: &Arc<Coalescer>, id: u128) -> Waiter {
        match coalescer.join(id, NOW) {
            CoalescedRole::Wait(waiting) => waiting,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_first_goes_and_all_others_wait_until_there_is_a_response() {
        let coalescer = Coalescer::new();
        let leader = coalescer.leader(7, NOW).unwrap();
        let woken = Arc::new(Woken::default());
        let waker = Waker::from(Arc::clone(&woken));
        let cx = Context::from_waker(&waker);
        let mut others: Vec<_> = (0..1_000).map(|_| waiting(&coalescer, 7)).collect();
        assert!(others.iter_mut().all(|other| other.poll(&cx).is_pending() && other.poll(&cx).is_pending()));
        assert!(coalescer.leader(8, NOW).is_some(), "another key is another call");
        others.truncate(999);
        leader.finish();
        assert_eq!(woken.0.load(Relaxed), 999, "a waiter that has left is not woken");
        assert!(others.iter_mut().all(|other| other.poll(&cx) == Poll::Ready(Ending::Finished)));
        assert!(coalescer.leader(7, NOW).is_some());
    }

    #[test]
    fn where_the_first_leaves_another_takes_its_place() {
        let coalescer = Coalescer::new();
        let leader = coalescer.leader(7, NOW).unwrap();
        let followers = leader.followers();
        let mut other = waiting(&coalescer, 7);
        assert!(!followers.is_waiting());
        let cx = Context::from_waker(Waker::noop());
        assert!(other.poll(&cx).is_pending());
        assert!(followers.is_waiting());
        drop(leader);
        assert!(!followers.is_waiting());
        assert_eq!(other.poll(&cx), Poll::Ready(Ending::Abandoned));
        assert!(coalescer.leader(7, NOW).is_some());
    }

    #[test]
    fn requests_do_not_wait_for_an_uncacheable_response() {
        let coalescer = Coalescer::new();
        coalescer.note_uncacheable(7, NOW);
        assert!(matches!(coalescer.join(7, NOW), CoalescedRole::Alone));
        coalescer.note_cacheable(7);
        drop(coalescer.leader(7, NOW).unwrap());
        coalescer.note_uncacheable(7, NOW);
        drop(coalescer.leader(7, NOW + UNCACHEABLE_FOR).unwrap());
        for id in 0..100_000 {
            coalescer.note_uncacheable(id, NOW);
        }
        let known: usize = (0..SHARDS as u128).map(|shard| coalescer.shard(shard).uncacheable.len()).sum();
        assert!(known <= SHARDS * UNCACHEABLE_MAX, "{known}");
    }
}
