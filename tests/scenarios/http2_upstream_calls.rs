//! Providers that are called in HTTP/2: the choice of the version, and messages of clients of both versions.

use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, Response};
use egret_tests::http2_provider::NodeProvider;
use egret_tests::peers::{Nginx, node};
use egret_tests::pki::Authority;
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{entries, files, until_recorded};
use serde_json::{Value, json};

/// Starts a gateway with one worker, which calls `provider` as `http` says.
fn before(provider: &NodeProvider, http: &str) -> Egret {
    before_with(provider, &format!("http: {http}"))
}

fn before_with(provider: &NodeProvider, keys: &str) -> Egret {
    let trusted = if provider.url().starts_with("https") { provider.trusted() } else { String::new() };
    let keys = [keys, &trusted].join(if trusted.is_empty() { "" } else { ", " });
    Config::default().provider_with("origin", provider.url(), &keys).gateway("workers: 1").start()
}

/// Does with Node's client what `http2.mjs` calls so.
fn done(egret: &Egret, what: &str) -> Value {
    serde_json::from_str(&node("http2.mjs", "", &[&egret.url(), what])).unwrap()
}

fn post(client: &mut Client, host: impl std::fmt::Display, fields: &str, body: &str) -> Response {
    client.request(host, "POST /origin/echo", fields, body).response()
}

/// Returns the version in which the provider was called for a request with these fields.
fn version(egret: &Egret, fields: &str) -> String {
    let response = post(&mut egret.client(), egret.address(), fields, "ab");
    response.json()["httpVersion"].as_str().unwrap().to_owned()
}

const GRPC: &str = "Content-Type: application/grpc\r\nTE: trailers\r\nConnection: TE\r\n";

#[test]
fn a_call_has_the_same_meaning_in_http2() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "2");
    let fields = "X-A: 1\r\nX-a: 2\r\nCookie: a=1; b=2\r\nKeep-Alive: timeout=5\r\nConnection: x-private\r\nX-Private: 1\r\n";
    let response = post(&mut egret.client(), egret.address(), fields, "ab");
    response.assert_forwarded(200);
    let echo = response.json();
    assert_eq!(
        (&echo["httpVersion"], &echo["method"], &echo["path"]),
        (&json!("2.0"), &json!("POST"), &json!("/echo"))
    );
    assert_eq!(echo["body"], "ab");
    let seen = &echo["fields"];
    assert_eq!(
        (&seen["x-a"], &seen["cookie"], &seen["content-length"]),
        (&json!("1, 2"), &json!("a=1; b=2"), &json!("2"))
    );
    assert_eq!(format!("http://{}", seen[":authority"].as_str().unwrap()), provider.url());
    assert_eq!(seen[":scheme"], "http");
    for name in ["connection", "keep-alive", "x-private", "transfer-encoding", "host"] {
        assert_eq!(seen[name], Value::Null, "{name}");
    }
}

#[test]
fn calls_of_http2_clients_share_connections() {
    let provider = NodeProvider::plain();
    let egret = before_with(&provider, "http: 2, pool: { streams_per_connection: 45 }");
    let calls = done(&egret, "many");
    let calls = calls.as_array().unwrap();
    assert_eq!(calls.len(), 90);
    assert!(calls.iter().all(|call| call[0] == 200));
    let opened = egret.provider_stat("origin", "connects");
    assert!((1..=2).contains(&opened), "{opened}");
}

#[test]
fn informational_responses_pass_before_the_final_one() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "2");
    let mut client = egret.client();
    client.get(egret.address(), "/origin/hints");
    let hints = client.head();
    assert_eq!((hints.status, hints.field("link")), (103, Some("</style.css>; rel=preload")));
    assert_eq!(client.response().text(), "ok");
}

#[test]
fn responses_without_a_body_end_with_their_head() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "2");
    let mut client = egret.client();
    for (path, status) in [("/origin/204", 204), ("/origin/304", 304)] {
        assert_eq!(client.get(egret.address(), path).response().status, status);
    }
    let head = format!("HEAD /origin/length HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address());
    let response = client.send(head).response_to("HEAD");
    assert_eq!((response.status, response.field("content-length")), (200, Some("5")));
    assert_eq!(client.get(egret.address(), "/origin/length").response().text(), "hello");
    assert_eq!(egret.provider_stat("origin", "connects"), 1);
}

