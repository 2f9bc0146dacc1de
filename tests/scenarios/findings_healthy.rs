//! A gateway under healthy load has no findings. `make findings MINUTES=60` plays it for an hour.

use std::time::{Duration, Instant};

use egret_tests::egret::Config;
use egret_tests::found::findings;
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::until_recorded;
use serde_json::Value;

/// Number of minutes of load; without it, some seconds.
const MINUTES: &str = "EGRET_HEALTHY_MINUTES";
const SHORT: Duration = Duration::from_secs(5);
/// Number of calls between two looks at the findings.
const CALLS: usize = 200;

#[test]
fn healthy_load_has_no_findings() {
    let minutes = std::env::var(MINUTES).ok().map(|minutes| minutes.parse::<u64>().unwrap());
    let length = minutes.map_or(SHORT, Duration::from_mins);
    let origin = Provider::with_responses(|request| ok(request.target()));
    let flows = "quotas: { each: { limit: 100000, window: 1s } }\n\
        flows: [{ name: all, match: { provider: origin }, remedies: [timeout: 30s, retry: { attempts: 3 }, circuit-breaker: {}, queue: each], diagnoses: [metrics: {}] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let (since, mut client, mut calls) = (Instant::now(), egret.client(), 0);
    while since.elapsed() < length {
        for number in 0..CALLS {
            client.get(egret.address(), &format!("/origin/items/{number}")).response().assert_forwarded(200);
        }
        calls += CALLS as u64;
        // Load that diagnoses keep up with, also where other programs keep the processors busy.
        until_recorded(&egret, calls);
        assert_eq!(findings(&egret), [Value::Null; 0]);
    }
}
