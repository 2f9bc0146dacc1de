//! A failing provider: the responses to the client, and the calls that the provider gets.

use std::thread;

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;

/// Number of failed calls, of 1,000 by ten clients.
fn failures(egret: &Egret, target: &str) -> usize {
    let ask = || {
        let mut client = egret.client();
        (0..100).filter(|_| client.get(egret.address(), target).response().status != 200).count()
    };
    thread::scope(|scope| {
        let clients: Vec<_> = (0..10).map(|_| scope.spawn(ask)).collect();
        clients.into_iter().map(|client| client.join().unwrap()).sum()
    })
}

fn with_retry(url: &str, keys: &str) -> Egret {
    let flows = format!("flows: [{{ name: all, remedies: [retry: {{ {keys} }}] }}]\n");
    Config::with_origin(url).flows(flows).start()
}

#[test]
fn retry_hides_most_failures_of_an_unstable_provider() {
    let provider = BuiltIn::start(&["--seed", "7"]);
    let url = format!("http://{}", provider.address());
    let egret = with_retry(&url, "attempts: 6, on: [5xx], backoff: { base: 1ms }, budget: { ratio: 1.0 }");
    let failed = failures(&egret, "/origin/unstable?failure_rate=0.3");
    assert!(failed < 10, "{failed} of 1,000 have failed");
    let calls = provider.counters()["requests"].as_u64().unwrap();
    assert!((1_200..=2_000).contains(&calls), "{calls} calls for 1,000 requests");
}

#[test]
fn a_budget_bounds_what_a_provider_that_is_down_gets() {
    let provider = BuiltIn::start(&[]);
    let url = format!("http://{}", provider.address());
    let keys = "attempts: 6, on: [5xx], backoff: { base: 1ms }, budget: { ratio: 0.1, min_per_second: 0 }";
    let egret = with_retry(&url, keys);
    assert_eq!(failures(&egret, "/origin/unstable?failure_rate=1"), 1_000);
    let calls = provider.counters()["requests"].as_u64().unwrap();
    assert!((1_001..=1_100).contains(&calls), "{calls} calls for 1,000 requests");
}

#[test]
fn a_post_without_a_key_reaches_the_provider_once_however_it_fails() {
    // Reads the whole request and closes: it may have acted on it.
    let provider = Provider::scripted(|peer| {
        peer.request();
    });
    let egret = with_retry(
        &provider.url(),
        "attempts: 4, on: [connect, timeout, reset, bad-response, 5xx], backoff: { base: 1ms }",
    );
    let post = |fields: &str| {
        let request = format!(
            "POST /origin/ HTTP/1.1\r\nHost: {}\r\n{fields}Content-Length: 3\r\n\r\na=b",
            egret.address()
        );
        egret.client().send(request).response().status
    };
    for sent in 1..=20 {
        assert_eq!(post(""), 502);
        assert_eq!(provider.requests().len(), sent);
    }
    // With a key the provider can recognize the repetition.
    assert_eq!(post("Idempotency-Key: 1\r\n"), 502);
    assert_eq!(provider.requests().len(), 24);
}
