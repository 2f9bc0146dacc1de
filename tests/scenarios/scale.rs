//! Many connections: cheap idle ones, and busy ones that all get their response.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use egret_tests::egret::Config;
use egret_tests::http::Client;
use egret_tests::http2::{HEADERS, Http2Client};
use egret_tests::peers::{Nginx, ab};
use egret_tests::pki::Authority;
use egret_tests::process::{raise_open_files, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::{self, Watched};

#[test]
fn ten_thousand_idle_connections_hold_no_buffers() {
    const CONNECTIONS: usize = 10_000;
    let files = raise_open_files();
    assert!(
        files >= 12_000,
        "this test opens 10,000 connections, and only {files} files may be open: raise `ulimit -Hn`"
    );
    let origin = Provider::plain();
    // All must be open at the same time, however long it takes to open them.
    let egret = Config::with_origin(origin.url()).gateway("timeouts: { keep_alive: 1h }").start();
    for _ in 0..20 {
        egret.get("/").assert_forwarded(200);
    }
    let before = egret.process().resident_bytes();
    let clients: Vec<Client> = (0..CONNECTIONS)
        .map(|_| {
            let mut client = egret.client();
            client.get(egret.address(), "/origin/").response().assert_forwarded(200);
            client
        })
        .collect();
    wait::until_true("all are idle", || egret.stat("/clients/idle") == CONNECTIONS as u64);
    let all = egret.process().resident_bytes();
    let growth = all.saturating_sub(before);
    println!(
        "{CONNECTIONS} idle connections: {} KiB resident, {} KiB more than at rest, {} bytes each",
        all >> 10,
        growth >> 10,
        growth / CONNECTIONS as u64
    );
    assert!(before <= 16 << 20, "{} KiB at rest", before >> 10);
    assert!(all <= 24 << 20, "{} KiB", all >> 10);
    let mut last = clients.into_iter().last().unwrap();
    last.get(egret.address(), "/origin/").response().assert_forwarded(200);
    wait::until_true("all aborted exchanges have ended", || egret.stat("/clients/open") == 1);
}

#[test]
fn an_idle_connection_of_http2_holds_little_memory() {
    const CONNECTIONS: usize = 1_000;
    raise_open_files();
    let origin = Provider::plain();
    let egret =
        Config::with_origin(origin.url()).gateway("workers: 1\n  timeouts: { keep_alive: 1h }").start();
    let connect = || {
        let mut client = Http2Client::connect(egret.address());
        client.get(1, egret.address(), "/origin/");
        assert_eq!(client.until_on(1, HEADERS).status(), Some(200));
        client
    };
    let first: Vec<Http2Client> = (0..20).map(|_| connect()).collect();
    let before = egret.process().resident_bytes();
    let more: Vec<Http2Client> = (0..CONNECTIONS).map(|_| connect()).collect();
    let all = (first.len() + more.len()) as u64;
    wait::until_true("all are idle", || egret.stat("/clients/idle") == all);
    let each = egret.process().resident_bytes().saturating_sub(before) / CONNECTIONS as u64;
    println!("{CONNECTIONS} idle connections of HTTP/2: {each} bytes each");
    assert!(each <= 40 << 10, "{each} bytes");
}

#[test]
fn two_thousand_exchanges_at_once_all_get_their_responses() {
    const EXCHANGES: usize = 2_000;
    raise_open_files();
    let (arrived, have_all_asked) = (AtomicUsize::new(0), Watched::<bool>::default());
    // No response is sent before all requests have arrived.
    let origin = Provider::scripted(move |peer| {
        let Some(request) = peer.request() else { return };
        // Only the last one wakes the others: if each did, they would be woken millions of times.
        if arrived.fetch_add(1, Relaxed) + 1 == EXCHANGES {
            have_all_asked.change(|have_all_asked| *have_all_asked = true);
        }
        have_all_asked.until("all requests have arrived", |have_all_asked| have_all_asked.then_some(()));
        peer.send(ok(&format!("{} {}", request.target(), "x".repeat(8_000))));
    });
    // The queue of the provider's listener holds few of the connections.
    let timeouts = "timeouts: { connect: 5m, first_byte: 10m }";
    let egret = Config::with_origin(origin.url()).gateway(timeouts).start();
    let mut clients: Vec<Client> = (0..EXCHANGES).map(|_| egret.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        let own = egret.address();
        client
            .send(format!("POST /origin/{number} HTTP/1.1\r\nHost: {own}\r\nContent-Length: 4\r\n\r\nbody"));
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let response = client.response();
        assert!(response.assert_forwarded(200).text().starts_with(&format!("/{number} ")));
    }
    assert_eq!(origin.requests().len(), EXCHANGES);
    let read = || {
        let stats = egret.stats();
        let all = stats["providers"].as_array().unwrap();
        all.iter().find(|provider| provider["name"] == "origin").unwrap()["exchanges"].clone()
    };
    // An exchange is counted a moment after its response was sent.
    let expected = serde_json::json!([{ "method": "POST", "status": "2xx", "count": EXCHANGES }]);
    wait::until_value("all exchanges are counted", read, |counted| *counted == expected);
}

#[test]
fn two_thousand_busy_connections_under_ab() {
    raise_open_files();
    let nginx = Nginx::start(&Authority::default(), "location /small { return 200 'hello'; }");
    let egret = Config::with_origin(nginx.url()).start();
    let url = format!("{}/origin/small", egret.url());
    let report = run_checked(ab().args(["-q", "-k", "-n", "20000", "-c", "2000", "-s", "60", &url]));
    assert!(report.contains("Complete requests:      20000\n"), "{report}");
    assert!(report.contains("Failed requests:        0\n"), "{report}");
}
