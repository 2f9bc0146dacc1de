//! Reloads and shutdown under load: neither loses a request.

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_tests::egret::Config;
use egret_tests::http::Client;
use egret_tests::load::Load;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::{self, Watched};

#[test]
fn fifty_reloads_in_succession_under_load_lose_nothing() {
    let (origin, spare) = (Provider::plain(), Provider::plain());
    let config = Config::with_origin(origin.url());
    let egret = config.start();
    let kept = Load::start(egret.address(), "/origin/kept", 4, true);
    let fresh = Load::start(egret.address(), "/origin/fresh", 2, false);
    for number in 1..=50_u64 {
        // Another provider is added and removed, and the load's provider gets other limits.
        let limits = format!("pool: {{ idle: {} }}", 10 + number);
        let changed = match number % 3 {
            0 => config.clone(),
            1 => config.clone().provider("spare", spare.url()),
            _ => Config::default().provider_with("origin", origin.url(), &limits),
        };
        let hits = egret.provider_stat("origin", "pool_hits");
        egret.rewrite(changed.yaml());
        egret.hang_up();
        wait::until_true("the change is applied, and the load goes on", || {
            egret.stat("/reloads") >= number && egret.provider_stat("origin", "pool_hits") > hits
        });
    }
    let (kept, fresh) = (kept.finish(), fresh.finish());
    let reloads = egret.stat("/reloads");
    println!("{} and {} exchanges during {reloads} reloads", kept.completed, fresh.completed);
    for tally in [kept, fresh] {
        assert!(tally.failures.is_empty() && tally.refused == 0, "{tally:?}");
        assert!(tally.completed == tally.sent && tally.completed > 0, "{tally:?}");
    }
    assert_eq!(egret.stat("/reloads_refused"), 0, "{}", egret.log());
}

#[test]
fn sigterm_under_load_loses_nothing() {
    let origin = Provider::plain();
    let mut egret = Config::with_origin(origin.url()).start();
    let load = Load::start(egret.address(), "/origin/", 8, true);
    wait::until_true("the load is running", || egret.provider_stat("origin", "pool_hits") > 200);
    egret.terminate();
    assert!(egret.until_ended().success());
    let tally = load.finish();
    assert!(tally.failures.is_empty(), "{tally:?}");
    assert_eq!(tally.completed, tally.sent);
    assert_eq!(tally.refused, 8, "every client learned of the end by a refused connection");
}

#[test]
fn sigterm_waits_for_exchanges_in_flight_and_takes_no_new_connections() {
    const EXCHANGES: usize = 50;
    let released = Arc::new(Watched::<bool>::default());
    let waiting = Arc::clone(&released);
    let origin = Provider::scripted(move |peer| {
        if peer.request().is_some() {
            waiting.until("the scenario goes on", |released| released.then_some(()));
            peer.send(ok("in time"));
        }
    });
    // No other test listens at this address, and so gets the port that is freed.
    let config = Config::with_origin(origin.url()).gateway("workers: 1").listen(["'127.0.0.5:0'"]);
    let mut egret = config.start();
    let mut idle = egret.client();
    idle.get(egret.address(), "/nobody/").response().assert_generated(404, "unknown-provider");
    let mut clients: Vec<_> = (0..EXCHANGES).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/");
    }
    origin.until_requested(EXCHANGES);
    assert_eq!(egret.control_get("/readyz").status, 200);
    egret.terminate();
    wait::until_true("new connections are refused", || TcpStream::connect(egret.address()).is_err());
    assert_eq!(egret.control_get("/readyz").status, 503);
    assert_eq!(egret.control_get("/healthz").status, 200);
    // The worker learns of the end a moment after the listener is closed, and then closes idle connections.
    idle.assert_closed();
    released.change(|released| *released = true);
    for client in &mut clients {
        let response = client.response();
        assert_eq!(response.assert_forwarded(200).text(), "in time");
        assert_eq!(response.field("connection"), Some("close"));
        client.assert_closed();
    }
    assert_eq!(egret.until_ended().code(), Some(0));
}

#[test]
fn a_drain_ends_in_time_even_where_an_exchange_does_not() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.stall();
    });
    let mut egret = Config::with_origin(origin.url()).gateway("timeouts: { drain: 500ms }").start();
    let mut client = egret.client();
    client.get(egret.address(), "/origin/");
    origin.until_requested(1);
    let start = Instant::now();
    egret.terminate();
    egret.until_ended();
    // Without the config, it would take half a minute.
    assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
}

#[test]
fn reloads_add_and_remove_a_provider() {
    let (origin, second) = (Provider::plain(), Provider::responding(ok("second")));
    let config = Config::with_origin(origin.url());
    let egret = config.start();
    let target = |client: &mut Client| client.get(egret.address(), "/second/").response();
    let mut client = egret.client();
    target(&mut client).assert_generated(404, "unknown-provider");
    egret.rewrite(config.clone().provider("second", second.url()).yaml());
    wait::until_true("the change is applied by itself", || egret.stat("/reloads") == 1);
    // A worker that was held up for a second gets it later.
    wait::until_true("the worker has it", || target(&mut client).status == 200);
    assert_eq!(target(&mut client).assert_forwarded(200).text(), "second");
    egret.rewrite(config.yaml());
    egret.hang_up();
    wait::until_true("the change is applied", || target(&mut client).status == 404);
    assert_eq!(client.get(egret.address(), "/origin/").response().text(), "hello");
}

