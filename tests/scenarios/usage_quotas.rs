//! Quotas over tokens: a call of a language model costs what its provider reports, streamed or not.

use egret_tests::coded::coded;
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use egret_tests::wait::until_value;

/// Tokens that each of these responses reports: 11 of input, 30 of output.
const TOKENS: u64 = 41;

const EVENTS: &str = "text/event-stream";

const OPENAI_CHAT: &str = "data: {\"model\":\"gpt-5.2\",\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\":{\\\"prompt_tokens\\\":1}\"}}],\"usage\":null}\n\n\
    data: {\"model\":\"gpt-5.2\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30,\"total_tokens\":41,\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{\"reasoning_tokens\":8}}}\n\n\
    data: [DONE]\n\n";

const ANTHROPIC: &str = "event: message_start\n\
    data: {\"type\":\"message_start\",\"message\":{\"model\":\"claude\",\"usage\":{\"input_tokens\":5,\"cache_read_input_tokens\":4,\"cache_creation_input_tokens\":2,\"output_tokens\":1}}}\n\n\
    event: message_delta\n\
    data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":30}}\n\n\
    event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";

const GEMINI: &str = "data: {\"candidates\":[{}],\"usageMetadata\":{\"promptTokenCount\":11,\"totalTokenCount\":13},\"modelVersion\":\"gemini\"}\r\n\r\n\
    data: {\"candidates\":[{}],\"usageMetadata\":{\"promptTokenCount\":11,\"candidatesTokenCount\":18,\"thoughtsTokenCount\":12,\"totalTokenCount\":41}}\r\n\r\n";

/// A message of an AWS event stream, as `InvokeModel` sends it, behind two bytes of the fuzzer's.
const BEDROCK: &[u8] = include_bytes!("../../fuzz/corpus/usage/good-invoke");

const UNARY: &str =
    "{\"model\":\"gpt-5.2\",\"choices\":[],\"usage\":{\"prompt_tokens\":11,\"completion_tokens\":30}}";

