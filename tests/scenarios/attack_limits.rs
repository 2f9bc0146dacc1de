//! Limits that waste their allowance, do not count used units, or do not report when to retry.

use std::thread;
use std::time::{Duration, Instant};

use egret_tests::coded::coded;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::metered::{Metered, by_window, now_us};
use egret_tests::provider::Provider;
use egret_tests::wait::until_true;

const WINDOW: Duration = Duration::from_millis(500);

/// Sends `count` requests at once. Returns each response and its latency.
fn at_once(egret: &Egret, count: usize) -> Vec<(Response, Duration)> {
    let asked = Instant::now();
    let ask = || {
        let response = egret.get("/");
        (response, asked.elapsed())
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..count).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).collect()
    })
}

fn limited(origin: &Metered, quota: &str, remedy: &str) -> Egret {
    let flows =
        format!("quotas: {{ live: {{ {quota} }} }}\nflows: [{{ name: all, remedies: [{remedy}] }}]\n");
    Config::with_origin(origin.url()).flows(flows).start()
}

/// Sends fourteen calls at once; two per half second are allowed.
fn assert_no_window_is_lost(quota: &str, remedy: &str, response: Duration) {
    let origin = Metered::start(response);
    let egret = limited(&origin, quota, remedy);
    for (answer, _) in at_once(&egret, 14) {
        answer.assert_forwarded(200);
    }
    let windows = by_window(origin.calls().iter().map(|call| call.came), WINDOW);
    // Calls in flight at the end of the first window also count in the second.
    let later: Vec<u64> = windows.keys().skip(1).copied().collect();
    let is_gap = |pair: &[u64]| pair[1] - pair[0] > 1;
    assert!(!later.windows(2).any(is_gap), "{remedy}: windows are left out: {windows:?}");
}

#[test]
fn a_queue_on_windows_by_the_clock_leaves_none_of_them_out() {
    for response in [Duration::ZERO, Duration::from_millis(150)] {
        assert_no_window_is_lost(
            "limit: 2, window: 500ms, kind: fixed",
            "queue: { quota: live, max_wait: 18s }",
            response,
        );
    }
}

#[test]
fn a_limit_that_lets_wait_leaves_no_window_by_the_clock_out() {
    assert_no_window_is_lost(
        "limit: 2, window: 500ms, kind: fixed",
        "limit: { quota: live, on_exceed: queue }",
        Duration::from_millis(20),
    );
}

#[test]
fn a_queue_uses_each_window_from_first_call() {
    let origin = Metered::start(Duration::from_millis(20));
    let egret = limited(
        &origin,
        "limit: 2, window: 500ms, kind: fixed, starts: first",
        "queue: { quota: live, max_wait: 18s }",
    );
    at_once(&egret, 14);
    let calls = origin.calls();
    assert_eq!(calls.len(), 14);
    // Seven windows in succession; if every second one were skipped, it would take 5.5 s.
    let took = Duration::from_micros(calls[13].came - calls[0].came);
    assert!(took < Duration::from_millis(4_500), "{took:?}");
}

#[test]
fn only_requests_without_time_are_refused_immediately() {
    let origin = Metered::start(Duration::ZERO);
    let egret =
        limited(&origin, "limit: 1, window: 1s, kind: fixed", "queue: { quota: live, max_wait: 3500ms }");
    // Prevents that a request's turn comes just when its wait ends.
    until_true("a second began 100 to 300 ms ago", || (100_000..300_000).contains(&(now_us() % 1_000_000)));
    let responses = at_once(&egret, 7);
    let received = responses.iter().filter(|(response, _)| response.status == 429);
    for (response, after) in received {
        response.assert_generated(429, "queue-timeout");
        assert!(response.field("retry-after").is_some(), "{response:?}");
        assert!(
            *after < Duration::from_millis(1_500),
            "rejected after {after:?}, with a wait of at most 3.5 s"
        );
    }
    let served = responses.iter().filter(|(response, _)| response.status == 200).count();
    assert_eq!(served, 4, "one at once, and one in each of the windows that begin in the next 3.5 s");
}

const USED: &[u8] = br#"{"usage":{"total_tokens":60}}"#;

/// Requests the body four times; each costs 60 of 100 units.
fn assert_costs_are_counted(media_type: &str, coding: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let origin = Provider::responding([head.as_bytes(), body].concat());
    let flows = "quotas: { tokens: { limit: 100, window: 24h,\n  \
                 cost: { request: '0', response: 'int(response.body.usage.total_tokens)' } } }\n\
                 flows: [{ name: all, remedies: [limit: { quota: tokens }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let mut client = egret.client();
    let statuses: Vec<u16> = (0..4)
        .map(|_| {
            let response = client.get(egret.address(), "/origin/").response();
            assert!(
                response.status != 200 || response.body == body,
                "the client gets it unchanged: {response:?}"
            );
            response.status
        })
        .collect();
    let quotas = egret.control_get("/api/v1/quotas").json();
    let used = &quotas["quotas"][0]["groups"][0]["used"];
    assert_eq!(
        (used.as_u64(), &statuses[..]),
        (Some(120), &[200, 200, 429, 429][..]),
        "{media_type} under {coding}: of 100 units each response costs 60"
    );
}

#[test]
fn the_cost_in_a_coded_response_is_counted() {
    assert_costs_are_counted("application/json", "gzip", &coded("gzip", USED));
    assert_costs_are_counted("application/json", "deflate", &coded("deflate", USED));
}

#[test]
fn the_cost_in_a_coded_event_stream_is_counted() {
    let events = [
        b"data: {\"delta\":\"a\"}\n\n".repeat(100),
        b"data: ".to_vec(),
        USED.to_vec(),
        b"\n\ndata: [DONE]\n\n".to_vec(),
    ];
    assert_costs_are_counted("text/event-stream", "gzip", &coded("gzip", &events.concat()));
}

#[test]
fn a_refusal_that_a_fallback_words_anew_says_when_to_try_again() {
    let origin = Provider::plain();
    let flows = "quotas: { live: { limit: 1, window: 24h } }\n\
                 flows:\n  - name: all\n    remedies:\n      \
                 - fallback: { on_refused: [quota-exceeded], response: { status: 420, headers: { x-own: '1' }, body: 'calm down' } }\n      \
                 - limit: { quota: live }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    egret.get("/").assert_forwarded(200);
    let response = egret.get("/");
    assert_eq!((response.status, response.text(), response.field("x-own")), (420, "calm down", Some("1")));
    let seconds = response.field("retry-after").and_then(|value| value.parse::<u64>().ok());
    assert!(
        seconds.is_some_and(|seconds| (86_000..=87_000).contains(&seconds)),
        "Retry-After is missing: {response:?}"
    );
    assert_eq!(response.field("ratelimit-policy"), Some("\"live\";q=1;w=86400"), "{response:?}");
    assert!(
        response.field("ratelimit").is_some_and(|value| value.starts_with("\"live\";r=0;t=")),
        "{response:?}"
    );
}
