//! Injected failures: an application sees what a failing provider would do to it, and only while it should.

use egret_tests::config_api::ConfigApi;
use egret_tests::egret::{Config, Egret};
use egret_tests::http2::{DATA, END_STREAM, HEADERS, Http2Client, RST_STREAM};
use egret_tests::provider::{Peer, Provider, ok};
use egret_tests::wait;
use std::time::{Duration, Instant};

const EVENT: &str = "data: {\"text\":\"hello\"}\n\n";

/// Starts Egret with one fault.
fn faulty(provider: &Provider, fault: &str) -> Egret {
    let flows = format!("flows:\n  - name: trouble\n    remedies:\n      - fault: {{ {fault} }}\n");
    Config::with_origin(provider.url()).flows(flows).start()
}

/// Starts an event stream of chunks, each with one event, that ends with the connection only.
fn endless(peer: &mut Peer) {
    while peer.request().is_some() {
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        for _ in 0..20 {
            if !peer.send(format!("{:x}\r\n{EVENT}\r\n", EVENT.len())) {
                return;
            }
        }
        peer.stall();
    }
}

fn injected(egret: &Egret, kind: &str) -> u64 {
    let faults = egret.control_get("/api/v1/faults").json();
    faults["faults"][0]["injected"][kind].as_u64().unwrap()
}

/// Reads the frames of a stream up to its end: the status, the data, and whether it was reset.
fn stream(client: &mut Http2Client, stream: u32) -> (Option<u16>, Vec<u8>, bool) {
    let (mut status, mut data) = (None, Vec::new());
    while let Some(frame) = client.receive() {
        if frame.stream != stream {
            continue;
        }
        match frame.kind {
            HEADERS => status = frame.status(),
            DATA => data.extend_from_slice(&frame.payload),
            RST_STREAM => return (status, data, true),
            _ => {}
        }
        if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
            break;
        }
    }
    (status, data, false)
}

#[test]
fn a_fault_aborts_its_share_of_the_calls() {
    let provider = Provider::plain();
    let egret = faulty(&provider, "share: 0.25, seed: 7, abort: 503, enabled: true");
    let mut client = egret.client();
    let mut aborted = 0;
    for _ in 0..400 {
        let response = client.get(egret.address(), "/origin/").response();
        if response.status == 503 {
            response.assert_generated(503, "fault-injected");
            aborted += 1;
        } else {
            response.assert_forwarded(200);
        }
    }
    // Five standard deviations of a binomial distribution: 5 · √(400 · 0.25 · 0.75) = 43.
    assert!((57..=143).contains(&aborted), "{aborted}");
    assert_eq!(provider.requests().len() as u64, 400 - aborted);
    assert_eq!(injected(&egret, "abort"), aborted);
    let metrics = egret.control_get("/metrics");
    let line = format!(
        "egret_faults_injected_total{{flow=\"trouble\",remedy=\"fault\",fault=\"abort\"}} {aborted}\n"
    );
    assert!(metrics.text().contains(&line), "{}", metrics.text());
}

#[test]
fn a_stream_breaks_off_exactly_after_the_nth_event() {
    let provider = Provider::scripted(endless);
    let egret = faulty(&provider, "cut: { events: 3 }, enabled: true");
    let mut client = egret.client();
    client.get(egret.address(), "/origin/");
    client.head().assert_forwarded(200);
    let rest = client.rest();
    let text = String::from_utf8(rest).unwrap();
    assert_eq!(text.matches("data: ").count(), 3, "{text}");
    assert!(text.trim_end_matches("\r\n").ends_with("\n\n"), "{text:?}");
    assert!(!text.ends_with("0\r\n\r\n"), "the end is missing: {text:?}");

    let mut client = Http2Client::connect(egret.address());
    client.get(1, egret.address(), "/origin/");
    let (status, data, is_reset) = stream(&mut client, 1);
    assert_eq!((status, is_reset), (Some(200), true));
    assert_eq!(String::from_utf8(data).unwrap(), EVENT.repeat(3));
    assert_eq!(injected(&egret, "cut"), 2);
    // The gateway asks for a body that it can read.
    assert!(provider.requests().iter().all(|request| request.values("accept-encoding") == ["identity"]));
}