/// A provider that answers each call with this body, in chunks.
fn provider(status: &'static str, media_type: &'static str, coding: &'static str, body: &[u8]) -> Provider {
    let body = body.to_vec();
    Provider::scripted(move |peer| {
        while peer.request().is_some() {
            peer.send(format!(
                "HTTP/1.1 {status}\r\nContent-Type: {media_type}\r\nContent-Encoding: {coding}\r\n\
                 Transfer-Encoding: chunked\r\n\r\n"
            ));
            for chunk in body.chunks(13) {
                peer.send([format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
            }
            peer.send("0\r\n\r\n");
        }
    })
}

/// A gateway with a quota of 200 units of that cost.
fn egret(origin: &Provider, cost: &str) -> Egret {
    let flows = format!(
        "quotas: {{ tokens: {{ limit: 200, window: 24h, cost: {{ {cost} }} }} }}\n\
         flows: [{{ name: all, remedies: [limit: {{ quota: tokens }}] }}]\n"
    );
    Config::with_origin(origin.url()).flows(flows).start()
}

/// Waits until this many units of the only quota are used.
fn assert_used(egret: &Egret, expected: u64, about: &str) {
    let used = || egret.control_get("/api/v1/quotas").json()["quotas"][0]["groups"][0]["used"].as_u64();
    until_value(&format!("{expected} units are used: {about}"), used, |used| *used == Some(expected));
}

#[test]
fn a_quota_lets_exactly_its_tokens_through() {
    for (about, media_type, body) in [
        ("OpenAI chat", EVENTS, OPENAI_CHAT.as_bytes()),
        ("Anthropic", EVENTS, ANTHROPIC.as_bytes()),
        ("Gemini", EVENTS, GEMINI.as_bytes()),
        ("Bedrock", "application/vnd.amazon.eventstream", &BEDROCK[2..]),
        ("unary", "application/json", UNARY.as_bytes()),
    ] {
        for coding in ["identity", "gzip"] {
            let sent = if coding == "gzip" { coded("gzip", body) } else { body.to_vec() };
            let origin = provider("200 OK", media_type, coding, &sent);
            let egret = egret(&origin, "request: '41', usage: tokens");
            for calls in 1..=200 / TOKENS {
                let response = egret.get("/");
                response.assert_forwarded(200);
                assert_eq!(response.body, sent, "{about}, {coding}");
                assert_used(&egret, calls * TOKENS, about);
            }
            egret.get("/").assert_generated(429, "quota-exceeded");
            assert_eq!(origin.requests().len(), 4, "{about}, {coding}");
        }
    }
}

#[test]
fn input_and_output_are_counted_apart() {
    let origin = provider("200 OK", EVENTS, "identity", ANTHROPIC.as_bytes());
    for (cost, expected) in [
        ("usage: input", 11),
        ("usage: output", 30),
        ("response: 'usage.input - usage.cached + 2 * usage.output'", 67),
        ("response: 'usage.source == \"reported\" && usage.model == \"claude\" ? 7 : 9'", 7),
    ] {
        let egret = egret(&origin, cost);
        egret.get("/").assert_forwarded(200);
        assert_used(&egret, expected, cost);
    }
}

#[test]
fn a_stream_without_usage_costs_its_reservation() {
    let stream = "data: {\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\ndata: [DONE]\n\n";
    let origin = provider("200 OK", EVENTS, "identity", stream.as_bytes());
    let egret = egret(&origin, "request: '50', usage: tokens");
    for calls in 1..=3 {
        egret.get("/").assert_forwarded(200);
        assert_used(&egret, calls * 50, "nothing is reported");
    }
    egret.until_logged("stream_options");
    let warnings =
        egret.log().lines().filter(|line| line.contains("WARN") && line.contains("cost.usage")).count();
    assert_eq!(warnings, 1, "it is logged once");
}

#[test]
fn a_refused_call_costs_nothing() {
    let origin = provider("429 Too Many Requests", "application/json", "identity", b"{\"error\":{}}");
    let egret = egret(&origin, "request: '150', usage: tokens");
    for _ in 0..3 {
        egret.get("/").assert_forwarded(429);
        assert_used(&egret, 0, "refused");
    }
    assert!(!egret.log().contains("cost.usage"), "{}", egret.log());
}

#[test]
fn a_stream_that_breaks_off_costs_at_least_its_reservation() {
    let start = ANTHROPIC.split_once("event: message_delta").unwrap().0.as_bytes().to_vec();
    let length = start.len();
    let origin = Provider::scripted(move |peer| {
        peer.request();
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 10000\r\n\r\n";
        peer.send([head.as_bytes(), &start].concat());
    });
    for (reserved, expected) in [(50, 50), (3, 12)] {
        let egret = egret(&origin, &format!("request: '{reserved}', usage: tokens"));
        let mut client = egret.client();
        client.get(egret.address(), "/origin/").head();
        client.bytes(length);
        assert_used(&egret, expected, "it has told 11 and 1");
    }
}

#[test]
fn a_response_is_read_on_when_its_client_leaves_if_configured() {
    let (start, rest) = ANTHROPIC.split_at(ANTHROPIC.find("event: message_delta").unwrap());
    for (on_leave, expected) in [("stop", 20), ("drain", TOKENS)] {
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let wait = std::sync::Mutex::new(wait);
        let length = ANTHROPIC.len();
        let origin = Provider::scripted(move |peer| {
            while peer.request().is_some() {
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {length}\r\n\r\n{start}"
                ));
                // The other end is dropped if the test has failed.
                let _ = wait.lock().unwrap().recv();
                peer.send(rest);
            }
        });
        let flows = format!(
            "quotas: {{ tokens: {{ limit: 200, window: 24h, cost: {{ request: '20', usage: tokens, on_leave: {on_leave} }} }} }}\n\
             flows: [{{ name: all, remedies: [limit: {{ quota: tokens }}] }}]\n"
        );
        let egret = Config::with_origin(origin.url()).gateway("workers: 1").flows(flows).start();
        let mut client = egret.client();
        client.get(egret.address(), "/origin/").head();
        client.bytes(start.len());
        drop(client);
        egret.until_logged("a client has closed its connection before its response");
        if on_leave == "stop" {
            assert_used(&egret, expected, "it has told 11 and 1, and 20 were charged before");
        }
        go.send(()).unwrap();
        assert_used(&egret, expected, on_leave);
        if on_leave == "drain" {
            // The connection is whole, and so is the next response.
            go.send(()).unwrap();
            assert!(egret.get("/").body.ends_with(rest.as_bytes()));
            assert_used(&egret, 2 * TOKENS, "the next call");
            assert_eq!(origin.connections(), 1);
        }
    }
}

