//! Attacks on the control port: peers that hold its connections, and pages of other sites that request
//! changes.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;

/// Well below the timeout of an idle connection, and above the time of a busy machine to serve a request.
const SOON: Duration = Duration::from_secs(3);

/// Opens connections that have sent half of a request's head.
fn hold(egret: &Egret, count: usize) -> Vec<TcpStream> {
    let half = |_| {
        let mut client = Client::connect(egret.control());
        client.offer("GET /healthz HTTP/1.1\r\nHost: loc");
        client.stream().try_clone().unwrap()
    };
    (0..count).map(half).collect()
}

/// Returns the duration of a `/healthz` request on a new connection.
fn probe(egret: &Egret) -> Duration {
    let started = Instant::now();
    assert_eq!(egret.control_get("/healthz").status, 200);
    started.elapsed()
}

#[test]
fn half_requests_do_not_keep_a_probe_from_the_same_address_waiting() {
    let egret = Config::default().start();
    let held = hold(&egret, 200);
    for number in 1..=3 {
        let took = probe(&egret);
        assert!(took < SOON, "probe {number} took {took:?}");
    }
    drop(held);
}

/// Returns the status code of a purge of all caches, with these field lines.
fn purge(egret: &Egret, fields: &str) -> u16 {
    let host = egret.control();
    let head = format!("POST /api/v1/cache/purge?all=true HTTP/1.1\r\nHost: {host}\r\n{fields}");
    let request = format!("{head}Content-Length: 0\r\nConnection: close\r\n\r\n");
    Client::connect(host).send(request).response().status
}

#[test]
fn a_cross_site_change_without_origin_is_refused() {
    let egret = Config::default().start();
    for site in ["cross-site", "same-site"] {
        assert_eq!(purge(&egret, &format!("Sec-Fetch-Site: {site}\r\n")), 403, "{site}");
    }
}

#[test]
fn an_origin_of_another_scheme_is_another_origin() {
    let egret = Config::default().start();
    for scheme in ["ftp", "https", "chrome-extension"] {
        assert_eq!(purge(&egret, &format!("Origin: {scheme}://{}\r\n", egret.control())), 403, "{scheme}");
    }
}
