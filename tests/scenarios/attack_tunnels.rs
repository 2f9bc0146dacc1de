//! Tunnels count towards the limits.

use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, Response};
use egret_tests::provider::{Peer, Provider};
use egret_tests::wait;

fn tunnel(egret: &Egret, origin: &Provider) -> (Client, Response) {
    let mut client = egret.client();
    client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address()));
    let response = client.response_to("HEAD");
    (client, response)
}

fn assert_refused(response: &Response, status: u16, slug: &str) {
    assert_eq!((response.status, response.field("x-egret-error")), (status, Some(slug)), "{response:?}");
    assert!(response.field("retry-after").is_some());
}

#[test]
fn tunnels_take_places_among_the_exchanges_under_way() {
    let origin = Provider::scripted(Peer::stall);
    let egret = Config::with_origin(origin.url()).gateway("limits: { exchanges: 2 }").start();
    let held: Vec<_> = (0..2).map(|_| tunnel(&egret, &origin)).collect();
    assert!(held.iter().all(|(_, opened)| opened.status == 200), "{held:?}");
    assert_refused(&tunnel(&egret, &origin).1, 429, "too-many-in-flight");
    egret.get("/").assert_generated(429, "too-many-in-flight");
    origin.until_connected(2);
    assert_eq!(origin.connections(), 2);
    drop(held);
    wait::until_true("a place is free again", || tunnel(&egret, &origin).1.status == 200);
}

#[test]
fn tunnels_take_connections_of_the_provider() {
    let origin = Provider::scripted(Peer::stall);
    let config = Config::default().provider_with("origin", origin.url(), "pool: { connections: 2 }");
    let egret = config.gateway("timeouts: { first_byte: 300ms }").start();
    let held: Vec<_> = (0..2).map(|_| tunnel(&egret, &origin)).collect();
    assert!(held.iter().all(|(_, opened)| opened.status == 200), "{held:?}");
    assert_refused(&tunnel(&egret, &origin).1, 503, "pool-full");
    egret.get("/").assert_generated(503, "pool-full");
    origin.until_connected(2);
    assert_eq!(origin.connections(), 2);
    drop(held);
    wait::until_true("a connection is free again", || egret.get("/").status == 504);
}
