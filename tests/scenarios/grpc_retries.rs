//! gRPC calls that fail, by the status in their head or their trailers: what is repeated, and what breakers
//! count.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use egret_tests::egret::{Config, Egret};
use egret_tests::grpc::{call, call_with, echo, response, trailers_only};
use egret_tests::provider::{Provider, Request};
use serde_json::{Value, json};

const UNAVAILABLE: &str = "grpc-status: 14\r\ngrpc-message: gone\r\n";

/// A provider that responds to the first call with `first`, and serves all others.
fn failing_once(first: impl Fn(&Request) -> Vec<u8> + Send + Sync + 'static) -> Provider {
    let calls = Arc::new(AtomicU64::new(0));
    Provider::with_responses(
        move |request| {
            if calls.fetch_add(1, Relaxed) == 0 { first(request) } else { echo(request) }
        },
    )
}

fn before(origin: &Provider, remedy: &str) -> Egret {
    let flows = format!("flows: [{{ name: all, remedies: [{remedy}] }}]\n");
    Config::default()
        .provider_with("origin", origin.url(), "http: 1")
        .gateway("workers: 1")
        .flows(flows)
        .start()
}

fn with_retry(origin: &Provider, keys: &str) -> Egret {
    let keys = format!("methods: [POST], backoff: {{ base: 1ms }}, {keys}");
    before(origin, &format!("retry: {{ {keys} }}"))
}

fn statuses(brought: &[Value]) -> Vec<&str> {
    brought.iter().map(|brought| brought["grpcStatus"].as_str().unwrap_or("none")).collect()
}

#[test]
fn a_call_is_repeated_whose_status_is_in_its_head() {
    let origin = failing_once(|_| trailers_only(14, "gone"));
    let egret = with_retry(&origin, "on: [grpc-unavailable]");
    let brought = call_with(&egret, &json!({}));
    assert_eq!([&brought["grpcStatus"], &brought["messages"]], [&json!("0"), &json!(["ping"])]);
    assert_eq!(origin.requests().len(), 2);
    assert_eq!(origin.requests()[1].body, origin.requests()[0].body);
}

#[test]
fn a_call_is_repeated_whose_status_comes_before_a_message() {
    let origin = Provider::scripted(|peer| {
        let mut is_first = true;
        while let Some(request) = peer.request() {
            if std::mem::take(&mut is_first) {
                peer.send("HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n");
                peer.send("Transfer-Encoding: chunked\r\n\r\n");
                peer.send(format!("0\r\n{UNAVAILABLE}\r\n"));
            } else {
                peer.send(echo(&request));
            }
        }
    });
    let egret = with_retry(&origin, "on: [grpc-unavailable]");
    assert_eq!(call_with(&egret, &json!({}))["grpcStatus"], "0");
    // The connection of the response that was discarded serves the repeated call.
    assert_eq!((origin.requests().len(), origin.connections()), (2, 1));
}

#[test]
fn a_call_that_has_brought_a_message_is_not_repeated() {
    let origin = failing_once(|_| response(&["one"], UNAVAILABLE));
    let egret = with_retry(&origin, "on: [grpc-unavailable]");
    let brought = call_with(&egret, &json!({}));
    assert_eq!(
        [&brought["messages"], &brought["trailers"]["grpc-status"], &brought["trailers"]["grpc-message"]],
        [&json!(["one"]), &json!("14"), &json!("gone")]
    );
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn other_statuses_are_not_repeated() {
    let origin = failing_once(|_| trailers_only(13, "broken"));
    let egret = with_retry(&origin, "on: [grpc-unavailable, 5xx]");
    assert_eq!(call_with(&egret, &json!({}))["grpcStatus"], "13");
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_breaker_counts_statuses_of_trailers() {
    let origin = Provider::with_responses(|_| response(&["one"], UNAVAILABLE));
    let egret = before(
        &origin,
        "circuit-breaker: { on: [grpc-unavailable], consecutive: 2, open: 1h, open_max: 1h }",
    );
    let brought = call(&egret, &json!([{}, {}, {}]));
    assert_eq!(statuses(&brought), ["14", "14", "14"]);
    assert_eq!(brought[2]["head"]["x-egret-error"], "circuit-open");
    assert_eq!(origin.requests().len(), 2);
}

#[test]
fn a_fallback_serves_calls_that_fail() {
    let origin = Provider::with_responses(|_| trailers_only(8, "slow%20down"));
    let other = Provider::with_responses(echo);
    let flows = "flows: [{ name: all, match: { provider: origin }, remedies: \
                 [fallback: { on: [grpc-resource-exhausted], methods: [POST], provider: other }] }]\n";
    let egret = Config::default()
        .provider_with("origin", origin.url(), "http: 1")
        .provider_with("other", other.url(), "http: 1")
        .gateway("workers: 1")
        .flows(flows)
        .start();
    assert_eq!(call_with(&egret, &json!({}))["grpcStatus"], "0");
    assert_eq!((origin.requests().len(), other.requests().len()), (1, 1));
}
