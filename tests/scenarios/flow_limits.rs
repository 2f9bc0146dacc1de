//! Quotas under load: a provider never gets more calls than it allows, from any number of clients.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::load::Load;
use egret_tests::metered::{Metered, by_window};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::{until, until_true};

/// Calls that the provider allows per second.
const LIMIT: u64 = 100;
const CLIENTS: usize = 200;

/// Returns the numbers of calls that the rate-limited endpoint admitted and refused.
fn counted(provider: &BuiltIn) -> (u64, u64) {
    let window = &provider.counters()["rate_limits"]["k"];
    let figure = |name: &str| window[name].as_u64().unwrap_or(0);
    (figure("admitted"), figure("refused"))
}

/// Sends requests from all clients over and over until `probe` finds something.
fn under_load<T>(egret: &Egret, probe: impl FnMut() -> Option<T>) -> T {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                let mut client = egret.client();
                while !stop.load(Relaxed) {
                    let response = client.get(egret.address(), "/origin/rate-limit/100/1s?key=k").response();
                    assert!(matches!(response.status, 200 | 429), "{response:?}");
                }
            });
        }
        let found = until("the load had its effect", probe);
        stop.store(true, Relaxed);
        found
    })
}

fn rate_limited(remedy: &str) -> (BuiltIn, Egret) {
    let provider = BuiltIn::start(&[]);
    let flows = format!(
        "quotas: {{ live: {{ limit: {LIMIT}, window: 1s }} }}\nflows: [{{ name: all, remedies: [{remedy}] }}]\n"
    );
    let egret = Config::with_origin(format!("http://{}", provider.address())).flows(flows).start();
    (provider, egret)
}

#[test]
fn without_a_quota_the_provider_refuses_many() {
    let (provider, egret) = rate_limited("timeout: { total: 1h }");
    let refused = under_load(&egret, || Some(counted(&provider).1).filter(|refused| *refused > 1_000));
    assert!(refused > 1_000);
}

#[test]
fn limit_and_queue_prevent_every_refusal() {
    for remedy in ["limit: { quota: live }", "queue: { quota: live, max_wait: 1h }"] {
        let (provider, egret) = rate_limited(remedy);
        under_load(&egret, || (counted(&provider).0 > LIMIT * 2).then_some(()));
        assert_eq!(counted(&provider).1, 0, "{remedy}");
    }
}

#[test]
fn no_window_by_the_clock_gets_more_than_the_limit() {
    const WINDOW: Duration = Duration::from_millis(500);
    let origin = Metered::start(Duration::from_millis(20));
    let flows = "quotas: { live: { kind: fixed, limit: 10, window: 500ms } }\n\
                 flows: [{ name: all, remedies: [queue: { quota: live, max_wait: 1h }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let load = Load::without_pause(egret.address(), "/origin/", 30, true);
    origin.until_called(45);
    let calls = origin.calls();
    drop(egret);
    load.finish();
    let (came, responded) =
        (calls.iter().map(|call| call.came), calls.iter().filter_map(|call| call.responded));
    for windows in [by_window(came, WINDOW), by_window(responded, WINDOW)] {
        assert!(windows.values().all(|used| *used <= 10), "{windows:?}");
    }
}

