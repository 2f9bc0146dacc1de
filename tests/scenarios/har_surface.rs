//! All endpoints of httpbin, and all ends of an exchange: each is in the archive once, with the values its
//! client received, and HAR readers can open it.

use std::net::SocketAddr;
use std::time::Instant;

use egret_tests::browser::opened_in_devtools;
use egret_tests::built_in::BuiltIn;
use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, Response};
use egret_tests::node::assert_fits_schema;
use egret_tests::peers::Httpbin;
use egret_tests::recorded::{assert_verified, entries, files, lost, until_exporter, until_recorded};
use serde_json::Value;

/// Marks an exchange in its entry, where it is not obfuscated.
const MARKER: &str = "X-Marker";
/// Number of parallel clients, because some responses are slow.
const CLIENTS: usize = 12;

/// A time up to its milliseconds, for its length.
const MILLISECONDS: &str = "2026-01-02T03:04:05.250";

/// A request, and the behaviour of its client.
#[derive(Debug, Clone, Default)]
struct Ask {
    method: &'static str,
    target: String,
    fields: String,
    body: Vec<u8>,
    version: &'static str,
    /// `true` if the client leaves after the response's head.
    leaves: bool,
}

/// The client's view of an exchange.
#[derive(Debug)]
struct Seen {
    ask: Ask,
    response: Response,
    ms: f64,
}

fn ask(method: &'static str, target: impl Into<String>) -> Ask {
    Ask { method, target: target.into(), version: "HTTP/1.1", ..Ask::default() }
}

impl Ask {
    fn field(mut self, name: &str, value: &str) -> Self {
        self.fields.extend([name, ": ", value, "\r\n"]);
        self
    }

    fn body(mut self, media_type: &str, body: impl AsRef<[u8]>) -> Self {
        self.body = body.as_ref().to_vec();
        let length = self.body.len().to_string();
        self.field("Content-Type", media_type).field("Content-Length", &length)
    }

    fn chunked(mut self, media_type: &str, body: &str) -> Self {
        for piece in body.split_inclusive(' ') {
            self.body.extend(format!("{:x}\r\n{piece}\r\n", piece.len()).into_bytes());
        }
        self.body.extend(b"0\r\n\r\n");
        self.field("Content-Type", media_type).field("Transfer-Encoding", "chunked")
    }

    fn send(self, to: SocketAddr, number: usize) -> Seen {
        let Self { method, target, fields, body, version, .. } = &self;
        let mut client = Client::connect(to);
        let started = Instant::now();
        client
            .send(format!("{method} {target} {version}\r\nHost: {to}\r\n{MARKER}: {number}\r\n{fields}\r\n"));
        client.offer(body);
        let response = if self.leaves {
            let head = client.head();
            client.reset();
            head
        } else {
            let mut response = client.any_response_to(method);
            while matches!(response.status, 100 | 102..=199) {
                response = client.any_response_to(method);
            }
            response
        };
        let ms = started.elapsed().as_secs_f64() * 1_000.0;
        Seen { ask: self, response, ms }
    }
}