#[test]
fn a_reload_keeps_connections_counters_and_what_is_under_way() {
    let released = Arc::new(Watched::<bool>::default());
    let waiting = Arc::clone(&released);
    let origin = Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/slow" {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfirst");
                waiting.until("the scenario goes on", |released| released.then_some(()));
                peer.send("after");
            } else {
                peer.send(ok("hello"));
            }
        }
    });
    let config = Config::with_origin(origin.url()).gateway("workers: 1");
    let egret = config.start();
    egret.get("/").assert_forwarded(200);
    let mut slow = egret.client();
    assert_eq!(slow.get(egret.address(), "/origin/slow").head().status, 200);
    let mut other = egret.client();
    other.get(egret.address(), "/origin/").response().assert_forwarded(200);
    let connections = origin.connections();
    egret.rewrite(config.provider("more", origin.url()).yaml());
    egret.hang_up();
    wait::until_true("the change is applied", || {
        other.get(egret.address(), "/more/").response().status == 200
    });
    other.get(egret.address(), "/origin/").response().assert_forwarded(200);
    released.change(|released| *released = true);
    assert_eq!(slow.bytes(10), b"firstafter");
    slow.get(egret.address(), "/origin/").response().assert_forwarded(200);
    assert!(origin.connections() <= connections + 1, "only the new provider needs a connection");
    assert!(egret.provider_stat("origin", "pool_hits") >= 3);
}

#[test]
fn a_bad_reload_changes_nothing_and_says_why() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url());
    let egret = config.start();
    for (bad, received) in [
        ("gateway:\n  lsten: [\"127.0.0.1:0\"]\n", "egret.yaml:2:3"),
        ("gateway: [\n", "egret.yaml:"),
        ("providers:\n  origin: { url: \"gopher://x\" }\n", "egret.yaml:2:"),
        ("gateway:\n  listen: [{ address: \"127.0.0.1:0\", provider: nobody }]\n", "nobody"),
    ] {
        let refused = egret.stat("/reloads_refused");
        egret.rewrite(bad);
        egret.hang_up();
        wait::until_true("the config is rejected", || egret.stat("/reloads_refused") > refused);
        egret.until_logged(received);
        egret.get("/").assert_forwarded(200);
    }
    egret.until_logged("did you mean");
    assert_eq!(egret.stat("/reloads"), 0);
    std::fs::remove_file(egret.directory().join("egret.yaml")).unwrap();
    egret.hang_up();
    egret.get("/").assert_forwarded(200);
    egret.rewrite(config.provider("second", origin.url()).yaml());
    wait::until_true("a good config is applied after bad ones", || egret.stat("/reloads") > 0);
    wait::until_true("a worker has it", || {
        egret.client().get(egret.address(), "/second/").response().status == 200
    });
}

#[test]
fn a_connection_of_a_listener_that_a_reload_removed_reaches_nobody() {
    let (origin, other) = (Provider::plain(), Provider::plain());
    // The worker that closes the listener also has the connection.
    let config = Config::with_origin(origin.url()).gateway("workers: 1");
    let reverse = "{ address: \"127.0.0.2:0\", provider: origin }";
    let egret = config.clone().listen(["\"127.0.0.1:0\"", reverse]).start();
    let mut client = Client::connect(egret.listener(1));
    client.get("any.example", "/a").response().assert_forwarded(200);
    egret.rewrite(config.yaml());
    egret.hang_up();
    wait::until_true("the listener is gone", || TcpStream::connect(egret.listener(1)).is_err());
    wait::until_true("the change is applied", || egret.stat("/reloads") > 0);
    for target in ["/a".to_owned(), "/origin/a".to_owned(), format!("{}/a", other.url())] {
        client.get("any.example", &target).response().assert_generated(404, "unknown-provider");
    }
    assert_eq!((origin.requests().len(), other.connections()), (1, 0));
    egret.get("/").assert_forwarded(200);
}

#[test]
fn changing_a_provider_closes_its_idle_connections() {
    changes_a_provider("");
}

#[test]
fn changing_a_provider_closes_connections_that_flows_have_used() {
    changes_a_provider("flows: [{ name: all, remedies: [{ timeout: { total: 1h } }] }]");
}

/// Changes a provider that has an idle connection, which calls with these flows have left.
fn changes_a_provider(flows: &str) {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    egret.get("/").assert_forwarded(200);
    wait::until_true("it is idle", || egret.provider_stat("origin", "connections_idle") == 1);
    let changed = Config::default().provider_with("origin", origin.url(), "pool: { idle: 7 }");
    egret.rewrite(changed.flows(flows).yaml());
    egret.hang_up();
    origin.until_ended(1);
    wait::until_true("none is idle or open", || {
        ["connections_idle", "connections_open"]
            .iter()
            .all(|figure| egret.provider_stat("origin", figure) == 0)
    });
    egret.get("/").assert_forwarded(200);
    wait::until_true("the new one is idle", || egret.provider_stat("origin", "connections_idle") == 1);
}

#[test]
fn sigterm_does_not_wait_for_idle_connections() {
    const BUFFER_BYTES: usize = 16 << 10;
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url()).gateway("timeouts: { keep_alive: 1h, drain: 1h }");
    let mut egret = config.start();
    let mut client = egret.client();
    let start = format!("GET /origin/ HTTP/1.1\r\nHost: {}\r\nX-Fill: ", egret.address());
    let fill = "a".repeat(BUFFER_BYTES - start.len() - 4);
    client.send(format!("{start}{fill}\r\n\r\n")).response().assert_forwarded(200);
    egret.terminate();
    assert!(egret.until_ended().success());
    client.assert_closed();
}
