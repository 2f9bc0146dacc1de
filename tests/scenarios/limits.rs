//! Every limit has a defined response.

use egret_tests::egret::Config;
use egret_tests::http::Client;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

#[test]
fn connections_above_the_limit_are_a_503_until_one_is_free() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("limits: { connections: 2 }").start();
    let mut held: Vec<Client> = (0..2).map(|_| egret.client()).collect();
    for client in &mut held {
        client.get(egret.address(), "/origin/").response().assert_forwarded(200);
    }
    let mut refused = egret.client();
    let response =
        refused.offer(format!("GET /origin/ HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address())).response();
    response.assert_generated(503, "too-many-connections");
    assert!(response.field("retry-after").is_some());
    refused.assert_closed();
    assert_eq!(egret.stat("/clients/refused"), 1);
    held.pop();
    wait::until_true("a place is free", || egret.stat("/clients/open") == 1);
    egret.get("/").assert_forwarded(200);
}

#[test]
fn exchanges_above_a_pools_limit_are_a_503_until_one_is_done() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/hold" {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\na");
                peer.stall();
            }
            peer.send(ok("free"));
        }
    });
    let config = Config::default().provider_with("origin", origin.url(), "pool: { connections: 2 }");
    let egret = config.start();
    let mut held: Vec<Client> = (0..2).map(|_| egret.client()).collect();
    for client in &mut held {
        assert_eq!(client.get(egret.address(), "/origin/hold").head().status, 200);
    }
    let mut client = egret.client();
    let response = client.get(egret.address(), "/origin/free").response();
    response.assert_generated(503, "pool-full");
    assert!(response.field("retry-after").is_some());
    held.pop().unwrap().reset();
    wait::until_true("a place is free", || egret.provider_stat("origin", "connections_open") == 1);
    assert_eq!(client.get(egret.address(), "/origin/free").response().text(), "free");
    assert_eq!(egret.generated("pool-full"), 1);
}

#[test]
fn a_full_pool_gives_its_idle_connection_to_whichever_worker_asks() {
    let origin = Provider::plain();
    let config = Config::default().provider_with("origin", origin.url(), "pool: { connections: 1 }");
    let egret = config.gateway("workers: 4").start();
    for _ in 0..20 {
        egret.get("/").assert_forwarded(200);
        wait::until_true("the connection is idle", || egret.provider_stat("origin", "connections_idle") == 1);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_connection_closes_after_its_last_allowed_request() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("limits: { requests_per_connection: 3 }").start();
    let mut client = egret.client();
    for number in 1..=3 {
        let response = client.get(egret.address(), "/origin/").response();
        assert_eq!(response.assert_forwarded(200).field("connection"), (number == 3).then_some("close"));
    }
    client.assert_closed();
}

#[test]
fn limits_on_heads_are_those_of_the_config() {
    let origin = Provider::with_responses(|request| match request.target() {
        "/large" => {
            format!("HTTP/1.1 200 OK\r\nX: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(3000)).into_bytes()
        }
        _ => ok("small"),
    });
    let limits = "limits: { start_line: 256B, head: 2KiB, fields: 10, informational: 1 }";
    let egret = Config::with_origin(origin.url()).gateway(limits).start();
    let (own, long) = (egret.address(), "a".repeat(300));
    let start = format!("GET /origin/ HTTP/1.1\r\nHost: {own}\r\n");
    let rows = [
        (format!("GET /origin/{long} HTTP/1.1\r\nHost: {own}\r\n\r\n"), 414, "uri-too-long"),
        (format!("{start}X: {}\r\n\r\n", long.repeat(7)), 431, "head-too-large"),
        (format!("{start}{}\r\n", "A: b\r\n".repeat(10)), 431, "head-too-large"),
        (format!("GET /origin/large HTTP/1.1\r\nHost: {own}\r\n\r\n"), 502, "bad-response"),
    ];
    for (request, status, slug) in rows {
        egret.client().offer(request).response().assert_generated(status, slug);
    }
    egret.client().send(format!("{start}{}\r\n", "A: b\r\n".repeat(9))).response().assert_forwarded(200);
    let large = Config::with_origin(origin.url())
        .gateway("limits: { head: 256KiB, start_line: 64KiB, fields: 256 }")
        .start();
    let target = format!("/origin/{}", "a".repeat(60_000));
    let fields = format!("X: {}\r\n", "b".repeat(700)).repeat(250);
    let request = format!("GET {target} HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", large.address());
    large.client().send(request).response().assert_forwarded(200);
    assert_eq!(origin.requests().last().unwrap().fields.iter().filter(|field| field.0 == "X").count(), 250);
}
