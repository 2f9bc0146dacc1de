//! A limit of concurrent calls that follows the provider's latency.

use std::process::Stdio;

use egret_tests::bench;
use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::permits::busy;
use egret_tests::process::Process;
use egret_tests::wait::{until, until_value};
use serde_json::Value;

/// Starts a client that sends 1,500 requests per second, as long as fewer than 100 are unanswered, until it
/// is dropped.
fn load(egret: &Egret, target: &str) -> Process {
    let mut command = bench::command();
    command.args(["-q", "-k", "-l", "-c", "100", "--rate", "1500", "-t", "3600"]);
    command.arg(format!("{}{target}", egret.url())).stdout(Stdio::null());
    Process::start(&mut command)
}

/// Returns the only group of the only quota.
fn group(egret: &Egret) -> Value {
    let mut quotas = egret.control_get("/api/v1/quotas").json();
    assert_eq!(quotas["quotas"][0]["name"], "all/concurrency", "{quotas}");
    quotas["quotas"][0]["groups"][0].take()
}

fn limit(egret: &Egret) -> u64 {
    group(egret)["limit"].as_u64().unwrap()
}

#[test]
fn an_adaptive_limit_falls_while_calls_wait_for_each_other() {
    let _permit = busy();
    let quick = BuiltIn::start(&["--delay", "50ms"]);
    // Calls wait in line, so the latency is that of one call times the calls in flight.
    let slow = BuiltIn::start(&["--delay", "40ms", "--parallel", "1"]);
    let flows =
        "flows: [{ name: all, remedies: [concurrency: { max: 50, adaptive: { min: 2, tolerance: 3 } }] }]\n";
    let url = |provider: &BuiltIn| format!("http://{}", provider.address());
    let egret = Config::with_origin(url(&quick)).provider("slow", url(&slow)).flows(flows).start();

    let flows = egret.control_get("/api/v1/flows").json();
    let does = &flows["flows"][0]["remedies"][0]["does"];
    assert_eq!(does, "at most 2 to 50 at once, as latency allows (quota concurrency)");

    let client = load(&egret, "/origin/get");
    until_value("the limit has risen", || limit(&egret), |limit| *limit >= 12);
    let baseline_us = group(&egret)["latency"]["baseline_us"].as_u64().unwrap();
    assert!(baseline_us >= 50_000, "{baseline_us}");
    drop(client);

    let client = load(&egret, "/slow/get");
    until_value("the limit is low", || limit(&egret), |limit| *limit <= 6);
    let refused = until("a request is refused", || {
        Some(egret.get("/")).filter(|response| response.field("x-egret-generated").is_some())
    });
    refused.assert_generated(429, "too-many-in-flight");
    drop(client);

    let client = load(&egret, "/origin/get");
    until_value("the limit has recovered", || limit(&egret), |limit| *limit >= 12);
    drop(client);

    let client = load(&egret, "/origin/status/503");
    until_value("refusals of the provider lower the limit", || limit(&egret), |limit| *limit == 2);
    drop(client);

    let _client = load(&egret, "/origin/get");
    until_value("the limit has recovered again", || limit(&egret), |limit| *limit >= 12);
    let metrics = egret.control_get("/metrics");
    assert!(metrics.text().contains("egret_quota_limit{quota=\"all/concurrency\",group=\"\"} "));
}
