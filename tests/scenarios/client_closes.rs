//! Clients that close their connection before their response is complete: the call is cancelled or finished,
//! as the config has it, and the record says when the client closed.

use std::sync::Arc;

use egret_tests::cached::{flow, ok_response};
use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::pki::{Authority, anonymous};
use egret_tests::process::Directory;
use egret_tests::provider::{Peer, Provider, ok};
use egret_tests::recorded::{entries, files, until_recorded};
use egret_tests::traffic::LiveTraffic;
use egret_tests::wait::{self, Watched};

/// Starts a provider that holds each response back until it is released.
fn holding(response: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> (Provider, Arc<Watched<bool>>) {
    let released = Arc::new(Watched::<bool>::default());
    let held = Arc::clone(&released);
    let origin = Provider::scripted(move |peer: &mut Peer| {
        while peer.request().is_some() {
            held.until("the response may be sent", |released| released.then_some(()));
            peer.send(response());
        }
    });
    (origin, released)
}

fn sends(egret: &Egret, method: &str) -> Client {
    let mut client = egret.client();
    let host = egret.address();
    client.send(format!("{method} /origin/a HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"));
    client
}

fn until_noticed(egret: &Egret) {
    egret.until_logged("a client has closed its connection");
}

fn gone(egret: &Egret) -> [u64; 2] {
    ["/clients/gone_cancelled", "/clients/gone_finished"].map(|figure| egret.stat(figure))
}

#[test]
fn the_config_or_else_the_method_decides_what_becomes_of_the_call() {
    for (choice, method, is_finished) in [
        (None, "GET", false),
        (None, "HEAD", false),
        (None, "OPTIONS", false),
        (None, "POST", true),
        (None, "DELETE", true),
        (None, "REPORT", true),
        (Some("finish"), "GET", true),
        (Some("cancel"), "POST", false),
    ] {
        let (origin, released) = holding(|| ok("late"));
        let choice_line = choice.map(|choice| format!("on_client_close: {choice}")).unwrap_or_default();
        let egret = Config::with_origin(origin.url()).gateway(choice_line).start();
        let mut client = sends(&egret, method);
        origin.until_requested(1);
        client.half_close();
        until_noticed(&egret);
        if is_finished {
            released.change(|released| *released = true);
            assert_eq!(
                client.response_to(method).assert_forwarded(200).text(),
                "late",
                "{choice:?} {method}"
            );
        }
        client.assert_closed();
        wait::until_value(
            "the end is counted",
            || gone(&egret),
            |gone| *gone == [u64::from(!is_finished), u64::from(is_finished)],
        );
        released.change(|released| *released = true);
    }
}

#[test]
fn a_record_has_the_time_of_the_clients_close() {
    let (origin, released) = holding(|| ok("late"));
    let flows = "exporters: { archive: { type: har, directory: ./har } }\n\
                 flows: [{ name: all, match: { provider: origin }, diagnoses: [har: { export: archive }] }]\n";
    let config = Config::with_origin(origin.url()).flows(flows);
    let mut egret = config.gateway("access_log: { output: access.log, format: json }").start();
    let traffic = LiveTraffic::open(&egret);
    let mut client = sends(&egret, "POST");
    origin.until_requested(1);
    client.half_close();
    until_noticed(&egret);
    released.change(|released| *released = true);
    client.response();
    let line = traffic.until("method=POST", 1).remove(0);
    assert_eq!((&line["status"], &line["answered_by"]), (&200.into(), &"provider".into()), "{line}");
    let closed_us = line["client_closed_us"].as_u64().unwrap();
    assert!(closed_us > 0 && closed_us <= line["duration_us"].as_u64().unwrap(), "{line}");
    assert!(egret.control_get("/metrics").text().contains("egret_client_gone_total{call=\"finished\"} 1\n"));
    let log = egret.directory().join("access.log");
    wait::until("a line of the access log", || {
        let text = std::fs::read_to_string(&log).ok()?;
        text.lines()
            .find(|line| line.contains("\"POST\"") && !line.contains("\"client_closed_us\":null"))
            .map(drop)
    });
    until_recorded(&egret, 1);
    egret.terminate();
    assert!(egret.until_ended().success());
    let entries = entries(&files(&egret.directory().join("har")));
    let entry = entries.iter().find(|entry| entry["request"]["method"] == "POST").unwrap();
    assert!(entry["_clientClosed"].as_f64() > Some(0.0), "{entry}");
}

#[test]
fn a_stream_that_is_not_read_any_more_ends_at_the_provider() {
    let origin = Provider::scripted(|peer: &mut Peer| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n");
        peer.stall();
    });
    let egret = Config::with_origin(origin.url()).gateway("timeouts: { half_close: 1h }").start();
    let traffic = LiveTraffic::open(&egret);
    let mut client = egret.client();
    client.get(egret.address(), "/origin/").head();
    drop(client);
    origin.until_ended(1);
    let cut = traffic.until("provider=origin", 1).remove(0);
    assert_eq!((&cut["status"], &cut["cut_short"]), (&200.into(), &true.into()), "{cut}");
    assert!(cut["client_closed_us"].is_u64(), "{cut}");
}