/// Returns the requests to all endpoints of a provider.
fn surface(examples: &[String], provider: &str) -> Vec<Ask> {
    let at = |target: &str| format!("/{provider}{target}");
    let mut asks: Vec<Ask> = examples.iter().map(|example| ask("GET", at(example))).collect();
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "QUERY", "PROPFIND"] {
        asks.push(ask(method, at("/anything/m?a=1&b=%20&a=2")).field("Cookie", "a=1; b=\"2\""));
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let target = at(&format!("/{}", method.to_ascii_lowercase()));
        asks.extend([
            ask(method, &target).body("application/json", r#"{"a":[1,{"b":"c"}],"d":null}"#),
            ask(method, &target).body("application/x-www-form-urlencoded", "a=1&b=%C3%A9&c"),
            ask(method, &target).chunked("text/plain; charset=utf-8", "one chunk after another "),
            ask(method, &target).field("Expect", "100-continue").body("text/plain", "at once"),
        ]);
    }
    let parts = "--b\r\nContent-Disposition: form-data; name=\"a\"; filename=\"f\"\r\nContent-Type: image/png\r\n\r\n\u{1}\r\n--b--\r\n";
    asks.extend([
        ask("POST", at("/post")).body("multipart/form-data; boundary=b", parts),
        ask("POST", at("/post")).body("application/octet-stream", b"\xff\x00\xfe"),
        ask("HEAD", at("/bytes/1000")),
        ask("GET", at("/get")).field("Accept-Encoding", "gzip, br, zstd"),
        ask("GET", at("/etag/abc")).field("If-None-Match", "\"abc\""),
        ask("GET", at("/range/100")).field("Range", "bytes=10-19"),
        ask("GET", at("/delay/5")),
        Ask { version: "HTTP/1.0", ..ask("GET", at("/get")) },
        Ask { version: "HTTP/1.0", ..ask("GET", at("/stream/3")) },
        Ask { leaves: true, ..ask("GET", at("/drip?duration=2s&numbytes=10&delay=0")) },
        ask("GET", at("/websocket/echo"))
            .field("Connection", "Upgrade")
            .field("Upgrade", "websocket")
            .field("Sec-WebSocket-Version", "13")
            .field("Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ=="),
    ]);
    for status in [200, 201, 204, 205, 206, 301, 304, 400, 401, 404, 418, 429, 500, 503, 599] {
        asks.push(ask("GET", at(&format!("/status/{status}"))));
    }
    asks
}

/// Returns requests whose responses come from the gateway and its remedies, and endpoints only the built-in
/// provider has.
fn others(nobody: SocketAddr) -> Vec<Ask> {
    let faults = [
        "reset",
        "close",
        "half-close",
        "truncate",
        "stall?duration=100ms",
        "wrong-length",
        "bad-chunk",
        "informational?count=3",
        "duplicate-field",
        "slow-head?duration=300ms",
        "garbage",
    ];
    let mut asks: Vec<Ask> =
        faults.iter().map(|fault| ask("GET", format!("/built-in/fault/{fault}"))).collect();
    asks.extend([
        ask("GET", "/built-in/local/tea"),
        ask("GET", "/built-in/fail/1?key=surface"),
        ask("GET", "/built-in/limited"),
        ask("GET", "/built-in/limited"),
        ask("GET", "/built-in/changed?a=1"),
        ask("GET", "/dead/get"),
        ask("POST", "/dead/post").body("application/json", "{}"),
        ask("GET", "/nowhere/get"),
        ask("GET", "http://denied.example/get"),
        ask("GET", format!("http://{nobody}/get")),
    ]);
    asks
}

fn config(httpbin: &Httpbin, built_in: &BuiltIn, nobody: SocketAddr) -> Config {
    let flows = "exporters: { archive: { type: har, directory: ./har } }\n\
         quotas: { few: { limit: 1, window: 1h } }\n\
         flows:\n\
         - name: all\n  diagnoses:\n  - har: { export: archive, bodies: 64KiB, media_types: ['*/*'], exclude: [request.headers.x-marker] }\n\
         - { name: local, match: { path: /local/* }, remedies: [fixed-response: { status: 418, body: tea }] }\n\
         - { name: limited, match: { path: /limited }, remedies: [limit: { quota: few }] }\n\
         - { name: again, match: { path: '/fail/*' }, remedies: [retry: { attempts: 3 }] }\n\
         - { name: changed, match: { path: /changed }, remedies: [transform: { request: { path: /get } }] }\n";
    Config::with_origin(httpbin.url())
        .provider("built-in", format!("http://{}", built_in.address()))
        .provider("dead", format!("http://{nobody}"))
        .gateway("timeouts: { first_byte: 2s }")
        .gateway("egress: { deny: [{ host: denied.example }] }")
        .flows(flows)
}

/// Sends all requests, some in parallel.
fn send_all(egret: &Egret, asks: Vec<Ask>) -> Vec<Seen> {
    let (address, all) = (egret.address(), asks.len());
    let mut queues: Vec<Vec<(usize, Ask)>> = vec![Vec::new(); CLIENTS];
    for (number, ask) in asks.into_iter().enumerate() {
        queues[number % CLIENTS].push((number, ask));
    }
    let threads: Vec<_> = queues
        .into_iter()
        .map(|queue| {
            std::thread::spawn(move || {
                queue.into_iter().map(|(number, ask)| (number, ask.send(address, number))).collect::<Vec<_>>()
            })
        })
        .collect();
    let mut seen: Vec<(usize, Seen)> =
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
    seen.sort_by_key(|(number, _)| *number);
    assert_eq!(seen.len(), all);
    seen.into_iter().map(|(_, seen)| seen).collect()
}

