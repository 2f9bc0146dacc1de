//! A fault that is switched off over the API ends at once, also for the calls that it holds back.

use std::time::{Duration, Instant};

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::Config;
use egret_tests::provider::Provider;
use egret_tests::wait;

/// Longest time from the request that switches the fault until the client has its response.
const OFF_MAX: Duration = Duration::from_millis(100);
const TIMES: u64 = 20;

#[test]
fn a_fault_is_off_within_a_tenth_of_a_second() {
    let provider = Provider::plain();
    let flows = "flows: [{ name: trouble, remedies: [fault: { delay: 1h, enabled: false }] }]\n";
    let egret = Config::with_origin(provider.url()).flows(flows).start();
    let api = ConfigApi::of(&egret);
    let delayed = || {
        let faults = egret.control_get("/api/v1/faults").json();
        faults["faults"][0]["injected"]["delay"].as_u64().unwrap()
    };
    let mut slowest = Duration::ZERO;
    for time in 1..=TIMES {
        assert_eq!(api.call("POST /api/v1/faults/on?flow=trouble&for=30m", "", "").status, 200);
        let mut waiting = egret.client();
        waiting.get(egret.address(), "/origin/");
        wait::until_true("the call waits", || delayed() == time);
        let begun = Instant::now();
        assert_eq!(api.call("POST /api/v1/faults/off", "", "").json()["switched"], 1);
        waiting.response().assert_forwarded(200);
        slowest = slowest.max(begun.elapsed());
    }
    eprintln!("off after {:.1} ms at most, {TIMES} times", slowest.as_secs_f64() * 1e3);
    assert!(slowest <= OFF_MAX, "{slowest:?}");
}
