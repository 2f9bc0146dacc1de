//! WebSockets in streams of HTTP/2 (RFC 8441), from clients and to providers, in each combination with
//! HTTP/1.1.

use egret_tests::built_in::BuiltIn;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, WEBSOCKET};
use egret_tests::http2::{HEADERS, Http2Client, RST_STREAM};
use egret_tests::http2_provider::NodeProvider;
use egret_tests::intercepted::Intercepting;
use egret_tests::peers::{node, node_script};
use egret_tests::pki::Authority;
use egret_tests::process::{Directory, Process};
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{entries, files, until_recorded};
use egret_tests::wait;
use serde_json::{Value, json};

/// Error codes (RFC 9113 §7).
const NO_ERROR: u32 = 0;
const INTERNAL_ERROR: u32 = 2;
const CANCEL: u32 = 8;

/// Does with Node's client what `websocket.mjs` calls so.
fn done(egret: &Egret, path: &str, what: &str) -> Value {
    let printed = node("websocket.mjs", "", &[&egret.url(), path, what]);
    serde_json::from_str(printed.lines().last().unwrap()).unwrap()
}

fn before(provider: &NodeProvider, keys: &str) -> Egret {
    Config::default().provider_with("origin", provider.url(), keys).gateway("workers: 1").start()
}

/// Asks for a WebSocket in HTTP/1.1.
fn upgrading(egret: &Egret, path: &str) -> Client {
    let mut client = egret.client();
    client.request(egret.address(), &format!("GET /origin{path}"), WEBSOCKET, "");
    client
}

fn until_no_tunnel(egret: &Egret) {
    wait::until_true("the tunnel is gone", || egret.stat("/clients/tunnels") == 0);
}

/// Sends bytes that come back, and ends the sending side first.
fn assert_echoes(egret: &Egret, client: &mut Client) {
    for text in ["hello", "a longer text that comes back as it went"] {
        client.send(text);
        assert_eq!(client.bytes(text.len()), text.as_bytes());
    }
    assert_eq!(egret.stat("/clients/tunnels"), 1);
    client.half_close().assert_closed();
    until_no_tunnel(egret);
}

#[test]
fn a_websocket_in_a_stream_reaches_a_provider_of_http_1_1() {
    let provider = BuiltIn::start(&[]);
    let egret = Config::with_origin(format!("http://{}", provider.address())).start();
    let messages = ["hello", "a longer text that comes back as it went"];
    assert_eq!(
        done(&egret, "/origin/websocket/echo", "messages"),
        json!([true, 200, null, messages, [0x88, 2, 3, 232], 0])
    );
    until_no_tunnel(&egret);
}

#[test]
fn a_websocket_of_http_1_1_is_opened_in_a_stream() {
    let (plain, secure) = (NodeProvider::of_websockets(), NodeProvider::of_secure_websockets(true));
    let trusted = format!("http: 2, {}", secure.trusted());
    for (provider, keys) in [(&plain, "http: 2"), (&secure, &*trusted)] {
        let egret = before(provider, keys);
        let mut client = upgrading(&egret, "/echo?a=1");
        let switched = client.head();
        assert_eq!(switched.status, 101, "{switched:?}");
        for (name, value) in [
            ("upgrade", "websocket"),
            ("sec-websocket-accept", "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="),
            ("x-version", "2"),
            ("x-path", "/echo?a=1"),
            ("x-key", "none"),
        ] {
            assert_eq!(switched.field(name), Some(value), "{name}");
        }
        assert_echoes(&egret, &mut client);
    }
}

#[test]
fn a_websocket_passes_from_stream_to_stream() {
    let provider = NodeProvider::of_websockets();
    let egret = before(&provider, "http: 2");
    assert_eq!(done(&egret, "/origin/echo", "bytes"), json!([200, "chat", "hello", 0]));
    until_no_tunnel(&egret);
}

#[test]
fn a_websocket_passes_an_intercepted_tunnel_in_a_stream() {
    for announces in [true, false] {
        let provider = NodeProvider::of_secure_websockets(announces);
        let keys = format!("http: 2, {}", provider.trusted());
        let config = Config::default().provider_with("origin", provider.url(), &keys);
        let intercepting = Intercepting::with_authority(&config.flows("interception: {}\n"), |_| {});
        let printed = node("websocket.mjs", &intercepting.egret.url(), &[provider.url(), "/echo", "bytes"]);
        let protocol = if announces { json!("chat") } else { Value::Null };
        let expected = json!([200, protocol, "hello", 0]);
        assert_eq!(serde_json::from_str::<Value>(printed.trim()).unwrap(), expected);
    }
}

#[test]
fn a_websocket_passes_a_listener_with_tls_in_a_stream() {
    let provider = NodeProvider::of_websockets();
    let (directory, leaf) = (Directory::default(), Authority::default().leaf(&["localhost"]));
    let listener = format!(
        "{{ address: '127.0.0.1:0', tls: {{ certificate: '{}', key: '${{file:{}}}' }} }}",
        directory.write("server.pem", leaf.certificate).display(),
        directory.write_secret("server.key", leaf.key).display()
    );
    let config = Config::default().provider_with("origin", provider.url(), "http: 2");
    let egret = config.listen([&listener]).start();
    let url = format!("https://localhost:{}", egret.address().port());
    let printed = node("websocket.mjs", "", &[&url, "/origin/echo", "bytes"]);
    assert_eq!(serde_json::from_str::<Value>(printed.trim()).unwrap(), json!([200, "chat", "hello", 0]));
}

