//! Share of a provider's allowance that quotas of each kind use, with few and many waiting clients and a slow
//! provider; and that no call exceeds it.

use std::thread;
use std::time::Duration;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::load::Load;
use egret_tests::metered::{Call, Metered, by_window};
use egret_tests::process::raise_open_files;
use egret_tests::wait::until_true;

/// A provider, a quota equal to its allowance, and clients that wait for it.
#[derive(Debug, Clone, Copy)]
struct Case {
    kind: &'static str,
    limit: usize,
    window_ms: u64,
    /// Number of waiting requests, or of clients that send again and again if `asks_again`.
    clients: usize,
    asks_again: bool,
    response_ms: u64,
    remedy: &'static str,
}

const CASE: Case = Case {
    kind: "kind: fixed",
    limit: 1,
    window_ms: 500,
    clients: 1,
    asks_again: true,
    response_ms: 0,
    remedy: "queue: { quota: live, max_wait: 10m }",
};

impl Case {
    fn window(&self) -> Duration {
        Duration::from_millis(self.window_ms)
    }

    /// Sends requests until the provider was called `count` times.
    fn calls(&self, count: usize) -> Vec<Call> {
        raise_open_files();
        let origin = Metered::start(Duration::from_millis(self.response_ms));
        let flows = format!(
            "quotas: {{ live: {{ {}, limit: {}, window: {}ms }} }}\nflows: [{{ name: all, remedies: [{}] }}]\n",
            self.kind, self.limit, self.window_ms, self.remedy
        );
        let egret = Config::with_origin(origin.url()).flows(flows).start();
        if self.asks_again {
            let load = Load::without_pause(egret.address(), "/origin/", self.clients, true);
            origin.until_called(count);
            let calls = origin.calls();
            drop(egret);
            load.finish();
            return calls;
        }
        let _clients = waiting(&egret, self.clients);
        origin.until_called(count);
        origin.calls()
    }

    /// Returns the share of the allowance used from the call `first` on, with `calls` cut off after whole
    /// refills; and the mean response time in microseconds.
    fn used(&self, calls: &[Call], first: usize) -> (f64, f64) {
        let refills = (calls.len() - 1 - first) / self.limit;
        let last = first + refills * self.limit;
        let took = calls[last].came - calls[first].came;
        let allowed = real(refills as u64) * real(self.window_ms * 1_000);
        let responses: Vec<u64> = calls.iter().filter_map(|call| Some(call.responded? - call.came)).collect();
        let response = real(responses.iter().sum()) / real(responses.len() as u64);
        (allowed / real(took), response)
    }

    /// Asserts the limit in clock-aligned windows of the provider, by arrival and by response time.
    fn assert_within_windows_by_the_clock(&self, calls: &[Call]) {
        for times in [came(calls), responded(calls)] {
            let windows = by_window(times, self.window());
            assert!(windows.values().all(|used| *used <= self.limit), "{self:?}: {windows:?}");
        }
    }

    /// Asserts the same in any window, wherever it begins.
    fn assert_within_any_window(&self, calls: &[Call]) {
        for mut times in [came(calls), responded(calls)] {
            times.sort_unstable();
            for within in times.windows(self.limit + 1) {
                let took = within[self.limit] - within[0];
                assert!(took >= self.window_ms * 1_000, "{self:?}: {} calls in {took} µs", within.len());
            }
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "times of a test are far below 2^52 µs")]
fn real(number: u64) -> f64 {
    number as f64
}

fn came(calls: &[Call]) -> Vec<u64> {
    calls.iter().map(|call| call.came).collect()
}

fn responded(calls: &[Call]) -> Vec<u64> {
    calls.iter().filter_map(|call| call.responded).collect()
}

/// Runs all cases in parallel.
fn at_once<const N: usize>(cases: [Case; N], test: impl Fn(Case) + Sync) {
    thread::scope(|scope| {
        for case in cases {
            let test = &test;
            scope.spawn(move || test(case));
        }
    });
}

/// Returns `count` clients that have all sent a request.
fn waiting(egret: &Egret, count: usize) -> Vec<Client> {
    let mut clients: Vec<Client> = (0..count).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/");
    }
    clients
}

/// Asserts that a clock-aligned quota uses its windows, except for the share that the partial first window
/// may cost the second.
fn assert_windows_by_the_clock_are_used(case: Case, windows: usize) {
    let calls = case.calls((windows + 2) * case.limit);
    case.assert_within_windows_by_the_clock(&calls);
    let (used, _) = case.used(&calls, 2 * case.limit);
    assert!(used >= 0.95, "{case:?}: {used}");
}