#[test]
fn calls_are_observed_as_opentelemetry_names_them() {
    let origin = provider("200 OK", EVENTS, "identity", OPENAI_CHAT.as_bytes());
    let flows = "flows: [{ name: metered, diagnoses: [metrics: { gen_ai: true }] }]\n";
    let keys = "preset: openai";
    let egret = Config::default().provider_with("origin", origin.url(), keys).flows(flows).start();
    let body = "{\"messages\":[\"planted-words\"],\"model\":\"gpt-5\"}";
    let request = format!(
        "POST /origin/v1/chat/completions HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        egret.address(),
        body.len()
    );
    for _ in 0..2 {
        egret.client().send(&request).response_to("POST").assert_forwarded(200);
    }
    let read = || egret.control_get("/metrics").text().to_owned();
    let labels = "{flow=\"metered\",gen_ai_operation_name=\"chat\",gen_ai_provider_name=\"openai\",\
                  gen_ai_request_model=\"gpt-5\",gen_ai_response_model=\"gpt-5.2\",\
                  server_address=\"127.0.0.1\",error_type=\"\"";
    let line = format!("gen_ai_client_token_usage_sum{labels},gen_ai_token_type=\"output\"}} 60");
    let text = until_value("both calls are observed", read, |text| text.contains(&line));
    for name in ["duration", "time_to_first_chunk"] {
        let line = format!("gen_ai_client_operation_{name}_seconds_count{labels}}} 2");
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert!(!text.contains("planted-words"), "{text}");
}

#[test]
fn metrics_and_conditions_see_usage() {
    let origin = provider("200 OK", EVENTS, "gzip", &coded("gzip", OPENAI_CHAT.as_bytes()));
    let metrics = "{ labels: [provider], tokens: true, counters: { paid: { cel: 'usage.input - usage.cached' } }, \
                   custom_labels: { source: { cel: usage.source } } }";
    let flows = format!(
        "flows:\n\
         - {{ name: metered, when_response: 'usage.output > 29', diagnoses: [metrics: {metrics}] }}\n\
         - {{ name: short, when_response: 'usage.output < 30', diagnoses: [metrics: {{ counters: {{ none: {{ cel: usage.input }} }} }}] }}\n"
    );
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    egret.get("/").assert_forwarded(200);
    egret.get("/").assert_forwarded(200);
    let read = || egret.control_get("/metrics").text().to_owned();
    let labels = "{flow=\"metered\",provider=\"origin\",source=\"reported\"";
    let line = format!("egret_custom_paid_total{labels}}} 14");
    let text = until_value("both calls are counted", read, |text| text.contains(&line));
    for (kind, tokens) in [("input", 22), ("output", 60), ("cache_read", 8), ("reasoning", 16)] {
        let line = format!("egret_llm_tokens_total{labels},model=\"gpt-5.2\",type=\"{kind}\"}} {tokens}");
        assert!(text.contains(&line), "{line}: {text}");
    }
    assert!(!text.contains("egret_custom_none_total{"), "{text}");
}
