//! Deadlines of gRPC calls: the client's own ends an exchange, and the provider learns what is left of it.

use std::time::Duration;

use egret_tests::egret::{Config, Egret};
use egret_tests::grpc::{call, call_with, echo};
use egret_tests::provider::{Provider, Request};
use serde_json::json;

/// A provider that never responds.
fn silent() -> Provider {
    Provider::scripted(|peer| {
        peer.request();
        peer.stall();
    })
}

fn before(origin: &Provider) -> Config {
    Config::default().provider_with("origin", origin.url(), "http: 1").gateway("workers: 1")
}

/// The error and the status with which a call with these fields ends.
fn ended(egret: &Egret, timeout: &str) -> [String; 3] {
    let brought = call_with(egret, &json!({ "grpc-timeout": timeout }));
    ["x-egret-error", "grpc-status", "grpc-message"]
        .map(|name| brought["head"][name].as_str().unwrap_or_default().to_owned())
}

/// The timeout that the provider has received, in milliseconds.
fn received_ms(request: &Request) -> u64 {
    let value = request.values("grpc-timeout")[0];
    let (number, unit) = value.split_at(value.len() - 1);
    let number: u64 = number.parse().unwrap();
    match unit {
        "S" => number * 1_000,
        "m" => number,
        "u" => number / 1_000,
        "n" => number / 1_000_000,
        _ => panic!("an unexpected unit in {value}"),
    }
}

#[test]
fn a_call_ends_at_the_deadline_of_its_client() {
    let origin = silent();
    let egret = before(&origin).start();
    let [error, status, message] = ended(&egret, "50m");
    assert_eq!([&*error, &*status], ["total-timeout", "4"]);
    assert!(message.contains("`grpc-timeout`"), "{message}");
    assert_eq!(egret.generated("total-timeout"), 1);
}

#[test]
fn the_shorter_of_both_deadlines_holds() {
    let origin = silent();
    let keys = "timeouts: { total: 50ms }";
    let egret = Config::default().provider_with("origin", origin.url(), keys).gateway("workers: 1").start();
    for timeout in ["1H", "99999999H", "soon"] {
        let [error, status, message] = ended(&egret, timeout);
        assert_eq!([&*error, &*status], ["total-timeout", "4"]);
        assert!(message.contains("`timeouts.total`"), "{message}");
    }
    // A flow may lengthen the limit of the gateway, but not that of the client.
    let flows = "flows: [{ name: all, remedies: [timeout: { total: 1h }] }]\n";
    let egret = before(&origin).flows(flows).start();
    assert!(ended(&egret, "50m")[2].contains("`grpc-timeout`"));
}

#[test]
fn a_call_that_waits_for_nothing_keeps_its_field() {
    let origin = Provider::with_responses(echo);
    let egret = before(&origin).start();
    let asked = json!([{ "fields": { "grpc-timeout": "100H" } }, { "fields": { "grpc-timeout": "soon" } }]);
    for brought in call(&egret, &asked) {
        assert_eq!(brought["grpcStatus"], "0");
    }
    let values: Vec<_> =
        origin.requests().iter().map(|request| request.values("grpc-timeout").join("|")).collect();
    assert_eq!(values[1], "soon");
    // A first call may wait for its connection. On a busy machine that takes seconds.
    let left_s = values[0].strip_suffix('S').and_then(|left| left.parse::<u64>().ok());
    let is_close = left_s.is_some_and(|left_s| (359_000..360_000).contains(&left_s));
    assert!(values[0] == "100H" || is_close, "{values:?}");
}

#[test]
fn a_repeated_call_has_the_time_that_is_left() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            if request.values("x-try").is_empty() {
                peer.send(echo(&request));
            } else {
                peer.send("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n");
            }
        }
    });
    let flows = "flows: [{ name: all, remedies: [retry: { attempts: 2, on: [503], methods: [POST], \
                 backoff: { base: 200ms, jitter: none } }] }]\n";
    let egret = before(&origin).flows(flows).start();
    let brought = call_with(&egret, &json!({ "grpc-timeout": "60S", "x-try": "1" }));
    assert_eq!(brought["status"], 503);
    let requests = origin.requests();
    assert_eq!(requests.len(), 2);
    let (first, second) = (received_ms(&requests[0]), received_ms(&requests[1]));
    let waited = Duration::from_millis(200).as_millis();
    assert!(u128::from(60_000 - second) >= waited && second <= first, "{first} {second}");
}