#[test]
fn a_client_that_closes_while_it_waits_leaves_the_queue() {
    let origin = Provider::plain();
    let flows = "quotas: { one: { limit: 1, window: 1h, kind: fixed, starts: first } }\n\
                 flows: [{ name: all, remedies: [queue: { quota: one, max_wait: 2h }] }]\n";
    let egret = Config::with_origin(origin.url()).gateway("on_client_close: finish").flows(flows).start();
    sends(&egret, "POST").response().assert_forwarded(200);
    let mut client = sends(&egret, "POST");
    client.half_close().assert_closed();
    wait::until_value("the wait has ended", || gone(&egret), |gone| *gone == [1, 0]);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_call_is_not_repeated_for_a_client_that_has_left() {
    let (origin, released) = holding(|| b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n".to_vec());
    let flows = "flows: [{ name: all, remedies: [retry: { attempts: 3, on: [503], methods: [POST], backoff: { base: 1ms } }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let mut client = sends(&egret, "POST");
    origin.until_requested(1);
    client.half_close();
    until_noticed(&egret);
    released.change(|released| *released = true);
    client.assert_closed();
    wait::until_value("the call has ended", || gone(&egret), |gone| *gone == [1, 0]);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_call_that_others_wait_for_goes_on_without_its_client() {
    for leaves in [Client::reset, drop] {
        let (origin, released) = holding(|| ok_response("Cache-Control: max-age=60", "for all"));
        let flows = flow("{ collapse: { max_wait: 10m } }");
        let egret = Config::with_origin(origin.url()).gateway("workers: 1").flows(flows).start();
        let (mut first, mut second) = (egret.client(), egret.client());
        wait::until_true("both are connected", || egret.stat("/clients/idle") == 2);
        first.get(egret.address(), "/origin/a");
        origin.until_requested(1);
        second.get(egret.address(), "/origin/a");
        wait::until_true("both are served", || egret.stat("/clients/idle") == 0);
        leaves(first);
        until_noticed(&egret);
        released.change(|released| *released = true);
        assert_eq!(second.response().assert_forwarded(200).text(), "for all");
        assert_eq!(origin.requests().len(), 1);
    }
}

/// Many clients close the connection below TLS without saying so inside of it.
#[test]
fn a_client_that_ends_tls_without_a_word_has_closed_as_well() {
    let (origin, released) = holding(|| ok("late"));
    let (authority, directory) = (Authority::default(), Directory::default());
    let leaf = authority.leaf(&["localhost"]);
    let certificate = directory.write("server.pem", leaf.certificate);
    let key = directory.write_secret("server.key", leaf.key);
    let listener = format!(
        "{{ address: \"127.0.0.1:0\", tls: {{ certificate: \"{}\", key: \"${{file:{}}}\" }} }}",
        certificate.display(),
        key.display()
    );
    let egret = Config::with_origin(origin.url()).listen([&*listener]).start();
    let mut client = egret.client();
    client.shake_hands(anonymous(&authority, &rustls::version::TLS13)).unwrap();
    let host = egret.address();
    client.send(format!("POST /origin/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n"));
    origin.until_requested(1);
    client.half_close();
    until_noticed(&egret);
    released.change(|released| *released = true);
    assert_eq!(client.response().assert_forwarded(200).text(), "late");
}
