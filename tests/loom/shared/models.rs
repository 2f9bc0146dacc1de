//! Models of the lease.

use loom::sync::Arc;
use loom::thread;

use super::lease::SharedLease;
use super::message::{CallReply, View};
use super::terms::Terms;

/// Units held, and the limit that the fallback share is a part of.
const HOLD: u64 = 8;
const LIMIT: u64 = 12;

/// Times at which the worker asks, and replies.
const TIMES: usize = 4;
pub const CASES: usize = 4 * TIMES;

fn renew(lease: &SharedLease, generation: u64, divisor: u64, sent_ms: u64) {
    let reply = CallReply { time_ms: sent_ms, generation, view: View { member_count: divisor }, divisor };
    lease.renew(&Terms::default(), &reply, sent_ms, sent_ms);
}

fn usable(lease: &SharedLease, now_ms: u64) -> u64 {
    lease.at(now_ms).usable(HOLD, LIMIT, true)
}

/// A worker asks while a reply arrives. Whatever parts of it the worker sees, it gets no more than by the
/// lease before or by the one after, at each time at which one of them ends.
pub fn a_renewal_lends_no_more(case: usize) {
    let Terms { ttl_ms, fallback_ms, .. } = Terms::default();
    let (before, after, sent_ms) =
        [(2, 4, ttl_ms), (4, 2, ttl_ms), (0, 3, 2 * ttl_ms), (3, 0, 2 * ttl_ms)][case / TIMES];
    let now_ms = [ttl_ms - 1, ttl_ms, sent_ms + ttl_ms, ttl_ms + fallback_ms][case % TIMES];
    let lease = Arc::new(SharedLease::default());
    renew(&lease, 1, before, 0);
    let old = usable(&lease, now_ms);
    let renewed = Arc::clone(&lease);
    let thread = thread::spawn(move || renew(&renewed, 2, after, sent_ms));
    let seen = usable(&lease, now_ms);
    thread.join().unwrap();
    let most = old.max(usable(&lease, now_ms));
    assert!(seen <= most, "{seen} units at {now_ms} ms, and not {most}");
}
