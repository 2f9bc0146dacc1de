//! A config that names another collector: what waits for the old one goes to the new one first.

use std::fmt::Display;

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::peers::Collector;
use egret_tests::provider::Provider;
use egret_tests::recorded::until_exporter;
use serde_json::Value;

const WAITING: usize = 20;
const NEWER: usize = 5;

fn config(origin: &Provider, collector: impl Display) -> Config {
    Config::with_origin(origin.url()).flows(format!(
        "exporters: {{ out: {{ type: alf, version: 2.0.0, transport: {{ http: '{collector}' }}, flush_after: 50ms }} }}\n\
         flows: [{{ name: all, diagnoses: [har: {{ export: out, obfuscate: false }}] }}]\n"
    ))
}

fn call(egret: &Egret, numbers: std::ops::Range<usize>) {
    for number in numbers {
        egret.get(&format!("/{number}")).assert_forwarded(200);
    }
}

#[test]
fn waiting_records_reach_the_collector_that_a_reload_names() {
    let (origin, closed, collector) =
        (Provider::plain(), ClosedPort::take(), Collector::start("collector.py", &[]));
    let egret = config(&origin, format!("http://{}", closed.address())).start();
    call(&egret, 0..WAITING);
    until_exporter(&egret, "out", "they wait on the disk", |out| {
        out["put"] == WAITING && out["spooled_bytes"].as_u64() > Some(0)
    });
    egret.rewrite(config(&origin, collector.address()).yaml());
    until_exporter(&egret, "out", "the exporter is new", |out| out["put"] == 0);
    call(&egret, WAITING..WAITING + NEWER);
    let received = collector.received("saved ", WAITING + NEWER);
    let paths = received.iter().map(|document| {
        let document: Value = serde_json::from_str(document).unwrap();
        let url = document["entries"][0]["request"]["url"].as_str().unwrap();
        url.rsplit('/').next().unwrap().parse::<usize>().unwrap()
    });
    let mut paths: Vec<_> = paths.collect();
    // Each worker has a ring of its own, and neighbours may be of different workers.
    let (waiting, newer) = paths.split_at_mut(WAITING);
    waiting.sort_unstable();
    newer.sort_unstable();
    assert_eq!(paths, (0..WAITING + NEWER).collect::<Vec<_>>());
    until_exporter(&egret, "out", "nothing waits", |out| out["up"] == true && out["spooled_bytes"] == 0);
}
