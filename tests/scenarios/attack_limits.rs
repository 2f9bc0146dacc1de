//! Limits that do not count used units, or do not report when to retry.

use egret_tests::coded::coded;
use egret_tests::egret::Config;
use egret_tests::provider::Provider;

const USED: &[u8] = br#"{"usage":{"total_tokens":60}}"#;

/// Requests the body four times; each costs 60 of 100 units.
fn assert_costs_are_counted(media_type: &str, coding: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let origin = Provider::responding([head.as_bytes(), body].concat());
    let flows = "quotas: { tokens: { limit: 100, window: 24h,\n  \
                 cost: { request: '0', response: 'int(response.body.usage.total_tokens)' } } }\n\
                 flows: [{ name: all, remedies: [limit: { quota: tokens }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let mut client = egret.client();
    let statuses: Vec<u16> = (0..4)
        .map(|_| {
            let response = client.get(egret.address(), "/origin/").response();
            assert!(
                response.status != 200 || response.body == body,
                "the client gets it unchanged: {response:?}"
            );
            response.status
        })
        .collect();
    let quotas = egret.control_get("/api/v1/quotas").json();
    let used = &quotas["quotas"][0]["groups"][0]["used"];
    assert_eq!(
        (used.as_u64(), &statuses[..]),
        (Some(120), &[200, 200, 429, 429][..]),
        "{media_type} under {coding}: of 100 units each response costs 60"
    );
}

#[test]
fn the_cost_in_a_coded_response_is_counted() {
    assert_costs_are_counted("application/json", "gzip", &coded("gzip", USED));
    assert_costs_are_counted("application/json", "deflate", &coded("deflate", USED));
}

#[test]
fn the_cost_in_a_coded_event_stream_is_counted() {
    let events = [
        b"data: {\"delta\":\"a\"}\n\n".repeat(100),
        b"data: ".to_vec(),
        USED.to_vec(),
        b"\n\ndata: [DONE]\n\n".to_vec(),
    ];
    assert_costs_are_counted("text/event-stream", "gzip", &coded("gzip", &events.concat()));
}

#[test]
fn a_refusal_that_a_fallback_words_anew_says_when_to_try_again() {
    let origin = Provider::plain();
    let flows = "quotas: { live: { limit: 1, window: 24h } }\n\
                 flows:\n  - name: all\n    remedies:\n      \
                 - fallback: { on_refused: [quota-exceeded], response: { status: 420, headers: { x-own: '1' }, body: 'calm down' } }\n      \
                 - limit: { quota: live }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    egret.get("/").assert_forwarded(200);
    let response = egret.get("/");
    assert_eq!((response.status, response.text(), response.field("x-own")), (420, "calm down", Some("1")));
    let seconds = response.field("retry-after").and_then(|value| value.parse::<u64>().ok());
    assert!(
        seconds.is_some_and(|seconds| (86_000..=87_000).contains(&seconds)),
        "Retry-After is missing: {response:?}"
    );
    assert_eq!(response.field("ratelimit-policy"), Some("\"live\";q=1;w=86400"), "{response:?}");
    assert!(
        response.field("ratelimit").is_some_and(|value| value.starts_with("\"live\";r=0;t=")),
        "{response:?}"
    );
}
