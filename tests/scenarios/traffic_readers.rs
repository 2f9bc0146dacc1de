//! Readers of live traffic that are slow or many: they lose exchanges, and traffic and memory do not notice.

use std::time::Duration;

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, ok};
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait;

/// Sends this many requests on one connection.
fn send(egret: &Egret, count: usize, target: &str) {
    let mut client = egret.client();
    for _ in 0..count {
        client.get(egret.address(), target).response().assert_forwarded(200);
    }
}

#[test]
fn a_slow_reader_loses_exchanges_and_holds_nothing_up() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).control("traffic: { entries: 20 }").start();
    let traffic = LiveTraffic::open(&egret);
    let mut lines = traffic.narrow_stream("provider=origin");
    lines.until("status");
    // Lines of 7 KiB soon fill the buffers of the connection, of 4 MiB at most, and nobody reads them. The
    // thread that records has the lowest priority.
    let long = format!("/origin/{}", "x".repeat(7_000));
    wait::until_true("traffic goes on, and far more is recorded than the list and the buffers hold", || {
        send(&egret, 200, &long);
        traffic.list("limit=0")["status"]["recorded"].as_u64().unwrap() >= 1_000
    });
    let lost = lines.until("lost");
    assert!(lost["count"].as_u64().unwrap() > 0, "{lost}");
    // The reader goes on with what is on the list.
    lines.until("exchange");
}

#[test]
fn the_list_stays_within_its_memory() {
    let origin = Provider::responding(ok(&"y".repeat(12_000)));
    let egret =
        Config::with_origin(origin.url()).control("traffic: { memory: 256KiB, bodies: 16KiB }").start();
    let traffic = LiveTraffic::open(&egret);
    send(&egret, 200, "/origin/");
    wait::until_true("all are recorded", || {
        traffic.list("limit=0")["status"]["recorded"].as_u64().unwrap() >= 200
    });
    let status = traffic.list("limit=0")["status"].clone();
    let (entries, bytes) = (status["entries"].as_u64().unwrap(), status["bytes"].as_u64().unwrap());
    assert!(bytes <= 256 << 10 && (10..30).contains(&entries), "{status}");
    assert_eq!(status["bytes_max"], 256 << 10);
}

#[test]
fn a_reader_may_ask_for_a_share() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
    let traffic = LiveTraffic::open(&egret);
    let before = traffic.list("limit=0")["status"].clone();
    let mut lines = traffic.stream("sample=10&provider=origin");
    assert_eq!(lines.until("status")["one_in"], 10);
    send(&egret, 2_000, "/origin/");
    let figure = |status: &serde_json::Value, name: &str| status[name].as_u64().unwrap();
    let since = |status: &serde_json::Value, name: &str| figure(status, name) - figure(&before, name);
    // They are counted when they are seen, and recorded later by a thread of low priority.
    let status = wait::until("all are seen, and a share is recorded", || {
        let status = traffic.list("limit=0")["status"].clone();
        (since(&status, "seen") >= 2_000 && since(&status, "recorded") >= 100).then_some(status)
    });
    assert!(since(&status, "recorded") < 320, "{status}");
}

#[test]
fn readers_are_limited_in_number() {
    let egret = Config::default().start();
    let traffic = LiveTraffic::open(&egret);
    let mut readers: Vec<_> = (0..16).map(|_| traffic.stream("")).collect();
    for reader in &mut readers {
        reader.until("status");
    }
    assert_eq!(traffic.get("/stream").status, 503);
    assert_eq!(egret.control_get("/healthz").status, 200);
    drop(readers);
    wait::until_true("they have left", || traffic.list("limit=0")["status"]["readers"] == 0);
}

#[test]
fn a_stream_ends_when_the_gateway_stops() {
    let mut egret = Config::default().start();
    let mut lines = LiveTraffic::open(&egret).stream("");
    lines.until("status");
    egret.terminate();
    while lines.next_line().is_some() {}
    assert!(egret.until_ended().success());
}

#[test]
fn a_reload_keeps_recording() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url()).gateway("workers: 1");
    let egret = config.start();
    let traffic = LiveTraffic::open(&egret);
    let flow = "flows: [{ name: new, remedies: [timeout: { total: 5s }] }]\n";
    egret.rewrite(config.flows(flow).yaml());
    egret.until_logged("config reloaded");
    wait::until_true("the new flow is listed", || {
        egret.get("/one").assert_forwarded(200);
        !traffic.exchanges("flow=new").is_empty()
    });
}

#[test]
fn a_tunnel_and_a_bad_request_are_listed() {
    let egret = Config::default().gateway("workers: 1").start();
    let traffic = LiveTraffic::open(&egret);
    let host = egret.address();
    egret.client().get(host, "/nobody/x?token=s3cr3t").response().assert_generated(404, "unknown-provider");
    egret
        .client()
        .send("CONNECT nobody.invalid:443 HTTP/1.1\r\nHost: nobody.invalid:443\r\n\r\n")
        .response_to("GET");
    let found = wait::until("the tunnel is listed", || traffic.exchanges("method=connect").pop());
    assert_eq!((&found["host"], &found["answered_by"]), (&"nobody.invalid".into(), &"egret".into()));
    assert!(Duration::from_micros(found["duration_us"].as_u64().unwrap()) < Duration::from_mins(1));
}
