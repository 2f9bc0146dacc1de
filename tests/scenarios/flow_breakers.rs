//! A provider that is down: the cost of calls while its circuit is open, and a reload that keeps it open.

use std::time::{Duration, Instant};

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;

const CALLS: usize = 200;

fn guarded(url: &str) -> Config {
    let flows = "flows:\n  - name: all\n    remedies:\n      \
                 - circuit-breaker: { consecutive: 2, open: 1h, open_max: 1h }\n      \
                 - timeout: { first_byte: 200ms }\n";
    Config::with_origin(url).flows(flows)
}

/// Opens the circuit with two calls that fail this way. Returns the duration of the second one.
fn open(egret: &Egret, status: u16, slug: &str) -> Duration {
    egret.get("/").assert_generated(status, slug);
    let begun = Instant::now();
    egret.get("/").assert_generated(status, slug);
    begun.elapsed()
}

/// Returns the median duration of a call that the open circuit rejects.
fn median(egret: &Egret) -> Duration {
    let mut client = egret.client();
    let mut times: Vec<_> = (0..CALLS)
        .map(|_| {
            let begun = Instant::now();
            client.get(egret.address(), "/origin/").response().assert_generated(503, "circuit-open");
            begun.elapsed()
        })
        .collect();
    times.sort();
    times[CALLS / 2]
}

/// The limit is not a measurement: the circuit avoids a failing connection attempt or a missing response,
/// which take hundreds of milliseconds here and seconds elsewhere. The median exceeds the limit only if half
/// of all calls are delayed.
#[test]
fn an_open_circuit_costs_under_a_millisecond() {
    let closed = ClosedPort::take();
    let egret = guarded(&format!("http://{}", closed.address())).start();
    open(&egret, 502, "connect-failed");
    let refused = median(&egret);
    assert!(refused < Duration::from_millis(1), "{refused:?}");

    let silent = Provider::scripted(|peer| while peer.request().is_some() {});
    let egret = guarded(&silent.url()).start();
    let without = open(&egret, 504, "first-byte-timeout");
    assert!(without >= Duration::from_millis(200), "{without:?}");
    let with = median(&egret);
    assert!(with < Duration::from_millis(1), "{with:?}");
    assert_eq!(silent.requests().len(), 2, "it gets no calls while the circuit is open");
    println!(
        "a call of a dead provider, median of {CALLS}: {refused:?} if it refuses, {with:?} if it does not respond, instead of {without:?}"
    );
}

#[test]
fn a_reload_does_not_close_it() {
    let silent = Provider::scripted(|peer| while peer.request().is_some() {});
    let config = guarded(&silent.url());
    let egret = config.start();
    open(&egret, 504, "first-byte-timeout");
    egret.rewrite(config.provider("more", silent.url()).yaml());
    egret.until_logged("config reloaded");
    let mut client = egret.client();
    for _ in 0..20 {
        client.get(egret.address(), "/origin/").response().assert_generated(503, "circuit-open");
    }
    assert_eq!(silent.requests().len(), 2);
    let flows = egret.control_get("/api/v1/flows").json();
    assert_eq!(flows["flows"][0]["remedies"][0]["decisions"]["answer"], 20);
}