#[test]
fn trailers_pass_from_provider_to_clients_of_both_versions() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "2");
    let mut client = egret.client();
    let request = format!(
        "POST /origin/trailers HTTP/1.1\r\nHost: {}\r\nContent-Length: 3\r\n\r\nabc",
        egret.address()
    );
    let response = client.send(request).response();
    assert_eq!(response.text(), "abc");
    assert_eq!(
        response.trailers,
        [("grpc-status".to_owned(), "0".to_owned()), ("grpc-message".to_owned(), "done".to_owned())]
    );
    let seen = done(&egret, "grpc");
    assert_eq!(seen, json!([200, "hello", "0", null]));
}

#[test]
fn trailers_of_a_request_reach_the_provider() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "2");
    let request = format!(
        "POST /origin/echo HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 6\r\n\r\n",
        egret.address()
    );
    let echo = egret.client().send(request).response().json();
    assert_eq!((&echo["body"], &echo["trailers"]), (&json!("abc"), &json!({ "x-sum": "6" })));
}

#[test]
fn calls_of_grpc_need_no_config() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "auto");
    assert_eq!(version(&egret, GRPC), "2.0");
    assert_eq!(done(&egret, "grpc"), json!([200, "hello", "0", null]));
    // An error is a response of fields alone.
    let request = format!(
        "POST /origin/status HTTP/1.1\r\nHost: {}\r\n{GRPC}Content-Length: 0\r\n\r\n",
        egret.address()
    );
    let response = egret.client().send(request).response();
    assert_eq!((response.status, response.field("grpc-status"), response.text()), (200, Some("5"), ""));
}

#[test]
fn calls_of_grpc_reach_hosts_that_the_config_does_not_name() {
    let provider = NodeProvider::plain();
    let egret = Config::default().gateway("workers: 1").start();
    let host = provider.url().trim_start_matches("http://");
    let request =
        format!("POST {}/echo HTTP/1.1\r\nHost: {host}\r\n{GRPC}Content-Length: 2\r\n\r\nab", provider.url());
    let echo = egret.client().send(request).response().json();
    assert_eq!((&echo["httpVersion"], &echo["body"]), (&json!("2.0"), &json!("ab")));
}

#[test]
fn tls_negotiates_the_version_that_the_config_wants() {
    let provider = NodeProvider::secure(true);
    for (http, fields, expected) in [
        ("auto", "", "1.1"),
        ("auto", GRPC, "2.0"),
        ("auto", "Content-Type: application/grpc-web\r\n", "1.1"),
        ("1", "", "1.1"),
        ("1", GRPC, "1.1"),
        ("2", "", "2.0"),
    ] {
        assert_eq!(version(&before(&provider, http), fields), expected, "{http} {fields}");
    }
}

#[test]
fn a_provider_that_offers_nothing_else_is_called_in_http2() {
    let provider = NodeProvider::secure(false);
    let egret = before(&provider, "auto");
    for _ in 0..2 {
        assert_eq!(version(&egret, ""), "2.0");
    }
    // It is remembered.
    assert_eq!(egret.provider_stat("origin", "tls_failures"), 1);
}

#[test]
fn a_provider_without_http2_is_called_in_http_1_1() {
    let origin = Provider::with_responses(|request| ok(&request.line));
    let (authority, directory) = (Authority::default(), Directory::default());
    let nginx = Nginx::start(&authority, &format!("location / {{ proxy_pass {}; }}", origin.url()));
    let ca = directory.write("ca.pem", authority.certificate());
    let url = format!("https://localhost:{}", nginx.tls_address().port());
    let keys = format!("http: 2, tls: {{ ca: {} }}", ca.display());
    let egret = Config::default().provider_with("origin", url, &keys).gateway("workers: 1").start();
    for _ in 0..3 {
        egret.get("/a").assert_forwarded(200);
    }
    // The connection is kept, and the next call does not ask again.
    assert_eq!(egret.provider_stat("origin", "connects"), 1);
}

