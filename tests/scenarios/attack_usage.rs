//! Units that were used and are not counted: tokens that a stream reports in its events, and calls that are
//! sent twice.

use std::fmt::Write as _;

use egret_tests::coded::coded;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Peer, Provider, ok};
use egret_tests::wait::until_value;

const ANTHROPIC: &str = "event: message_start\n\
    data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"type\":\"message\",\"usage\":{\"input_tokens\":2095,\"output_tokens\":1}}}\n\n\
    event: content_block_delta\n\
    data: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"\\\"usage\\\":{\\\"output_tokens\\\":0}\"}}\n\n\
    event: message_delta\n\
    data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":503}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

const OPENAI_CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}],\"usage\":null}\n\n\
    data: {\"choices\":[],\"usage\":{\"prompt_tokens\":2095,\"completion_tokens\":503,\"total_tokens\":2598}}\n\n\
    data: [DONE]\n\n";

const OPENAI_RESPONSES: &str = "event: response.created\n\
    data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"usage\":null}}\n\n\
    event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"delta\":\"hi\"}\n\n\
    event: response.completed\n\
    data: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"usage\":{\"input_tokens\":2095,\"output_tokens\":503,\"total_tokens\":2598}}}\n\n";

const GEMINI: &str = "data: {\"candidates\":[{}],\"usageMetadata\":{\"promptTokenCount\":2095,\"totalTokenCount\":2095}}\r\n\r\n\
    data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":2095,\"totalTokenCount\":2598}}\r\n\r\n";

/// Tokens that each of these streams reports.
const TOKENS: u64 = 2598;

/// Sends a response in chunks, each in a write of its own.
fn send_chunks<'c>(peer: &mut Peer, fields: &str, chunks: impl Iterator<Item = &'c [u8]>) {
    peer.send(format!("HTTP/1.1 200 OK\r\n{fields}Transfer-Encoding: chunked\r\n\r\n"));
    for chunk in chunks {
        peer.send([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    }
    peer.send("0\r\n\r\n");
}

/// Waits until this many units of the only quota are used.
fn assert_used(egret: &Egret, expected: u64, about: &str) {
    let used = || egret.control_get("/api/v1/quotas").json()["quotas"][0]["groups"][0]["used"].as_u64();
    until_value(&format!("{expected} units are used: {about}"), used, |used| *used == Some(expected));
}

#[test]
fn the_reported_usage_of_each_stream_is_counted() {
    for (provider, stream, cost) in [
        ("Anthropic", ANTHROPIC, "response.body.usage.input_tokens + response.body.usage.output_tokens"),
        ("OpenAI Responses", OPENAI_RESPONSES, "response.body.usage.total_tokens"),
        ("OpenAI chat", OPENAI_CHAT, "response.body.usage.total_tokens"),
        ("Gemini", GEMINI, "response.body.usageMetadata.totalTokenCount"),
    ] {
        let bodies = [
            ("identity", stream.as_bytes().to_vec()),
            ("gzip", coded("gzip", stream.as_bytes())),
            ("br", coded("br", stream.as_bytes())),
        ];
        // The path has the number of the body, and the length of a chunk.
        let served = bodies.clone();
        let origin = Provider::scripted(move |peer| {
            while let Some(request) = peer.request() {
                let numbers: Vec<usize> =
                    request.target().split('/').filter_map(|part| part.parse().ok()).collect();
                let (coding, body) = &served[numbers[0]];
                let fields = format!("Content-Type: text/event-stream\r\nContent-Encoding: {coding}\r\n");
                send_chunks(peer, &fields, body.chunks(numbers[1]));
            }
        });
        let flows = format!(
            "quotas: {{ tokens: {{ limit: 1000000, window: 24h, cost: {{ request: '0', response: '{cost}' }} }} }}\n\
             flows: [{{ name: all, remedies: [limit: {{ quota: tokens }}] }}]\n"
        );
        let egret = Config::with_origin(origin.url()).flows(flows).start();
        let mut client = egret.client();
        let mut calls = 0;
        for (number, (coding, body)) in bodies.iter().enumerate() {
            for len in [body.len(), 7, 1] {
                let response = client.get(egret.address(), &format!("/origin/{number}/{len}")).response();
                assert!(
                    response.status == 200 && response.body == *body,
                    "{provider}, {coding}: {response:?}"
                );
                calls += 1;
                assert_used(&egret, calls * TOKENS, &format!("{provider}, {coding}, by {len}"));
            }
        }
    }
}

/// A provider that closes each connection when it has read the second request on it.
fn closing() -> Provider {
    Provider::scripted(|peer| {
        peer.request();
        peer.send(ok("done"));
        peer.request();
    })
}

#[test]
fn a_request_repeated_on_a_new_connection_draws_another_unit() {
    let origin = closing();
    let flows = "quotas: { calls: { limit: 100, window: 24h } }\n\
                 flows: [{ name: all, remedies: [retry: {}, limit: { quota: calls }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let mut texts = String::new();
    for _ in 0..4 {
        let _ = write!(texts, "{} ", egret.get("/").assert_forwarded(200).text());
    }
    assert_eq!(texts, "done done done done ");
    let received = u64::try_from(origin.requests().len()).unwrap();
    assert!(received > 4, "a connection was dead: {received}");
    assert_used(&egret, received, "as many as the provider has received");
}

#[test]
fn a_request_is_not_repeated_without_another_unit() {
    let origin = closing();
    let flows = "quotas: { calls: { limit: 2, window: 24h } }\n\
                 flows: [{ name: all, remedies: [limit: { quota: calls }] }]\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    egret.get("/").assert_forwarded(200);
    egret.get("/").assert_generated(429, "quota-exceeded");
    assert_eq!(origin.requests().len(), 2);
}
