//! The built-in provider delays responses like go-httpbin.

use std::time::{Duration, Instant};

use egret_tests::built_in::BuiltIn;
use egret_tests::http::Response;
use egret_tests::provider_pair::{ProviderPair, request};

#[test]
fn delays_are_read_alike_and_refused_alike() {
    let pair = ProviderPair::default();
    for target in
        ["/delay/0", "/delay/0.02", "/delay/20ms", "/delay/.02", "/delay/2e-2", "/delay/0.0005", "/delay/0s"]
    {
        let echo = pair.assert_equal_json(&request("GET", target));
        assert_eq!(echo["method"], "GET");
        let (ours, theirs) =
            pair.assert_alike(&request("POST", target).content("x").field("Content-Type", "text/plain"));
        assert_eq!(ours.field("server-timing"), theirs.field("server-timing"), "{target}");
    }
    for target in [
        "/delay/11",
        "/delay/10.001",
        "/delay/1m",
        "/delay/-1",
        "/delay/-1s",
        "/delay/x",
        "/delay/1x",
        "/delay/%20",
    ] {
        let (ours, _) = pair.assert_alike(&request("GET", target));
        assert_eq!(ours.status, 400, "{target}");
    }
}

#[test]
fn a_number_without_a_unit_is_in_seconds() {
    let pair = ProviderPair::default();
    for (target, millis) in [("/delay/0.15", 150), ("/delay/150ms", 150)] {
        let started = Instant::now();
        let response = pair.built_in().get(target);
        assert!(started.elapsed() >= Duration::from_millis(millis), "{target}");
        assert_eq!(response.field("server-timing"), Some("initial_delay;dur=150.00;desc=\"initial delay\""));
    }
}

#[test]
fn drips_have_a_length_and_say_how_they_were_timed() {
    let pair = ProviderPair::default();
    for target in [
        "/drip?duration=90ms&delay=10ms&numbytes=4",
        "/drip?duration=0&delay=0&numbytes=1000",
        "/drip?duration=50ms&delay=0&numbytes=1&code=500",
    ] {
        let (ours, theirs) = pair.assert_alike(&request("GET", target));
        assert_eq!(ours.body, theirs.body, "{target}");
        assert_eq!(ours.field("content-length"), theirs.field("content-length"), "{target}");
        assert_eq!(ours.field("server-timing"), theirs.field("server-timing"), "{target}");
    }
    pair.assert_all_alike(&[
        "/drip?duration=6&delay=6",
        "/drip?duration=11",
        "/drip?delay=x",
        "/drip?numbytes=0",
        "/drip?numbytes=1048577",
        "/drip?numbytes=x",
        "/drip?code=99",
        "/drip?code=x",
    ]);
}

#[test]
fn a_drip_falls_byte_by_byte() {
    let provider = BuiltIn::start(&["--max-duration", "1h"]);
    let mut client = provider.client();
    client.get("a", "/drip?duration=1h&delay=0&numbytes=3");
    client.head();
    // The next one is half an hour away.
    assert_eq!(client.bytes(1), b"*");
}

/// Returns the lines of JSON, regardless of escaped characters.
fn lines(response: &Response) -> Vec<serde_json::Value> {
    response.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn lines_are_numbered_and_brought_within_bounds() {
    let pair = ProviderPair::default();
    for target in [
        "/stream/3?a=1",
        "/stream/0",
        "/stream/-5",
        "/stream/1000",
        "/jsonl?count=3",
        "/jsonl?count=0",
        "/jsonl?count=2&duration=20ms&delay=10ms&jitter=0.5",
    ] {
        let (ours, theirs) = pair.assert_alike(&request("GET", target));
        assert_eq!(lines(&ours), lines(&theirs), "{target}");
        assert_eq!(ours.field("transfer-encoding"), Some("chunked"), "{target}");
    }
    let (ours, theirs) = pair.assert_alike(&request("GET", "/jsonl?count=999999"));
    assert_eq!(lines(&ours).len(), lines(&theirs).len(), "the most that may be asked for");
    pair.assert_all_alike(&[
        "/stream/x",
        "/jsonl?count=x",
        "/jsonl?duration=11",
        "/jsonl?duration=0",
        "/jsonl?duration=6&delay=6",
        "/jsonl?jitter=2",
        "/jsonl?jitter=x",
    ]);
}

#[test]
fn events_are_spread_and_end_in_a_trailer() {
    let pair = ProviderPair::default();
    let started = Instant::now();
    let (ours, _) = pair.assert_alike(&request("GET", "/sse?count=3&duration=60ms&jitter=0"));
    assert!(started.elapsed() >= Duration::from_millis(60));
    assert_eq!(ours.text().matches("event: ping\ndata: {\"id\":").count(), 3);
    assert!(ours.trailers[0].1.starts_with("total_duration;dur="), "{ours:?}");
    pair.assert_all_alike(&[
        "/sse?count=0",
        "/sse?count=x",
        "/sse?count=99999",
        "/sse?duration=11",
        "/sse?duration=0",
        "/sse?duration=6&delay=6",
        "/sse?jitter=-1",
    ]);
    // The maximum count: as many as fit into the largest content.
    let refused = |count: u32| {
        let sent = request("GET", &format!("/sse?count={count}&duration=1ns&delay=11"));
        pair.assert_alike(&sent).0.text().contains("count")
    };
    assert!(!refused(18_724) && refused(18_725));
}

#[test]
fn bytes_come_at_the_rate_asked_for() {
    let pair = ProviderPair::default();
    let started = Instant::now();
    let response = pair.built_in().get("/bandwidth/64KiB/13107");
    assert!(started.elapsed() >= Duration::from_millis(190), "{:?}", started.elapsed());
    assert_eq!((response.body.len(), response.field("content-length")), (13_107, Some("13107")));
    for target in ["/bandwidth/1/100", "/bandwidth/0/1", "/bandwidth/x/1", "/bandwidth/1KiB/x"] {
        assert_eq!(pair.built_in().get(target).status, 400, "{target}");
    }
    assert_eq!(pair.built_in().get("/bandwidth/1024/0").body, b"");
}