#[test]
fn a_body_breaks_off_after_so_many_bytes() {
    let provider = Provider::responding(ok(&"x".repeat(100_000)));
    let egret = faulty(&provider, "cut: { after: 32KiB }, enabled: true");
    let mut client = egret.client();
    client.get(egret.address(), "/origin/");
    client.head().assert_forwarded(200);
    assert_eq!(client.rest().len(), 32_768);

    let mut client = Http2Client::connect(egret.address());
    client.get(1, egret.address(), "/origin/");
    let (status, data, is_reset) = stream(&mut client, 1);
    assert_eq!((status, data.len(), is_reset), (Some(200), 32_768, true));
}

#[test]
fn a_reset_reaches_the_client_and_not_the_provider() {
    let provider = Provider::plain();
    let egret = faulty(&provider, "reset: true, enabled: true");
    let mut client = egret.client();
    client.get(egret.address(), "/origin/");
    assert_eq!(client.rest(), b"");
    let mut client = Http2Client::connect(egret.address());
    client.get(1, egret.address(), "/origin/");
    assert_eq!(stream(&mut client, 1), (None, Vec::new(), true));
    assert_eq!(provider.requests().len(), 0);
    assert_eq!(injected(&egret, "reset"), 2);
}

#[test]
fn a_delay_is_a_wait_and_a_slow_body_takes_its_time() {
    let provider = Provider::responding(ok(&"x".repeat(3_000)));
    let egret = faulty(&provider, "delay: 300ms, slow: 10KiB/s, enabled: true");
    let before = Instant::now();
    let response = egret.get("/");
    assert_eq!(response.assert_forwarded(200).text().len(), 3_000);
    // 0.3 s of delay, and 3,000 bytes at 10 KiB/s, of which the first part of 50 ms passes at once.
    let taken = before.elapsed();
    assert!(taken >= Duration::from_millis(500), "{taken:?}");
    let flows = egret.control_get("/api/v1/flows").json();
    let remedy = &flows["flows"][0]["remedies"][0];
    assert!(remedy["waited_us"].as_u64().unwrap() >= 300_000, "{remedy}");
    assert_eq!((remedy["waits"].as_u64(), injected(&egret, "slow")), (Some(1), 1));

    let mut client = Http2Client::connect(egret.address());
    let before = Instant::now();
    client.get(1, egret.address(), "/origin/");
    let (status, data, is_reset) = stream(&mut client, 1);
    assert_eq!((status, data.len(), is_reset), (Some(200), 3_000, false));
    assert!(before.elapsed() >= Duration::from_millis(500));
}

#[test]
fn a_fault_is_switched_over_the_api_and_frees_calls_that_wait() {
    let provider = Provider::plain();
    let egret = faulty(&provider, "delay: 1h, enabled: false");
    egret.get("/").assert_forwarded(200);
    let api = ConfigApi::of(&egret);
    let switched = api.call("POST /api/v1/faults/on?flow=trouble&for=30m", "", "");
    assert_eq!((switched.status, switched.json()["switched"].as_u64()), (200, Some(1)));
    let mut waiting = egret.client();
    waiting.get(egret.address(), "/origin/");
    wait::until_true("the call waits", || injected(&egret, "delay") == 1);
    assert_eq!(egret.control_get("/api/v1/faults").json()["faults"][0]["state"], "on");
    // An hour would pass without the switch.
    assert_eq!(api.call("POST /api/v1/faults/off", "", "").json()["switched"], 1);
    waiting.response().assert_forwarded(200);
    egret.get("/").assert_forwarded(200);
    assert_eq!(injected(&egret, "delay"), 1);
    assert_eq!(api.call("POST /api/v1/faults/on?flow=other", "", "").status, 404);
    assert_eq!(api.call("POST /api/v1/faults/on", "", "").status, 400);
    let host = egret.control();
    let unproven = egret_tests::http::Client::connect(host)
        .send(format!("POST /api/v1/faults/off HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"))
        .response();
    assert_eq!(unproven.status, 401);
}

#[test]
fn a_fault_spares_calls_after_its_end() {
    let provider = Provider::plain();
    let egret = faulty(&provider, "abort: 503, until: \"2020-01-01T00:00:00Z\"");
    egret.get("/").assert_forwarded(200);
    assert_eq!(egret.control_get("/api/v1/faults").json()["faults"][0]["state"], "ended");
}