#[test]
fn groups_have_their_shares_to_the_request_and_the_figures_say_so() {
    let origin = Provider::plain();
    let flows = "quotas:\n  live:\n    { kind: token-bucket, limit: 40, window: 24h, group_by: 'header:x-team',\n      \
                 shares: { groups: { small: 25%, large: 75% }, default: block } }\n\
                 flows: [{ name: all, remedies: [limit: { quota: live }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let through = |team: &str| -> usize {
        let ask = || {
            let mut client = egret.client();
            let request =
                format!("GET /origin/ HTTP/1.1\r\nHost: {}\r\nX-Team: {team}\r\n\r\n", egret.address());
            (0..20).filter(|_| client.send(&request).response().status == 200).count()
        };
        thread::scope(|scope| {
            let clients: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
            clients.into_iter().map(|client| client.join().unwrap()).sum()
        })
    };
    let (large, small) = thread::scope(|scope| {
        let small = scope.spawn(|| through("small"));
        (through("large"), small.join().unwrap())
    });
    assert_eq!((small, large), (10, 30));
    assert_eq!(through("other"), 0);
    assert_eq!(origin.requests().len(), 40);

    let metrics = egret.control_get("/metrics").text().to_owned();
    for line in [
        "egret_quota_used{quota=\"live\",group=\"small\"} 10",
        "egret_quota_limit{quota=\"live\",group=\"large\"} 30",
        "egret_remedy_decisions_total{flow=\"all\",remedy=\"limit\",mode=\"enforce\",decision=\"next\"} 40",
        "egret_remedy_decisions_total{flow=\"all\",remedy=\"limit\",mode=\"enforce\",decision=\"answer\"} 200",
    ] {
        assert!(metrics.lines().any(|found| found == line), "{line} is not in\n{metrics}");
    }
    let flows = egret.control_get("/api/v1/flows").json();
    assert_eq!(flows["flows"][0]["remedies"][0]["decisions"]["answer"], 200);
    let quotas = egret.control_get("/api/v1/quotas").json();
    assert_eq!(quotas["quotas"][0]["groups"][0]["name"], "large");
}

#[test]
fn a_reload_loses_nobody_who_waits_and_keeps_what_is_counted() {
    let times: Arc<Mutex<Vec<Instant>>> = Arc::default();
    let noted = Arc::clone(&times);
    let origin = Provider::with_responses(move |_| {
        noted.lock().unwrap().push(Instant::now());
        ok("done")
    });
    let config = |size: usize| {
        let flows = format!(
            "quotas: {{ live: {{ limit: 5, window: 1s }} }}\n\
             flows: [{{ name: all, remedies: [queue: {{ quota: live, size: {size} }}] }}]\n"
        );
        Config::with_origin(origin.url()).flows(flows)
    };
    let egret = config(100).start();
    let mut clients: Vec<_> = (0..15).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/");
    }
    until_true("all are forwarded or waiting", || {
        let idle = egret.stat("/clients/idle");
        let forwarded = times.lock().unwrap().len();
        egret.stat("/clients/open") == 15 && idle <= forwarded as u64 && forwarded >= 5
    });
    egret.rewrite(config(200).yaml());
    egret.until_logged("config reloaded");
    // One more client, under the new config, queues behind them.
    clients.push(egret.client());
    clients.last_mut().unwrap().get(egret.address(), "/origin/");
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    let times = times.lock().unwrap();
    assert_eq!(times.len(), 16);
    for six in times.windows(6) {
        assert!(six[5] - six[0] >= Duration::from_secs(1), "six calls within {:?}", six[5] - six[0]);
    }
}

#[test]
fn a_limit_that_cannot_read_what_a_call_cost_says_so_once() {
    let origin = Provider::with_responses(|_| ok("token=hunter2"));
    let flows = "quotas: { tokens: { limit: 5, window: 24h, cost: { request: '0', response: 'int(response.body.used)' } } }\n\
                 flows: [{ name: spend, remedies: [limit: { quota: tokens }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    for _ in 0..10 {
        egret.get("/").assert_forwarded(200);
    }
    egret.until_logged("\"flow\":\"spend\"");
    until_true("all have been counted", || {
        let flows = egret.control_get("/api/v1/flows").json();
        flows["flows"][0]["remedies"][0]["decisions"]["fail"] == 10
    });
    let log = egret.log();
    let of_flows = |line: &&str| line.contains("\"level\":\"WARN\"") && line.contains("\"flow\"");
    let warnings: Vec<&str> = log.lines().filter(of_flows).collect();
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    for part in ["\"flow\":\"spend\"", "\"remedy\":\"limit\"", "`cost.response` of the quota `tokens`"] {
        assert!(warnings[0].contains(part), "{part} is not in {}", warnings[0]);
    }
    assert!(!log.contains("hunter2"), "{log}");
}
