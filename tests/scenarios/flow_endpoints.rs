//! Providers with several endpoints: calls go to those that are well, and slow or silent ones are given up.

use std::thread;
use std::time::Duration;

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Peer, Provider, ok};

const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const COMMENT: &str = ": keep-alive\n\n";
const EVENT: &str = "data: {\"text\":\"hello\"}\n\n";

/// Starts Egret with a provider at these two URLs, and with these remedies. One worker, so all calls teach
/// it.
fn with_endpoints(url: &str, other: &str, remedies: &str) -> Egret {
    let config = Config::default().gateway("workers: 1").provider_with(
        "origin",
        url,
        &format!("endpoints: [\"{other}\"]"),
    );
    if remedies.is_empty() {
        return config.start();
    }
    config.flows(format!("flows:\n  - name: all\n    remedies: [{remedies}]\n")).start()
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

fn post(egret: &Egret, path: &str) -> u16 {
    egret.ask(&format!("POST /origin{path}"), "", "hi").status
}

/// Sends comments until the gateway has had enough.
fn keep_alive(peer: &mut Peer) {
    while peer.send(chunk(COMMENT)) && peer.pause(Duration::from_millis(10)) {}
}

#[test]
fn a_call_that_cannot_connect_goes_to_another_endpoint() {
    let (closed, well) = (ClosedPort::take(), Provider::plain());
    for (first, other) in [
        (format!("http://{}", closed.address()), well.url()),
        (well.url(), format!("http://{}", closed.address())),
    ] {
        let egret = with_endpoints(&first, &other, "");
        let before = well.requests().len();
        for number in 0..10 {
            assert_eq!(post(&egret, &format!("/{number}")), 200);
        }
        assert_eq!(well.requests().len(), before + 10);
        let endpoints = egret.stats()["providers"][0]["endpoints"].clone();
        let calls: u64 =
            endpoints.as_array().unwrap().iter().map(|each| each["calls"].as_u64().unwrap()).sum();
        assert!((10..=20).contains(&calls), "{endpoints}");
    }
    let closed = [ClosedPort::take(), ClosedPort::take()];
    let [first, other] = closed.each_ref().map(|closed| format!("http://{}", closed.address()));
    let egret = with_endpoints(&first, &other, "");
    egret.get("/").assert_generated(502, "connect-failed");
}

#[test]
fn each_endpoint_has_its_own_host_and_base_path() {
    let (first, other) = (ClosedPort::take(), Provider::plain());
    let egret = with_endpoints(
        &format!("http://{}/us/v1", first.address()),
        &format!("{}/eu/v1", other.url()),
        "retry: { attempts: 2, on: [connect] }",
    );
    egret.get("/things?a=b").assert_forwarded(200);
    let request = other.only_request();
    assert_eq!(request.target(), "/eu/v1/things?a=b");
    assert_eq!(request.values("host"), [other.address().to_string()]);
}

#[test]
fn an_attempt_goes_to_an_endpoint_that_was_not_tried() {
    let failing = Provider::responding("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n");
    let well = Provider::plain();
    let egret = with_endpoints(
        &failing.url(),
        &well.url(),
        "retry: { attempts: 2, on: [5xx], budget: { ratio: 1 } }",
    );
    for _ in 0..20 {
        egret.get("/").assert_forwarded(200);
    }
    assert_eq!(well.requests().len(), 20);
    assert!(failing.requests().len() < 20, "it is left out after three failures");
}

#[test]
fn an_endpoint_that_wants_a_pause_gets_one() {
    let busy =
        Provider::responding("HTTP/1.1 429 Slow Down\r\nRetry-After: 300\r\nContent-Length: 0\r\n\r\n");
    let well = Provider::plain();
    let egret = with_endpoints(&busy.url(), &well.url(), "");
    let statuses: Vec<u16> = (0..40).map(|_| egret.get("/").status).collect();
    let refused = statuses.iter().filter(|status| **status == 429).count();
    assert_eq!((refused, busy.requests().len(), well.requests().len()), (1, 1, 39), "{statuses:?}");
    let metrics = egret.control_get("/metrics").text().to_owned();
    let excluded = format!("egret_endpoint_excluded{{provider=\"origin\",endpoint=\"{}\"}} 1", busy.url());
    assert!(metrics.contains(&excluded), "{metrics}");
}

#[test]
fn an_endpoint_whose_allowance_is_spent_gets_no_calls() {
    let told = |remaining: &str| {
        format!(
            "HTTP/1.1 200 OK\r\nX-RateLimit-Remaining: {remaining}\r\nX-RateLimit-Reset: 300\r\nContent-Length: 0\r\n\r\n"
        )
    };
    let (spent, other) = (Provider::responding(told("0")), Provider::responding(told("1")));
    let egret = with_endpoints(&spent.url(), &other.url(), "");
    for _ in 0..40 {
        egret.get("/").assert_forwarded(200);
    }
    assert_eq!((spent.requests().len(), other.requests().len()), (1, 39));
}

/// Streams by each of four clients, unless the environment asks for another number of all.
const STREAMS: usize = 10;

#[test]
fn a_stream_of_comments_is_given_up_for_another_endpoint() {
    let silent = Provider::scripted(|peer| {
        while peer.request().is_some() {
            peer.send(HEAD);
            keep_alive(peer);
        }
    });
    let speaking = Provider::responding(format!("{HEAD}{}{}0\r\n\r\n", chunk(COMMENT), chunk(EVENT)));
    let egret = with_endpoints(
        &silent.url(),
        &speaking.url(),
        "retry: { attempts: 4, on: [timeout], methods: [POST], budget: { ratio: 1 } }, timeout: { first_event: 5s }",
    );
    let streams = std::env::var("EGRET_CALLS").map_or(STREAMS, |count| count.parse::<usize>().unwrap() / 4);
    let request =
        format!("POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: 2\r\n\r\nhi", egret.address());
    let read_all = || {
        let mut client = egret.client();
        for _ in 0..streams {
            let response = client.send(&request).response();
            assert_eq!((response.assert_forwarded(200).text()), format!("{COMMENT}{EVENT}"));
        }
    };
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(read_all);
        }
    });
    assert!(!silent.requests().is_empty(), "it was tried");
    assert!(speaking.requests().len() >= 4 * streams, "each stream is from there");
}