fn marker(entry: &Value) -> usize {
    let fields = entry["request"]["headers"].as_array().unwrap();
    let field = fields.iter().find(|field| field["name"] == MARKER);
    field.unwrap_or_else(|| panic!("{entry}"))["value"].as_str().unwrap().parse().unwrap()
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|field| field["name"].as_str().unwrap()).collect()
}

fn assert_is_what_was_seen(entry: &Value, Seen { ask, response, .. }: &Seen) {
    let received = || format!("{ask:?}\n{response:?}\n{entry}");
    assert_eq!(entry["request"]["method"], ask.method, "{}", received());
    assert_eq!(entry["request"]["httpVersion"], ask.version, "{}", received());
    let answer = &entry["response"];
    assert_eq!(answer["status"], response.status, "{}", received());
    let fields: Vec<&str> = response.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names(&answer["headers"]), fields, "{}", received());
    if !ask.leaves {
        assert_eq!(answer["bodySize"], response.body.len(), "{}", received());
        assert_eq!(entry["_cutShort"].as_bool().unwrap_or(false), response.cut, "{}", received());
    }
}

#[test]
fn every_exchange_is_in_the_archive_once_and_readers_open_it() {
    let (httpbin, built_in) = (Httpbin::start(), BuiltIn::start(&[]));
    let closed = ClosedPort::take();
    let egret = config(&httpbin, &built_in, closed.address()).start();
    let page = built_in.get("/");
    let examples: Vec<String> = page
        .text()
        .split("href=\"")
        .skip(1)
        .map(|rest| rest[..rest.find('"').unwrap()].replace("&amp;", "&"))
        .collect();
    assert!(examples.len() > 60, "{examples:?}");
    let mut asks = surface(&examples, "origin");
    asks.extend(surface(&examples, "built-in"));
    asks.extend(others(closed.address()));
    let seen = send_all(&egret, asks);
    until_recorded(&egret, seen.len() as u64);

    let directory = egret.directory().join("har");
    let written = seen.len() as u64;
    let archive =
        until_exporter(&egret, "archive", "all are written", |archive| archive["written"] == written);
    assert_eq!((archive["put"].as_u64(), lost(&archive)), (Some(written), 0), "{archive}");
    let files = files(&directory);
    let archived = entries(&files);
    let mut entries = archived.clone();
    assert_eq!(entries.len(), seen.len());
    entries.sort_by_key(marker);
    for (number, (entry, seen)) in entries.iter().zip(&seen).enumerate() {
        assert_eq!(marker(entry), number);
        assert_is_what_was_seen(entry, seen);
    }
    // On a busy machine either one may measure late.
    let agreeing =
        entries.iter().zip(&seen).filter(|(entry, seen)| entry["time"].as_f64().unwrap() <= seen.ms + 1.0);
    assert!(agreeing.count() > seen.len() / 2, "times are those of the client");
    assert_verified(&files);
    assert_fits_schema("har", &files);

    // The tools order by start in milliseconds; the file is ordered by end.
    let mut archived = archived;
    archived.sort_by_key(|entry| entry["startedDateTime"].as_str().unwrap()[..MILLISECONDS.len()].to_owned());
    let opened: Vec<Value> = opened_in_devtools(&files).concat();
    assert_eq!(opened.len(), archived.len());
    for (entry, shown) in archived.iter().zip(&opened) {
        let received = format!("{shown}\n{entry}");
        assert_eq!(shown["url"], entry["request"]["url"], "{received}");
        assert_eq!(shown["method"], entry["request"]["method"], "{received}");
        assert_eq!(shown["status"], entry["response"]["status"], "{received}");
        assert_eq!(shown["headers"], names(&entry["response"]["headers"]).len(), "{received}");
        let shown_ms = shown["duration"].as_f64().unwrap() * 1_000.0;
        assert!((shown_ms - entry["time"].as_f64().unwrap()).abs() < 1.0, "{received}");
        if let Some(text) = entry["response"]["content"]["text"].as_str() {
            assert_eq!(shown["content"], text, "{received}");
        }
    }
}