#[test]
fn one_client_uses_all_windows_by_the_clock() {
    assert_windows_by_the_clock_are_used(Case { response_ms: 20, ..CASE }, 7);
}

#[test]
fn thirty_clients_use_all_windows_with_fast_responses() {
    assert_windows_by_the_clock_are_used(Case { limit: 10, clients: 30, response_ms: 20, ..CASE }, 7);
}

#[test]
fn twelve_clients_use_all_windows_with_slow_responses() {
    let case = Case { limit: 3, window_ms: 1_000, clients: 12, response_ms: 300, ..CASE };
    assert_windows_by_the_clock_are_used(case, 4);
}

#[test]
fn a_thousand_who_wait_use_all_windows_by_the_clock() {
    let case = Case { limit: 50, clients: 1_000, asks_again: false, ..CASE };
    at_once([0, 300].map(|response_ms| Case { response_ms, ..case }), |case| {
        assert_windows_by_the_clock_are_used(case, 6);
    });
}

#[test]
fn a_limit_that_lets_wait_uses_all_windows_by_the_clock() {
    let remedy = "limit: { quota: live, on_exceed: queue }";
    assert_windows_by_the_clock_are_used(Case { limit: 5, clients: 20, response_ms: 300, remedy, ..CASE }, 7);
}

#[test]
fn windows_from_the_first_call_on_are_used() {
    let kind = "kind: fixed, starts: first";
    let case = Case { kind, limit: 5, clients: 20, response_ms: 20, ..CASE };
    let calls = case.calls(9 * case.limit);
    let (used, _) = case.used(&calls, 2 * case.limit);
    assert!(used >= 0.95, "{case:?}: {used}");
}

fn assert_sliding_windows_are_used(case: Case, windows: usize) {
    let case = Case { kind: "kind: sliding", ..case };
    let calls = case.calls((windows + 1) * case.limit + 1);
    case.assert_within_any_window(&calls);
    let (used, response) = case.used(&calls, case.limit);
    let window = real(case.window_ms * 1_000);
    let max = window / (window + response);
    assert!(used >= 0.95 * max, "{case:?}: {used} of {max}");
}

#[test]
fn sliding_windows_are_used_but_for_the_time_of_a_response() {
    let case = |limit, clients, response_ms| Case { limit, window_ms: 1_000, clients, response_ms, ..CASE };
    at_once([case(5, 20, 0), case(5, 20, 300), case(1, 1, 20)], |case| {
        assert_sliding_windows_are_used(case, 3);
    });
}

#[test]
fn a_thousand_waiting_clients_nearly_use_sliding_windows() {
    let case =
        Case { limit: 50, window_ms: 1_000, clients: 1_000, asks_again: false, response_ms: 20, ..CASE };
    assert_sliding_windows_are_used(case, 3);
}

#[test]
fn a_token_bucket_is_used_as_far_as_its_burst_reaches() {
    let case = |response_ms| Case {
        kind: "kind: token-bucket, burst: 10",
        limit: 20,
        window_ms: 1_000,
        clients: 40,
        response_ms,
        ..CASE
    };
    at_once([case(20), case(300)], |case| {
        let calls = case.calls(10 + 61);
        for mut times in [came(&calls), responded(&calls)] {
            times.sort_unstable();
            assert_never_emptied(&times);
        }
        // Seven units are refilled in 300 ms, and ten are available.
        let (used, _) = case.used(&calls, 10);
        assert!(used >= 0.95, "{case:?}: {used}");
    });
}

/// Asserts that a bucket of 10 units at the provider, refilled at 20 per second, never runs empty.
fn assert_never_emptied(times: &[u64]) {
    let (mut debt, mut last) = (0_u64, times[0]);
    for time in times {
        debt = debt.saturating_sub((time - last) * 20) + 1_000_000;
        last = *time;
        assert!(debt <= 10_000_000, "{debt} at {time}");
    }
}

#[test]
fn late_clients_are_refused_when_that_is_known() {
    // One call per second, responses after 300 ms: the first response shows that the third refill is too
    // late.
    let origin = Metered::start(Duration::from_millis(300));
    let flows = "quotas: { live: { limit: 1, window: 1s } }\n\
                 flows: [{ name: all, remedies: [queue: { quota: live, max_wait: 3500ms }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let clients = waiting(&egret, 6);
    // It is called at 0, 1.3 and 2.6 s. The other three are rejected before the second call.
    until_true("three are rejected", || egret.generated("queue-timeout") == 3);
    assert_eq!(origin.calls().len(), 1);
    let served =
        clients.into_iter().map(|mut client| client.response().status).filter(|status| *status == 200);
    assert_eq!(served.count(), 3);
}
