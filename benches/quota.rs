//! Instruction counts of a granted quota request, with a limit for each kind of quota. They ensure that a
//! limit costs next to nothing. Needs valgrind and `gungraun-runner` in the version of `gungraun`.
//!
//! The limits are about 7 % above the measured counts. Raise a limit only with a reason in the commit.
#![expect(
    missing_docs,
    unused_qualifications,
    clippy::disallowed_methods,
    reason = "gungraun's macros do so"
)]

mod limits;

use std::fmt;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egret_clock::{Timestamp, begin_turn, boot_us, turned_boot_us};
use egret_fake_redis::FakeRedis;
use egret_quota::{Quota, Quotas, Stores};
use egret_store::shared::{
    AllocatorReply, CALL_SCRIPT, GroupKey, GroupSink, LeaveMessage, Member, Shard, SharedGroup, SharedLease,
    Terms,
};
use gungraun::prelude::*;
use serde_json::{Value, json};

use limits::at_most;

const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

/// The cluster of a gateway that is alone in it, with a fake of Redis that runs the script.
#[derive(Debug)]
struct Cluster {
    lease: Arc<SharedLease>,
    asked: Mutex<Option<Group>>,
    /// Microseconds by which its clock is ahead.
    ahead_us: AtomicU64,
}

struct Group(Arc<dyn SharedGroup>);

impl fmt::Debug for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Group")
    }
}

impl Cluster {
    /// Lets time pass until the next turn of the thread.
    fn pass(&self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or_default();
        self.ahead_us.fetch_add(us, Ordering::Relaxed);
        begin_turn();
    }
}

impl GroupSink for Cluster {
    fn now_us(&self) -> u64 {
        boot_us() + self.ahead_us.load(Ordering::Relaxed)
    }

    fn turned_us(&self) -> u64 {
        turned_boot_us() + self.ahead_us.load(Ordering::Relaxed)
    }

    fn digest(&self, _: &[u8]) -> String {
        String::new()
    }

    fn members_min(&self) -> u64 {
        1
    }

    fn lease(&self, _: &GroupKey) -> Arc<SharedLease> {
        self.lease.clone()
    }

    fn ask(&self, group: Arc<dyn SharedGroup>) -> bool {
        *self.asked.lock().unwrap_or_else(PoisonError::into_inner) = Some(Group(group));
        true
    }

    fn leave(&self, _: LeaveMessage) {}
}

/// Creates a quota in use whose units a cluster has lent to this gateway.
fn shared(config: &Value) -> Arc<Quota> {
    let mut member = Member::new(Terms::default(), "gateway".into(), 1);
    let cluster = Arc::new(Cluster {
        lease: member.lease().clone(),
        asked: Mutex::default(),
        ahead_us: AtomicU64::new(0),
    });
    let sink: Arc<dyn GroupSink> = cluster.clone();
    let quota = compile(config, Stores { cluster: Some(&sink), ..Stores::default() });
    let redis = FakeRedis::new(CALL_SCRIPT);
    let shard = Shard::new("bench", 0);
    // It wants half of the units, and the store learns for a while.
    for _ in 0..60 {
        cluster.pass(Duration::from_millis(500));
        let _ = quota.take(NOW, &[], 5_000).map(|grant| grant.cancel(NOW));
        if let Some(Group(group)) = cluster.asked.lock().unwrap_or_else(PoisonError::into_inner).take() {
            member.ask(&group);
        }
        let now_ms = cluster.now_us() / 1_000;
        let call = member.call("run".into(), 1, 100, now_ms);
        let script = shard.call(&call, &Terms::default());
        let reply = redis.run(&script.keys, &script.arguments, now_ms);
        let Ok(reply) = AllocatorReply::from_script(&reply, call.groups.len()) else {
            unreachable!("it is ours")
        };
        member.answered(call.seq, &reply, now_ms);
    }
    use_up_to_now(&quota, || cluster.pass(Duration::from_millis(1)));
    quota
}

