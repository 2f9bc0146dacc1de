//! A provider that is down: its circuit opens, and a reload keeps it open.

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;

const CALLS: usize = 20;

fn guarded(url: &str) -> Config {
    let flows = "flows:\n  - name: all\n    remedies:\n      \
                 - circuit-breaker: { consecutive: 2, open: 1h, open_max: 1h }\n      \
                 - timeout: { first_byte: 200ms }\n";
    Config::with_origin(url).flows(flows)
}

/// Opens the circuit with two calls that fail this way.
fn open(egret: &Egret, status: u16, slug: &str) {
    for _ in 0..2 {
        egret.get("/").assert_generated(status, slug);
    }
}

fn assert_open(egret: &Egret) {
    let mut client = egret.client();
    for _ in 0..CALLS {
        client.get(egret.address(), "/origin/").response().assert_generated(503, "circuit-open");
    }
}

#[test]
fn an_open_circuit_spares_a_dead_provider() {
    let closed = ClosedPort::take();
    let egret = guarded(&format!("http://{}", closed.address())).start();
    open(&egret, 502, "connect-failed");
    assert_open(&egret);
    assert_eq!(egret.provider_stat("origin", "connect_failures"), 2);

    let silent = Provider::scripted(|peer| while peer.request().is_some() {});
    let egret = guarded(&silent.url()).start();
    open(&egret, 504, "first-byte-timeout");
    assert_open(&egret);
    silent.until_requested(2);
    assert_eq!(silent.requests().len(), 2);
}

#[test]
fn a_reload_does_not_close_it() {
    let silent = Provider::scripted(|peer| while peer.request().is_some() {});
    let config = guarded(&silent.url());
    let egret = config.start();
    open(&egret, 504, "first-byte-timeout");
    egret.rewrite(config.provider("more", silent.url()).yaml());
    egret.until_logged("config reloaded");
    assert_open(&egret);
    silent.until_requested(2);
    assert_eq!(silent.requests().len(), 2);
    let flows = egret.control_get("/api/v1/flows").json();
    assert_eq!(flows["flows"][0]["remedies"][0]["decisions"]["answer"], CALLS);
}