#[test]
fn a_websocket_in_a_stream_is_recorded() {
    let provider = NodeProvider::of_websockets();
    let rest = "exporters:
  archive: { type: har, directory: ./har }
flows:
  - name: all
    diagnoses: [{ har: { export: archive } }]
";
    let config = Config::default().provider_with("origin", provider.url(), "http: 2").flows(rest);
    let mut egret = config.gateway("workers: 1").start();
    assert_eq!(done(&egret, "/origin/echo", "bytes"), json!([200, "chat", "hello", 0]));
    until_recorded(&egret, 1);
    egret.terminate();
    assert!(egret.until_ended().success());
    let entry = entries(&files(&egret.directory().join("har"))).remove(0);
    let (request, response) = (&entry["request"], &entry["response"]);
    assert_eq!((&request["method"], &request["httpVersion"]), (&json!("GET"), &json!("HTTP/2.0")));
    assert_eq!((&response["status"], &response["httpVersion"]), (&json!(101), &json!("HTTP/2.0")));
}

#[test]
fn a_provider_that_announces_nothing_gets_an_upgrade() {
    let provider = NodeProvider::of_secure_websockets(false);
    let egret = before(&provider, &format!("http: 2, {}", provider.trusted()));
    let mut client = upgrading(&egret, "/echo");
    let switched = client.head();
    assert_eq!((switched.status, switched.field("x-version")), (101, Some("1.1")), "{switched:?}");
    assert_echoes(&egret, &mut client);
    assert_eq!(done(&egret, "/origin/echo", "bytes"), json!([200, null, "hello", 0]));
}

#[test]
fn a_refused_websocket_is_an_ordinary_response() {
    let provider = NodeProvider::of_websockets();
    let egret = before(&provider, "http: 2");
    let mut client = upgrading(&egret, "/refused");
    assert_eq!(client.response().assert_forwarded(403).text(), "not you");
    assert_eq!(done(&egret, "/origin/refused", "status"), json!([403, null]));
    assert_eq!(egret.stat("/clients/tunnels"), 0);
}

#[test]
fn streams_for_other_protocols_are_refused_with_501() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    let refused = json!([501, "not-implemented"]);
    assert_eq!(done(&egret, "/origin/", "others"), json!([refused, refused, refused]));
    let egret = Config::with_origin(origin.url()).gateway("upgrades: []").start();
    assert_eq!(done(&egret, "/origin/", "status"), refused);
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn a_success_that_opens_nothing_is_an_error() {
    let switch = "HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n";
    for answer in [
        String::from_utf8(ok("a page")).unwrap(),
        format!("{switch}\r\n"),
        format!("{switch}Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n"),
    ] {
        let origin = Provider::responding(answer.clone());
        let egret = Config::with_origin(origin.url()).start();
        assert_eq!(done(&egret, "/origin/", "status"), json!([502, "bad-response"]), "{answer}");
        assert_eq!(egret.stat("/clients/tunnels"), 0);
    }
}

#[test]
fn a_success_of_a_remedy_opens_nothing() {
    let origin = Provider::plain();
    let flow =
        "flows: [{ name: local, match: { path: /local }, remedies: [fixed-response: { status: 200 }] }]";
    let egret = Config::with_origin(origin.url()).flows(flow).start();
    assert_eq!(done(&egret, "/origin/local", "status")[0], 502);
    assert_eq!(origin.requests().len(), 0);
}

#[test]
fn a_reset_of_one_side_resets_the_other() {
    let provider = NodeProvider::of_websockets();
    let egret = before(&provider, "http: 2");
    assert_eq!(done(&egret, "/origin/echo", "reset"), "reset");
    until_no_tunnel(&egret);
    // The provider resets the stream, and Node ends its direction before. If that has been passed on, all
    // that is left to say is that nothing more is read.
    let seen = done(&egret, "/origin/reset", "wait");
    assert!(seen == json!([200, INTERNAL_ERROR]) || seen == json!([200, NO_ERROR]), "{seen}");
    until_no_tunnel(&egret);
}

#[test]
fn an_idle_websocket_in_a_stream_is_ended() {
    let provider = NodeProvider::of_websockets();
    let egret = before(&provider, "http: 2, timeouts: { idle: 1s }");
    let mut client = Http2Client::connect(egret.address());
    let own = egret.address().to_string();
    let fields = [
        (":method", "CONNECT"),
        (":protocol", "websocket"),
        (":scheme", "http"),
        (":authority", &own),
        (":path", "/origin/echo"),
        ("sec-websocket-version", "13"),
    ];
    // Nothing is sent through it, which might take longer than that time on a busy machine.
    client.headers(1, &fields, false);
    assert_eq!(client.until_on(1, HEADERS).status(), Some(200));
    let error = client.until_on(1, RST_STREAM).error();
    assert!([INTERNAL_ERROR, CANCEL].contains(&error), "{error}");
    until_no_tunnel(&egret);
}

#[test]
fn a_drain_waits_for_websockets_as_long_as_it_may() {
    let provider = NodeProvider::of_websockets();
    let config = Config::default().provider_with("origin", provider.url(), "http: 2");
    let mut egret = config.gateway("timeouts: { drain: 1s }").start();
    let mut command = node_script("websocket.mjs");
    let client = Process::printing(command.args([&*egret.url(), "/origin/echo", "wait"]));
    client.until_printed("the WebSocket is open", |lines| lines.first().map(drop));
    egret.terminate();
    assert!(egret.until_ended().success());
    let end: Value = client.until_printed("the client has seen the end", |lines| {
        lines.get(1).and_then(|line| serde_json::from_str(line).ok())
    });
    assert_eq!(end[0], 200);
}
