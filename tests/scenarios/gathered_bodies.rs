//! Bodies that are buffered for flows or retries: behaviour if there is not enough memory.

use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, Response};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

/// The minimum of the total.
const SMALL: &str = "limits: { gathered: 1MiB }";
/// A body of this length fits alone, but not while another one of this length is buffered.
const LENGTH: usize = 600_000;

const CHANGED: &str = "flows:\n  - name: f\n    match: { path: /changed }\n    remedies:\n      - transform: { request: { json: { set: { /seen: true } } } }\n";

fn json(length: usize) -> Vec<u8> {
    format!("{{\"a\":\"{}\"}}", "a".repeat(length - 8)).into_bytes()
}

fn head(egret: &Egret, path: &str, length: usize) -> String {
    format!(
        "POST /origin{path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n",
        egret.address()
    )
}

fn post(egret: &Egret, path: &str, body: &[u8]) -> Response {
    egret.client().send(head(egret, path, body.len())).offer(body).response()
}

/// Starts an upload that never ends.
fn stalled(egret: &Egret, path: &str) -> Client {
    let (mut client, before) = (egret.client(), egret.stat("/clients/received_bytes"));
    client.send(head(egret, path, LENGTH)).send(&json(LENGTH)[..LENGTH - 1]);
    wait::until_true("it has been received", || {
        egret.stat("/clients/received_bytes") - before >= LENGTH as u64 - 1
    });
    client
}

fn until_all_is_free(egret: &Egret) {
    wait::until_true("no memory is taken", || egret.stat("/gathered_bytes") == 0);
}

#[test]
fn a_body_without_memory_is_a_503() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway(SMALL).flows(CHANGED).start();
    let held = stalled(&egret, "/changed");
    let taken = egret.stat("/gathered_bytes");
    assert!((LENGTH as u64..LENGTH as u64 + 8_192).contains(&taken), "{taken}");
    let refused = post(&egret, "/changed", &json(LENGTH));
    refused.assert_generated(503, "bodies-full");
    assert_eq!(refused.field("retry-after"), Some("1"));
    // Small bodies, and bodies that need no buffering, continue.
    post(&egret, "/changed", &json(10_000)).assert_forwarded(200);
    post(&egret, "/other", &json(LENGTH)).assert_forwarded(200);
    assert_eq!(egret.generated("bodies-full"), 1);
    drop(held);
    until_all_is_free(&egret);
    post(&egret, "/changed", &json(LENGTH)).assert_forwarded(200);
    assert_eq!(origin.requests().len(), 3);
    until_all_is_free(&egret);
}

#[test]
fn a_head_alone_takes_no_memory_from_others() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway(SMALL).flows(CHANGED).start();
    let held: Vec<Client> = (0..50)
        .map(|_| {
            let mut client = egret.client();
            client.send(head(&egret, "/changed", LENGTH));
            client
        })
        .collect();
    wait::until_true("all heads are read", || {
        egret.stat("/clients/open").saturating_sub(egret.stat("/clients/idle")) >= held.len() as u64
    });
    assert_eq!(egret.stat("/gathered_bytes"), 0);
    post(&egret, "/changed", &json(LENGTH)).assert_forwarded(200);
}

#[test]
fn a_chunked_body_is_counted_and_changed() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway(SMALL).flows(CHANGED).start();
    let chunked = |length: usize| {
        let mut client = egret.client();
        client.request(
            egret.address(),
            "POST /origin/changed",
            "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n",
            "",
        );
        for piece in json(length).chunks(5_000) {
            client.offer([format!("{:x}\r\n", piece.len()).as_bytes(), piece, b"\r\n"].concat());
        }
        client.offer("0\r\n\r\n").response()
    };
    chunked(200_000).assert_forwarded(200);
    let request = origin.only_request();
    assert!(
        request.body.ends_with(b"aaa\",\"seen\":true}") && request.body.len() == 200_012,
        "{}",
        request.body.len()
    );
    // As received and decoded, plus the unused part of a doubled buffer.
    chunked(900_000).assert_generated(503, "bodies-full");
}

#[test]
fn a_body_without_room_is_sent_once() {
    let origin = Provider::with_responses(|request| match request.target() {
        "/again" => b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nbusy".to_vec(),
        _ => ok("done"),
    });
    let retry = "  - name: again\n    match: { path: /again }\n    remedies:\n      - retry: { on: [503], body: 800KiB, attempts: 2, backoff: { base: 1ms }, methods: [POST] }\n";
    let egret = Config::with_origin(origin.url()).gateway(SMALL).flows(format!("{CHANGED}{retry}")).start();
    let calls = || origin.requests().iter().filter(|request| request.target() == "/again").count();
    post(&egret, "/again", &json(LENGTH)).assert_forwarded(503);
    assert_eq!(calls(), 2, "kept, and sent again");
    until_all_is_free(&egret);
    let _held = stalled(&egret, "/changed");
    post(&egret, "/again", &json(LENGTH)).assert_forwarded(503);
    assert_eq!(calls(), 3, "sent on once");
    assert!(origin.requests().iter().all(|request| request.body == json(LENGTH)));
    assert_eq!(egret.generated("bodies-full"), 0);
}

#[test]
fn a_response_without_memory_is_forwarded_or_refused() {
    let origin = Provider::with_responses(|_| {
        let body = json(LENGTH);
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    });
    let flow = |name: &str, more: &str| {
        format!(
            "  - name: {name}\n    match: {{ path: /{name} }}\n    remedies:\n      - transform: {{ response: {{ json: {{ remove: [/a] }} }} }}\n{more}"
        )
    };
    let flows = format!("{CHANGED}{}{}", flow("open", ""), flow("closed", "        on_error: closed\n"));
    let egret = Config::with_origin(origin.url()).gateway(SMALL).flows(flows).start();
    for path in ["/open", "/closed"] {
        assert_eq!(egret.get(path).assert_forwarded(200).text(), "{}");
    }
    until_all_is_free(&egret);
    let _held = stalled(&egret, "/changed");
    assert!(egret.get("/open").assert_forwarded(200).body == json(LENGTH));
    egret.get("/closed").assert_generated(503, "remedy-failed");
    assert_eq!(egret.generated("bodies-full"), 0);
}

#[test]
fn a_reload_changes_how_much_memory_there_is() {
    let origin = Provider::plain();
    let config = Config::with_origin(origin.url()).flows(CHANGED);
    let egret = config.clone().gateway(SMALL).start();
    let _held = stalled(&egret, "/changed");
    post(&egret, "/changed", &json(LENGTH)).assert_generated(503, "bodies-full");
    egret.rewrite(config.gateway("limits: { gathered: 2MiB }").yaml());
    egret.until_logged("config reloaded");
    post(&egret, "/changed", &json(LENGTH)).assert_forwarded(200);
}