#[test]
fn a_stream_of_comments_without_another_endpoint_is_an_error() {
    let silent = Provider::scripted(|peer| {
        while peer.request().is_some() {
            peer.send(HEAD);
            keep_alive(peer);
        }
    });
    let flows = "flows: [{ name: all, remedies: [timeout: { first_event: 100ms }] }]\n";
    let egret = Config::with_origin(silent.url()).flows(flows).start();
    egret.get("/").assert_generated(504, "first-byte-timeout");
}

#[test]
fn a_stream_that_stalls_is_cut() {
    let stalling = Provider::scripted(|peer| {
        while peer.request().is_some() {
            peer.send(format!("{HEAD}{}", chunk(EVENT)));
            keep_alive(peer);
        }
    });
    let flows = "flows: [{ name: all, remedies: [retry: { on: [timeout] }, timeout: { stall: 100ms }] }]\n";
    let egret = Config::with_origin(stalling.url()).flows(flows).start();
    let mut client = egret.client();
    client.get(egret.address(), "/origin/").head();
    let received = String::from_utf8(client.rest()).unwrap();
    assert!(received.contains(EVENT) && !received.ends_with("0\r\n\r\n"), "it is cut: {received}");
    assert_eq!(stalling.requests().len(), 1, "nothing is called again");
}

#[test]
fn other_responses_are_not_held_back() {
    let provider = Provider::responding(ok("hello"));
    let flows = "flows: [{ name: all, remedies: [timeout: { first_event: 1h, stall: 1h }] }]\n";
    let egret = Config::with_origin(provider.url()).flows(flows).start();
    assert_eq!(egret.get("/").assert_forwarded(200).text(), "hello");
    assert_eq!(provider.only_request().values("accept-encoding"), ["identity"]);
}
