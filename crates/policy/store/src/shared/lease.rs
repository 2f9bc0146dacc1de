//! The lease of a member's units, which many threads read and one renews.

use std::sync::atomic::Ordering;

use super::message::{CallReply, ClockCheck};
use super::terms::{Terms, less, more};
use crate::sync::{AtomicU64, Mutex};

/// The units that a member may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lease {
    /// All that it holds.
    Held,
    /// Its fallback share, at most its limit divided by this: the member is cut off.
    Fallback(u64),
    /// None: the member is cut off.
    Over,
}

impl Lease {
    /// Units that a member with this hold and limit may use.
    pub fn usable(self, hold: u64, limit: u64, has_fallback: bool) -> u64 {
        match self {
            Self::Held => hold,
            Self::Fallback(divisor) if has_fallback => hold.min(fallback_share(limit, divisor)),
            Self::Fallback(_) | Self::Over => 0,
        }
    }
}

/// The fallback share: units that a member with this limit and divisor may use when it is cut off.
fn fallback_share(limit: u64, divisor: u64) -> u64 {
    limit.checked_div(divisor).unwrap_or(0)
}

/// A member's lease. Times are in milliseconds by a clock that does not stop while the machine is suspended.
#[derive(Debug, Default)]
pub struct SharedLease {
    ends_ms: AtomicU64,
    fallback_until_ms: AtomicU64,
    divisor: AtomicU64,
    generation: AtomicU64,
    member_count: AtomicU64,
    clock: Mutex<Option<StoreClock>>,
}

/// The store's clock, as a member knows it: the time in the last reply, and the times between which the store
/// read it.
#[derive(Debug, Clone, Copy)]
#[expect(clippy::struct_field_names, reason = "the unit comes last in a name")]
pub struct StoreClock {
    store_ms: u64,
    sent_ms: u64,
    received_ms: u64,
}

impl StoreClock {
    /// The earliest and the latest time that the store's clock may show.
    pub fn at(&self, now_ms: u64) -> ClockCheck {
        ClockCheck {
            earliest_ms: self.store_ms + less(now_ms.saturating_sub(self.received_ms)),
            latest_ms: self.store_ms + more(now_ms.saturating_sub(self.sent_ms)),
        }
    }

    /// The earliest time by the member's clock at which the store's clock shows `store_ms`, or a later one,
    /// for certain.
    pub fn local_time(&self, store_ms: u64) -> u64 {
        // `less` takes no more than one part in 400, and 1 ms.
        self.received_ms + more(more(store_ms.saturating_sub(self.store_ms)) + 1)
    }
}

impl SharedLease {
    /// The state of the lease at `now_ms`.
    pub fn at(&self, now_ms: u64) -> Lease {
        self.at_until(now_ms).0
    }

    /// The state of the lease at `now_ms`, and the time until which it is the same if the lease is not
    /// renewed.
    pub fn at_until(&self, now_ms: u64) -> (Lease, u64) {
        let ends_ms = self.ends_ms();
        if now_ms < ends_ms {
            return (Lease::Held, ends_ms);
        }
        let fallback_until_ms = self.fallback_until_ms.load(Ordering::Acquire);
        match self.divisor.load(Ordering::Acquire) {
            0 => (Lease::Over, u64::MAX),
            divisor if now_ms < fallback_until_ms => (Lease::Fallback(divisor), fallback_until_ms),
            _ => (Lease::Over, u64::MAX),
        }
    }

    /// End of the lease. Each renewal moves it.
    pub fn ends_ms(&self) -> u64 {
        self.ends_ms.load(Ordering::Acquire)
    }

    /// The generation of the last reply; 0 before the first.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// Number of members, by the last reply.
    pub fn member_count(&self) -> u64 {
        self.member_count.load(Ordering::Acquire)
    }

    /// The store's clock, if a reply has had it.
    pub fn store_clock(&self) -> Option<StoreClock> {
        *self.clock.lock()
    }

    /// The earliest and the latest time that the store's clock may show, if a reply has had it.
    pub fn store_time(&self, now_ms: u64) -> Option<ClockCheck> {
        Some(self.store_clock()?.at(now_ms))
    }

    /// Renews the lease by the reply to a call that was sent at `sent_ms`.
    pub(super) fn renew(&self, terms: &Terms, reply: &CallReply, sent_ms: u64, now_ms: u64) {
        let ends_ms = sent_ms + less(terms.ttl_ms);
        *self.clock.lock() = Some(StoreClock { store_ms: reply.time_ms, sent_ms, received_ms: now_ms });
        self.generation.store(reply.generation, Ordering::Release);
        self.member_count.store(reply.view.member_count, Ordering::Release);
        self.divisor.store(reply.divisor, Ordering::Release);
        self.fallback_until_ms.store(ends_ms.saturating_add(less(terms.fallback_ms)), Ordering::Release);
        self.ends_ms.store(ends_ms, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::shared::View;

    fn reply(time_ms: u64, divisor: u64) -> CallReply {
        let view = View { member_count: 4, lowest_divisor: 4 };
        CallReply { time_ms, generation: 9, view, divisor, groups: Vec::new(), hints: Vec::new() }
    }

    #[test]
    fn a_lease_ends_early_and_a_part_is_kept() {
        let (lease, terms) = (SharedLease::default(), Terms::default());
        assert_eq!(lease.at(0), Lease::Over);
        lease.renew(&terms, &reply(5_000, 4), 1_000, 1_010);
        assert_eq!((lease.at(3_991), lease.at(3_992)), (Lease::Held, Lease::Fallback(4)));
        assert_eq!((lease.at(602_000), lease.at(604_000)), (Lease::Fallback(4), Lease::Over));
        lease.renew(&terms, &reply(5_000, 0), 1_000, 1_010);
        assert_eq!(lease.at(3_992), Lease::Over);
        assert_eq!(lease.generation(), 9);
    }

    proptest! {
        #[test]
        fn the_store_shows_a_time_by_the_local_time_for_it(store_ms in 5_000_u64..100_000_000) {
            let lease = SharedLease::default();
            lease.renew(&Terms::default(), &reply(5_000, 4), 1_000, 1_010);
            let clock = lease.store_clock().unwrap();
            prop_assert!(clock.at(clock.local_time(store_ms)).earliest_ms >= store_ms);
        }
    }
}
