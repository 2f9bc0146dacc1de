//! Attacks on the control port: peers that hold its connections, and pages of other sites that request
//! changes.

use std::io::ErrorKind;
use std::net::TcpStream;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::wait;

/// Number of connections that are held. The port keeps 64 of them.
const HELD: usize = 200;

/// Opens connections that have sent half of a request's head.
fn hold(egret: &Egret, count: usize) -> Vec<TcpStream> {
    let half = |_| {
        let mut client = Client::connect(egret.control());
        client.offer("GET /healthz HTTP/1.1\r\nHost: loc");
        client.stream().try_clone().unwrap()
    };
    (0..count).map(half).collect()
}

/// Returns `true` if the port has closed none of these connections.
fn are_open(held: &[TcpStream]) -> bool {
    held.iter().all(|stream| {
        stream.set_nonblocking(true).unwrap();
        stream.peek(&mut [0]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
    })
}

#[test]
fn half_requests_do_not_keep_a_probe_from_the_same_address_waiting() {
    let egret = Config::default().start();
    // On a busy machine, some may be given up before the probe is sent.
    wait::until_true("a probe is answered before a half request is given up", || {
        let held = hold(&egret, HELD);
        assert_eq!(egret.control_get("/healthz").status, 200);
        are_open(&held[HELD - 32..])
    });
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
