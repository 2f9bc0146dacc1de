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

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use egret_clock::Timestamp;
use egret_quota::{Quota, Quotas, Stores};
use gungraun::prelude::*;
use gungraun::{Callgrind, CallgrindMetrics, EventKind};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp::from_secs(1_795_307_476);

/// Creates a quota in use: each of the last milliseconds had a call.
fn quota(config: &Value) -> Arc<Quota> {
    let configs = json!({ "q": config, "parent": { "limit": 10_000, "window": "1s" } });
    let configs = serde_json::from_value(configs).unwrap_or_default();
    let quotas = Quotas::compile(&configs, None, Stores::default(), &[], &mut Vec::new());
    let Some(quota) = quotas.get("q").cloned() else { unreachable!("the config is good") };
    for milliseconds in 1..=2_000 {
        let now = NOW - Duration::from_millis(2_001 - milliseconds);
        call(&quota, now);
    }
    quota
}

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

fn at_most(instructions: u64) -> LibraryBenchmarkConfig {
    let limits = [(CallgrindMetrics::SingleEvent(EventKind::Ir), instructions)];
    LibraryBenchmarkConfig::default().tool(Callgrind::default().hard_limits(limits)).clone()
}

#[library_benchmark(config = at_most(770))]
#[bench::sliding(sliding())]
#[bench::fixed(fixed())]
#[bench::bucket(bucket())]
#[bench::slots(slots())]
fn grant(quota: Arc<Quota>) -> Arc<Quota> {
    call(&quota, black_box(NOW));
    quota
}

#[library_benchmark(config = at_most(1_590))]
#[bench::grouped(grouped())]
#[bench::child(child())]
fn grant_by_more(quota: Arc<Quota>) -> Arc<Quota> {
    call(&quota, black_box(NOW));
    quota
}

library_benchmark_group!(name = quotas, benchmarks = [grant, grant_by_more]);
main!(library_benchmark_groups = [quotas]);