/// Creates a quota in use.
fn quota(config: &Value) -> Arc<Quota> {
    let quota = compile(config, Stores::default());
    use_up_to_now(&quota, || {});
    quota
}

fn compile(config: &Value, stores: Stores<'_>) -> Arc<Quota> {
    let configs = json!({ "q": config, "parent": { "limit": 10_000, "window": "1s" } });
    let configs = serde_json::from_value(configs).unwrap_or_default();
    let quotas = Quotas::compile(&configs, None, stores, &[], &mut Vec::new());
    let Some(quota) = quotas.get("q").cloned() else { unreachable!("the config is good") };
    quota
}

/// Uses a quota: each of the last milliseconds had a call. A shared one has a clock of its own, which `pass`
/// moves on.
fn use_up_to_now(quota: &Quota, pass: impl Fn()) {
    for milliseconds in 1..=2_000 {
        pass();
        let now = NOW - Duration::from_millis(2_001 - milliseconds);
        call(quota, now);
    }
    pass();
}

/// Makes a call. Its thread has turned to it, and knows the time.
fn call(quota: &Quota, now: Timestamp) {
    let Ok(mut grant) = quota.take(now, &[b"account"], 1) else { unreachable!("there is enough") };
    grant.responded(now);
    grant.settle(now, 1);
}

fn sliding() -> Arc<Quota> {
    quota(&json!({ "limit": 10_000, "window": "1s" }))
}

fn fixed() -> Arc<Quota> {
    quota(&json!({ "limit": 10_000, "window": "1s", "kind": "fixed" }))
}

fn bucket() -> Arc<Quota> {
    quota(&json!({ "limit": 10_000, "window": "1s", "kind": "token-bucket" }))
}

fn slots() -> Arc<Quota> {
    quota(&json!({ "limit": 10_000, "kind": "concurrency" }))
}

fn grouped() -> Arc<Quota> {
    quota(&json!({ "limit": 10_000, "window": "1s", "group_by": "account" }))
}

fn child() -> Arc<Quota> {
    quota(&json!({ "limit": 10_000, "window": "1s", "parent": "parent" }))
}

fn shared_sliding() -> Arc<Quota> {
    shared(&json!({ "limit": 10_000, "window": "1s", "store": "redis" }))
}

fn shared_fixed() -> Arc<Quota> {
    shared(&json!({ "limit": 10_000, "window": "1s", "kind": "fixed", "store": "redis" }))
}

fn shared_bucket() -> Arc<Quota> {
    shared(&json!({ "limit": 10_000, "window": "1s", "kind": "token-bucket", "store": "redis" }))
}

fn shared_slots() -> Arc<Quota> {
    shared(&json!({ "limit": 10_000, "kind": "concurrency", "store": "redis" }))
}

#[library_benchmark(config = at_most(900, 1_180))]
#[bench::sliding(sliding())]
#[bench::fixed(fixed())]
#[bench::bucket(bucket())]
#[bench::slots(slots())]
fn grant(quota: Arc<Quota>) -> Arc<Quota> {
    call(&quota, black_box(NOW));
    quota
}

// The price of sharing is the difference to `grant`.
#[library_benchmark(config = at_most(1_100, 2_600))]
#[bench::sliding(shared_sliding())]
#[bench::fixed(shared_fixed())]
#[bench::bucket(shared_bucket())]
#[bench::slots(shared_slots())]
fn grant_shared(quota: Arc<Quota>) -> Arc<Quota> {
    call(&quota, black_box(NOW));
    quota
}

#[library_benchmark(config = at_most(1_750, 2_300))]
#[bench::grouped(grouped())]
#[bench::child(child())]
fn grant_by_more(quota: Arc<Quota>) -> Arc<Quota> {
    call(&quota, black_box(NOW));
    quota
}

library_benchmark_group!(name = quotas, benchmarks = [grant, grant_shared, grant_by_more]);
main!(library_benchmark_groups = [quotas]);
