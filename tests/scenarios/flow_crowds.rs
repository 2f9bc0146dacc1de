//! A thousand concurrent clients, and never more calls than a quota allows, as counted by the provider.

use std::sync::Arc;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::process::raise_open_files;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::{Watched, far_from_now, until_true};

const CLIENTS: usize = 1_000;
const LIMIT: usize = 50;

fn clients(egret: &Egret) -> Vec<Client> {
    raise_open_files();
    (0..CLIENTS).map(|_| egret.client()).collect()
}

/// Sends a request from each client before the first one reads its response.
fn ask(egret: &Egret, clients: &mut [Client], target: impl Fn(usize) -> &'static str) {
    for (number, client) in clients.iter_mut().enumerate() {
        client.get(egret.address(), target(number));
    }
}

/// Number of forwarded requests. The others must be rejected with the time of the next units.
fn through(clients: &mut [Client]) -> usize {
    let is_through = |client: &mut Client| {
        let response = client.response();
        if response.status == 200 {
            response.assert_forwarded(200);
            return true;
        }
        response.assert_generated(429, "quota-exceeded");
        assert!(response.field("retry-after").is_some(), "{response:?}");
        false
    };
    clients.iter_mut().map(is_through).filter(|through| *through).count()
}

#[test]
fn every_quota_over_time_passes_exactly_its_limit() {
    let calendar = format!("kind: calendar, period: day, renews: {{ time: '{}' }}", far_from_now());
    for keys in [
        "kind: sliding, window: 24h",
        "kind: fixed, starts: first, window: 24h",
        "kind: token-bucket, window: 1000h",
        &calendar,
    ] {
        let origin = Provider::plain();
        let flows = format!(
            "quotas: {{ live: {{ limit: {LIMIT}, {keys} }} }}\n\
             flows: [{{ name: all, remedies: [limit: {{ quota: live }}] }}]\n"
        );
        let egret = Config::with_origin(origin.url()).flows(flows).start();
        let mut clients = clients(&egret);
        for expected in [LIMIT, 0] {
            ask(&egret, &mut clients, |_| "/origin/");
            assert_eq!(through(&mut clients), expected, "{keys}");
        }
        assert_eq!(origin.requests().len(), LIMIT, "{keys}");
    }
}

#[test]
fn two_quotas_below_one_let_its_limit_through_together() {
    let origin = Provider::plain();
    let flows = "quotas:\n  \
                 all: { limit: 50, window: 24h }\n  \
                 a: { limit: 40, window: 24h, parent: all }\n  \
                 b: { limit: 40, window: 24h, parent: all }\n\
                 flows:\n  \
                 - { name: a, match: { path: /a }, remedies: [limit: { quota: a }] }\n  \
                 - { name: b, match: { path: /b }, remedies: [limit: { quota: b }] }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let mut clients = clients(&egret);
    ask(&egret, &mut clients, |number| if number % 2 == 0 { "/origin/a" } else { "/origin/b" });
    assert_eq!(through(&mut clients), LIMIT);
    let of = |target: &str| origin.requests().iter().filter(|request| request.target() == target).count();
    let (a, b) = (of("/a"), of("/b"));
    assert_eq!(a + b, LIMIT);
    assert!(a <= 40 && b <= 40, "{a} and {b}");
    // Calls that the parent rejected were not charged to the child quotas.
    let quotas = egret.control_get("/api/v1/quotas").json();
    let used = |name: &str| {
        let quotas = quotas["quotas"].as_array().unwrap();
        let quota = quotas.iter().find(|quota| quota["name"] == name).unwrap();
        quota["groups"][0]["used"].as_u64().unwrap()
    };
    assert_eq!([used("a"), used("b"), used("all")], [a, b, LIMIT].map(|count| count as u64));
}

/// Calls in progress at the provider, and their maximum.
#[derive(Debug, Default)]
struct UnderWay {
    now: usize,
    peak: usize,
    /// Number of calls that may end.
    released: usize,
}

#[test]
fn a_quota_of_calls_at_once_is_never_exceeded_at_the_provider() {
    let under_way = Arc::new(Watched::<UnderWay>::default());
    let counting = Arc::clone(&under_way);
    let origin = Provider::with_responses(move |_| {
        counting.change(|calls| {
            calls.now += 1;
            calls.peak = calls.peak.max(calls.now);
        });
        counting.until("the call may end", |calls| (calls.released > 0).then_some(()));
        counting.change(|calls| {
            calls.now -= 1;
            calls.released -= 1;
        });
        ok("done")
    });
    let flows = format!(
        "quotas: {{ live: {{ limit: {LIMIT}, kind: concurrency }} }}\n\
         flows: [{{ name: all, remedies: [limit: {{ quota: live }}] }}]\n"
    );
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let mut clients = clients(&egret);
    for wave in 1..=3 {
        ask(&egret, &mut clients, |_| "/origin/");
        let refused = (wave * (CLIENTS - LIMIT)) as u64;
        until_true("all are rejected except those in progress", || {
            egret.generated("quota-exceeded") == refused && under_way.read(|calls| calls.now) == LIMIT
        });
        under_way.change(|calls| calls.released = LIMIT);
        let through = clients.iter_mut().map(Client::response).filter(|answer| answer.status == 200).count();
        assert_eq!(through, LIMIT);
        assert_eq!(origin.requests().len(), wave * LIMIT);
        // A call gives its place back after its response.
        until_true("all calls have ended", || egret.stat("/clients/idle") == CLIENTS as u64);
    }
    assert_eq!(under_way.read(|calls| calls.peak), LIMIT);
}

#[test]
fn a_reload_keeps_the_places_of_calls_that_are_under_way() {
    let released = Arc::new(Watched::<bool>::default());
    let waiting = Arc::clone(&released);
    let origin = Provider::with_responses(move |_| {
        waiting.until("the calls may end", |released| released.then_some(()));
        ok("done")
    });
    let flows = "flows: [{ name: all, remedies: [concurrency: { max: 2 }] }]\n";
    let config = Config::with_origin(origin.url()).flows(flows);
    let egret = config.start();
    let mut clients = [egret.client(), egret.client()];
    for client in &mut clients {
        client.get(egret.address(), "/origin/");
    }
    origin.until_requested(2);
    egret.rewrite(config.provider("more", origin.url()).yaml());
    egret.until_logged("config reloaded");
    egret.get("/").assert_generated(429, "too-many-in-flight");
    released.change(|released| *released = true);
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    egret.get("/").assert_forwarded(200);
}