#[test]
fn large_bodies_pass_in_both_directions() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "2");
    let mut client = egret.client();
    let len = 9 << 20;
    client.get(egret.address(), &format!("/origin/big/{len}"));
    assert_eq!(client.response().body.len(), len);
    let head =
        format!("POST /origin/size HTTP/1.1\r\nHost: {}\r\nContent-Length: {len}\r\n\r\n", egret.address());
    let response = client.send(head).send(vec![b'x'; len]).response();
    assert_eq!(response.text(), len.to_string());
}

#[test]
fn slow_readers_stall_no_neighbour() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "2");
    // All streams of the connection but one.
    let mut slow: Vec<_> = (0..31).map(|_| egret.client()).collect();
    for client in &mut slow {
        client.get(egret.address(), &format!("/origin/big/{}", 256 << 20));
        assert_eq!(client.head().status, 200);
    }
    let mut client = egret.client();
    for _ in 0..10 {
        client.get(egret.address(), &format!("/origin/big/{}", 1 << 20));
        assert_eq!(client.response().body.len(), 1 << 20);
    }
    assert_eq!(egret.provider_stat("origin", "connects"), 1);
    slow.into_iter().for_each(Client::reset);
    client.get(egret.address(), "/origin/length").response().assert_forwarded(200);
}

#[test]
fn flows_see_calls_as_ever() {
    let provider = NodeProvider::plain();
    let flows = "flows:
  - name: calls
    match: { provider: origin }
    remedies:
      - retry: { attempts: 2, on: [5xx] }
      - transform: { request: { headers: { set: { x-added: one } } }, response: { headers: { set: { x-seen: two } } } }
";
    let config = Config::default().provider_with("origin", provider.url(), "http: 2").flows(flows);
    let egret = config.gateway("workers: 1").start();
    let response = egret.get("/echo");
    assert_eq!(response.field("x-seen"), Some("two"));
    let echo = response.json();
    assert_eq!((&echo["httpVersion"], &echo["fields"]["x-added"]), (&json!("2.0"), &json!("one")));
}

/// Returns the entry of the archive for one call.
fn recorded(provider: &NodeProvider, call: impl FnOnce(&Egret)) -> Value {
    let rest = "exporters:
  archive: { type: har, directory: ./har }
flows:
  - name: all
    diagnoses: [{ har: { export: archive } }]
";
    let config = Config::default().provider_with("origin", provider.url(), "http: 2").flows(rest);
    let mut egret = config.gateway("workers: 1").start();
    call(&egret);
    until_recorded(&egret, 1);
    egret.terminate();
    assert!(egret.until_ended().success());
    entries(&files(&egret.directory().join("har"))).remove(0)
}

#[test]
fn records_name_the_version_of_each_side() {
    let provider = NodeProvider::plain();
    let entry = recorded(&provider, |egret| assert_eq!(egret.get("/length").text(), "hello"));
    assert_eq!(
        (&entry["request"]["httpVersion"], &entry["response"]["httpVersion"]),
        (&json!("HTTP/1.1"), &json!("HTTP/2.0"))
    );
    assert!(entry["timings"]["connect"].as_f64().unwrap() >= 0.0, "{entry}");
    let entry = recorded(&provider, |egret| assert_eq!(done(egret, "grpc")[0], 200));
    assert_eq!(
        (&entry["request"]["httpVersion"], &entry["response"]["httpVersion"]),
        (&json!("HTTP/2.0"), &json!("HTTP/2.0"))
    );
}

#[test]
fn via_names_the_version_in_which_a_message_arrived() {
    let provider = NodeProvider::plain();
    let egret = before(&provider, "2");
    let response = egret.get("/echo");
    assert!(response.field("via").unwrap().starts_with("2.0 egret-"), "{response:?}");
    assert!(response.json()["fields"]["via"].as_str().unwrap().starts_with("1.1 egret-"));
}
