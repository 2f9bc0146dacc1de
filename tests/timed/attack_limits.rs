//! Limits that waste their allowance.

use std::thread;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Response;
use egret_tests::metered::{Metered, by_window, now_us};
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
