//! Bodies that flows use: kept for a retry, read by a `when`, or parsed for their cost.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::wait::until_value;

const RETRY: &str = "flows:\n  - name: again\n    remedies:\n      - retry: { on: [503], body: 256KiB, backoff: { base: 1ms } }\n";

/// Responds 503 to the first request and 200 to all others.
fn failing_once() -> Provider {
    let failures = AtomicU32::new(1);
    Provider::with_responses(move |_| {
        match failures.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
            Ok(_) => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy".to_vec(),
            Err(_) => ok("done"),
        }
    })
}

/// Returns an upload of this content in chunked framing.
fn in_chunks(content: &[u8]) -> Vec<u8> {
    let chunks = content
        .chunks(10_000)
        .map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
    chunks.chain([b"0\r\n\r\n".to_vec()]).flatten().collect()
}

fn post(egret: &Egret, fields: &str, body: &[u8]) -> egret_tests::http::Response {
    let mut client = egret.client();
    client.send(format!("POST /origin/x HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", egret.address()));
    for piece in body.chunks(30_000) {
        client.offer(piece);
    }
    client.response()
}

#[test]
fn an_upload_is_sent_again_whole() {
    let content: Vec<u8> = (0..200_000_u32).map(|number| number.to_le_bytes()[0]).collect();
    let length = format!("Idempotency-Key: 1\r\nContent-Length: {}\r\n", content.len());
    let chunked = "Idempotency-Key: 1\r\nTransfer-Encoding: chunked\r\n".to_owned();
    for (fields, body) in [(length, content.clone()), (chunked, in_chunks(&content))] {
        let origin = failing_once();
        let egret = Config::with_origin(origin.url()).flows(RETRY).start();
        post(&egret, &fields, &body).assert_forwarded(200);
        let requests = origin.requests();
        assert_eq!(requests.len(), 2);
        assert!(requests.iter().all(|request: &Request| request.body == content));
        // The next request on the connection is parsed from its correct start.
        let mut client = egret.client();
        client.send(
            format!("POST /origin/x HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
                .replace("Host: h", &format!("Host: {}", egret.address())),
        );
        client.send(&body).response().assert_forwarded(200);
        client.get(egret.address(), "/origin/y").response().assert_forwarded(200);
    }
}

#[test]
fn an_upload_longer_than_is_kept_passes_through_once() {
    let origin = failing_once();
    let egret = Config::with_origin(origin.url()).flows(RETRY).start();
    let content = vec![7; 300_000];
    let fields = format!("Idempotency-Key: 1\r\nContent-Length: {}\r\n", content.len());
    post(&egret, &fields, &content).assert_forwarded(503);
    assert!(origin.only_request().body == content);
}

#[test]
fn a_body_read_by_when_reaches_the_provider() {
    let origin = Provider::plain();
    let flows = "flows:\n  - name: old-model\n    match: { when: 'request.body.model == \"old\"' }\n    remedies:\n      - fixed-response: { status: 410 }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let send = |body: &str| {
        let fields = format!("Content-Type: application/json\r\nContent-Length: {}\r\n", body.len());
        post(&egret, &fields, body.as_bytes())
    };
    assert_eq!(send(r#"{"model":"old"}"#).status, 410);
    send(r#"{"model":"new"}"#).assert_forwarded(200);
    send("no JSON at all").assert_forwarded(200);
    let contents: Vec<String> =
        origin.requests().iter().map(|request| String::from_utf8(request.body.clone()).unwrap()).collect();
    assert_eq!(contents, [r#"{"model":"new"}"#, "no JSON at all"]);
}

#[test]
fn a_client_that_waits_to_be_asked_for_its_body_is_asked() {
    let origin = Provider::plain();
    let flows = "flows:\n  - name: old-model\n    match: { when: 'request.body.model == \"old\"' }\n    remedies:\n      - fixed-response: { status: 410 }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let mut client = egret.client();
    client.request(egret.address(), "POST /origin/x", "Expect: 100-continue\r\nContent-Length: 15\r\n", "");
    assert_eq!(client.any_response_to("POST").status, 100);
    assert_eq!(client.send(r#"{"model":"old"}"#).response().status, 410);
    assert!(origin.requests().is_empty());
}

/// Makes three calls with a quota of 100 tokens, charged by the response. Returns the status codes.
fn statuses_with_costs_told_in(media_type: &'static str, body: &'static str) -> [u16; 3] {
    let origin = Provider::with_responses(move |_| {
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {media_type}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    let flows = "quotas:\n  tokens: { limit: 100, window: 1h, cost: { response: response.body.usage.total_tokens } }\nflows:\n  - name: budget\n    remedies:\n      - limit: { quota: tokens }\n";
    let egret = Config::with_origin(origin.url()).flows(flows).start();
    let mut client = egret.client();
    [(); 3].map(|()| client.get(egret.address(), "/origin/chat").response().status)
}

#[test]
fn a_response_is_charged_for_what_it_says_it_cost() {
    let body = r#"{"answer":"...","usage":{"total_tokens":60}}"#;
    assert_eq!(statuses_with_costs_told_in("application/json", body), [200, 200, 429]);
}

/// Starts a gateway with a quota of tokens of which each call is charged 10 before its response.
fn metered(origin: &Provider) -> Egret {
    let flows = "quotas:\n  tokens: { limit: 100000, window: 24h, cost: { request: '10', response: int(response.body.usage.total_tokens) } }\nflows:\n  - name: chat\n    remedies:\n      - limit: { quota: tokens }\n";
    Config::with_origin(origin.url()).flows(flows).start()
}

/// Waits until this many tokens are used.
fn until_used(egret: &Egret, expected: u64) {
    let used = || egret.control_get("/api/v1/quotas").json()["quotas"][0]["groups"][0]["used"].as_u64();
    until_value("the tokens are counted", used, |used| *used == Some(expected));
}

#[test]
fn a_stream_without_usage_costs_its_initial_charge() {
    let events = "data: {\"choices\":[],\"usage\":null}\n\ndata: {\"choices\":[{}]}\n\ndata: [DONE]\n\n";
    let origin = Provider::responding(format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: {}\r\n\r\n{events}",
        events.len()
    ));
    let egret = metered(&origin);
    let mut client = egret.client();
    for _ in 0..3 {
        client.get(egret.address(), "/origin/chat").response().assert_forwarded(200);
    }
    until_used(&egret, 30);
    let failures = || egret.control_get("/metrics").text().to_owned();
    until_value("the failures are counted", failures, |metrics| {
        metrics.lines().any(|line| {
            line.starts_with("egret_remedy_decisions_total{flow=\"chat\"")
                && line.contains("decision=\"fail\"")
                && line.ends_with(" 3")
        })
    });
    let log = egret.log_with("initial charge");
    let warnings: Vec<&str> =
        log.lines().filter(|line| line.contains("WARN") && line.contains("\"flow\"")).collect();
    assert_eq!(warnings.len(), 1, "{log}");
    for part in ["chat", "`cost.response` of the quota `tokens`", "initial charge", "stream_options"] {
        assert!(warnings[0].contains(part), "{part}: {log}");
    }
}

#[test]
fn a_broken_stream_costs_its_reported_units() {
    let event = |tokens: u64| {
        let data = format!("data: {{\"usage\":{{\"total_tokens\":{tokens}}}}}\n\n");
        format!("{:x}\r\n{data}\r\n", data.len())
    };
    let origin = Provider::scripted(move |peer| {
        let Some(request) = peer.request() else { return };
        let tokens = if request.target().ends_with("few") { 3 } else { 50 };
        peer.send(format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n{}",
            event(tokens)
        ));
    });
    let egret = metered(&origin);
    for (path, used) in [("/origin/many", 50), ("/origin/few", 60)] {
        let mut client = egret.client();
        client.get(egret.address(), path).head();
        client.rest();
        until_used(&egret, used);
    }
}

#[test]
fn a_stream_of_events_is_charged_for_what_its_last_one_says() {
    let body = "data: {\"delta\":\"a\"}\n\ndata: {\"usage\":{\"total_tokens\":60}}\n\ndata: [DONE]\n\n";
    assert_eq!(statuses_with_costs_told_in("text/event-stream; charset=utf-8", body), [200, 200, 429]);
}
