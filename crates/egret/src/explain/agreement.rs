//! Random requests over random configs: a running gateway does with each what `explain` says.
//!
//! Every name of the tests is that of one server on this machine, so calls are made and answered. What
//! happens after a call is made, such as a refused connection, is beyond `explain`.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::time::{Duration, Instant};

use egret_clock::Random;
use egret_diagnosis::TrafficFilter;
use egret_gateway::{EgressVerdict, Gateway, Rehearsed, Responder};
use egret_message::ListenAddress;
use egret_plan::config::InterceptionParts;
use egret_service::interception::Certificates;
use egret_settings::config::Config;
use egret_settings::unopened;
use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use super::ExplainedConfig;
use super::request::ProbeRequest;

const CONFIGS: u64 = 50;
/// Number of requests if the environment has no number of cases for property tests.
const REQUESTS: usize = 2_500;
/// Number of requests for which the least of each class is known.
const COUNTED: usize = 10_000;
/// The seed if the environment has none for property tests.
const SEED: u64 = 37;
/// Fields that name a host, each with one that names the scheme.
const ROUTING_FIELDS: [(&str, &str); 4] = [
    ("x-egret-host", "x-egret-scheme"),
    ("x-lunar-host", "X-Lunar-Scheme"),
    ("Mashape-Host-Override", "Mashape-Upstream-Protocol"),
    ("x-egret-host", "x-forwarded-proto"),
];
/// Time for anything that a busy machine delays.
const PATIENCE: Duration = Duration::from_secs(30);
/// The token of the only client of a listener that asks for one.
const TOKEN: &str = "agreement-agreement-token";

/// Errors that follow a call: `explain` says that the provider responds.
const AFTER_THE_CALL: [&str; 9] = [
    "dns-failed",
    "dns-timeout",
    "connect-failed",
    "connect-timeout",
    "tls-failed",
    "tls-timeout",
    "bad-response",
    "provider-closed",
    "first-byte-timeout",
];

fn pick<'a, T>(random: &mut Random, from: &'a [T]) -> &'a T {
    &from[usize::try_from(random.up_to(from.len() as u64 - 1)).unwrap()]
}

fn one_in(random: &mut Random, count: u64) -> bool {
    random.up_to(count - 1) == 0
}

/// A name server for which every name exists. `far.test` is elsewhere.
fn start_name_server() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut packet = [0; 1500];
        while let Ok((count, client)) = socket.recv_from(&mut packet) {
            let mut end = 12;
            while end < count && packet[end] != 0 {
                end += 1 + usize::from(packet[end]);
            }
            let is_far = packet[12..end].windows(3).any(|word| word.eq_ignore_ascii_case(b"far"));
            let is_v4 = packet[end + 2] == 1;
            let mut reply = packet[..end + 5].to_vec();
            reply[2..4].copy_from_slice(&[0x84, 0x80]);
            reply[6..12].copy_from_slice(&[0, u8::from(is_v4), 0, 0, 0, 0]);
            if is_v4 {
                reply.extend_from_slice(&[0xc0, 12, 0, 1, 0, 1, 0, 0, 1, 0, 0, 4]);
                reply.extend_from_slice(if is_far { &[10, 9, 9, 9] } else { &[127, 0, 0, 1] });
            }
            let _ = socket.send_to(&reply, client);
        }
    });
    address
}

/// A server that answers 200 to everything.
fn start_server() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || serve(stream));
        }
    });
    address
}

fn serve(mut stream: TcpStream) {
    let mut bytes = Vec::new();
    let mut block = [0; 4096];
    loop {
        match stream.read(&mut block) {
            Ok(count) if count > 0 => bytes.extend_from_slice(&block[..count]),
            _ => return,
        }
        // TLS is refused.
        if bytes[0] == 0x16 {
            return;
        }
        while let Some((head, rest)) = message(&bytes) {
            let is_head = head.starts_with("HEAD ");
            bytes = rest;
            let body = if is_head { "" } else { "ok" };
            let _ =
                stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{body}").as_bytes());
        }
    }
}

/// Splits the first whole message off.
fn message(bytes: &[u8]) -> Option<(String, Vec<u8>)> {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n")? + 4;
    let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
    let len = field(&head, "content-length").map_or(0, |len| len.parse().unwrap());
    let body_end = end + if head.starts_with("HTTP/1.1 204") { 0 } else { len };
    (bytes.len() >= body_end).then(|| (head, bytes[body_end..].to_vec()))
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    head.lines()
        .filter_map(|line| line.split_once(": "))
        .find_map(|(found, value)| found.eq_ignore_ascii_case(name).then_some(value))
}

/// The servers that all gateways use.
struct World {
    names: SocketAddr,
    server: SocketAddr,
    token: tempfile::NamedTempFile,
}

/// A generated request, in two forms: the bytes that a client sends, and the words for `explain`.
#[derive(Debug)]
struct Generated {
    kind: &'static str,
    listener: SocketAddr,
    bytes: String,
    method: &'static str,
    url: String,
    fields: Vec<String>,
    body: Option<&'static str>,
    consumer: Option<&'static str>,
    /// The authority of the tunnel that it is sent in. The gateway speaks TLS inside.
    tunnel: Option<String>,
}

/// The response of the gateway.
#[derive(Debug, Default)]
struct Received {
    status: u16,
    error: Option<String>,
    detail: String,
    trace: Option<String>,
}

const FLOWS: [&str; 14] = [
    "match: { provider: one, path: '/users/{id}' }\n  remedies: [ { timeout: { total: 5s } } ]",
    "match: { method: [POST, PUT] }\n  remedies: [ { transform: { request: { headers: { set: { x-flow: a } } } } }, { timeout: { total: 9s } } ]",
    "match: { host: '*.two.test' }\n  remedies: [ { retry: {} } ]",
    "match: { header: { x-tier: 'gold*' } }\n  remedies: [ { timeout: { first_byte: 5s } } ]",
    "match: { consumer: web }\n  remedies: [ { timeout: { total: 6s } } ]",
    "match: { query: { a: '1' } }\n  remedies: [ { concurrency: { max: 50 } } ]",
    "match: { path: '/fixed/*' }\n  remedies: [ { fixed-response: { status: 418, body: 'tea' } } ]",
    "match: { path: '/else/*' }\n  remedies: [ { transform: { request: { provider: two } } } ]",
    "match: { path: '/script/*' }\n  remedies: [ { script: { source: 'function onRequest(r) { return refuse({ status: 403, detail: \"no\" }); }' } } ]",
    "match: { when: 'request.method == \"DELETE\"' }\n  remedies: [ { timeout: { total: 7s } } ]",
    "match: { when: 'request.body.amount > 100' }\n  remedies: [ { timeout: { total: 8s } } ]",
    "match: { path: ['/v2/*', '/b/*'] }\n  remedies: [ { fallback: { on: [connect], response: { status: 203 } } } ]",
    "remedies: [ { retry: { attempts: 2, backoff: { base: 1ms } } } ]",
    "match: { path: '/users/*' }\n  diagnoses: [ { access-log: { export: log } } ]",
];

impl World {
    /// Returns a config, whose listeners have no port yet.
    fn config(&self, number: u64, random: &mut Random) -> String {
        let port = self.server.port();
        let egress = match number % 5 {
            0 => "{}".to_owned(),
            1 => format!(
                "{{ default: deny, allow: [{{ ports: [1] }}, {{ host: '*.one.test' }}, {{ host: other.test, ports: [{port}] }}, {{ net: 127.0.0.1/32, ports: [{port}] }}] }}"
            ),
            2 => "{ deny: [{ host: 'far.test', net: 10.0.0.0/8 }, { host: '*.two.test' }, { host: 'regex:o.*' }, { net: 192.0.2.0/24 }, { ports: [81] }] }".to_owned(),
            3 => "{ mode: report, default: deny, allow: [{ host: other.test }] }".to_owned(),
            _ => "{ allow: [{ net: 169.254.169.254/32 }], deny: [{ host: metadata.goog }] }".to_owned(),
        };
        let keep_host = one_in(random, 2);
        let https_provider = if one_in(random, 2) { ", https_provider: tls" } else { "" };
        let mut text = format!(
            "gateway:\n  listen:\n  - 127.0.0.1:0\n  - {{ address: 127.0.0.1:0, route_by_query: true }}\n  \
             - {{ address: 127.0.0.1:0, provider: base, keep_host: {keep_host}{https_provider} }}\n  \
             - {{ address: 127.0.0.1:0, scheme: https }}\n  \
             - {{ address: 127.0.0.1:0, clients: {{ tokens: {{ web: '${{file:{}}}' }} }} }}\n  names: [egret.internal]\n  workers: 1\n  \
             scheme_fields: [x-forwarded-proto]\n  dns: {{ servers: ['{}'], timeout: 5s }}\n  \
             timeouts: {{ connect: 100ms, tls: 2s }}\n  egress: {egress}\n\
             interception: {{ hosts: ['*.inside.test'], tunnel: ['*.one.test', '*.two.test', tls.test, far.test, 127.0.0.1, 169.254.169.254] }}\n\
             control: {{ listen: '127.0.0.1:7', traffic: {{ redact: off, entries: 2000, bodies: 0B }} }}\n\
             exporters: {{ log: {{ type: lines, directory: ./never }} }}\n\
             providers:\n  one: {{ url: 'http://api.one.test:{port}' }}\n  \
             base: {{ url: 'http://api.one.test:{port}/v2', hosts: [far.test] }}\n  two: {{ url: 'http://x.two.test:{port}/b/c' }}\n  \
             tls: {{ url: 'https://tls.test:{port}' }}\n  lit: {{ url: 'http://127.0.0.1:{port}/lit' }}\n",
            self.token.path().display(),
            self.names
        );
        if number % 5 != 4 {
            text.push_str("  meta: { url: 'http://169.254.169.254/latest' }\n");
        }
        let mut flows: Vec<&str> = FLOWS.iter().copied().filter(|_| one_in(random, 3)).collect();
        if number % 10 == 9 {
            flows.clear();
        }
        if !flows.is_empty() {
            text.push_str("flows:\n");
        }
        for (number, flow) in flows.iter().enumerate() {
            let _ = write!(text, "- name: f{number}\n  {flow}\n");
        }
        text
    }

    /// Returns a request for a gateway at these addresses.
    fn request(&self, at: &[SocketAddr], id: usize, random: &mut Random) -> Generated {
        let kinds = [
            "proxy", "proxy", "base-url", "headers", "host", "reverse", "query", "connect", "client",
            "inside",
        ];
        let kind = *pick(random, &kinds);
        let method =
            *pick(random, &["GET", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "get", "FOO"]);
        let (host, path) = (self.host(at, random), Self::path(random));
        let listener = match kind {
            "reverse" => at[2],
            "query" => at[1],
            "client" => at[4],
            "connect" if one_in(random, 4) => at[2],
            _ if one_in(random, 6) => at[3],
            _ => at[0],
        };
        let mut fields = Self::fields(random);
        fields.push(format!("x-request-id: agreement-{id}"));
        let body = matches!(method, "POST" | "PUT")
            .then(|| *pick(random, &["{\"amount\":200}", "{\"amount\":1}", "no json"]));
        if body.is_some() {
            fields.push("Content-Type: application/json".to_owned());
        }
        let mut url = format!("http://{listener}{path}");
        let mut inside = None;
        let (mut target, mut sent_host, mut method) = (path.clone(), listener.to_string(), method);
        let scheme = *pick(random, &["http", "http", "https", "ftp"]);
        match kind {
            "inside" => {
                let tunnel =
                    format!("{}:{}", pick(random, &["a.inside.test", "b.c.inside.test"]), self.server.port());
                sent_host = if one_in(random, 3) { host } else { tunnel.clone() };
                url = format!("https://{tunnel}{path}");
                inside = Some(tunnel);
            }
            "proxy" | "client" => {
                if kind == "client" {
                    fields.extend(Self::proof(random));
                }
                url = format!("{}://{host}{path}", if scheme == "ftp" { "HTTP" } else { scheme });
                target.clone_from(&url);
                sent_host.clone_from(&host);
            }
            "base-url" | "reverse" => {
                if kind == "base-url" {
                    let provider =
                        *pick(random, &["one", "base", "two", "tls", "lit", "meta", "nope", "One", ""]);
                    target = format!("/{provider}{path}");
                }
                if one_in(random, 6) {
                    "egret.internal".clone_into(&mut sent_host);
                    let _ = write!(sent_host, ":{}", listener.port());
                }
                if kind == "reverse" && one_in(random, 3) {
                    sent_host = host;
                }
                if kind == "reverse" && one_in(random, 3) {
                    fields.push(format!("x-egret-scheme: {scheme}"));
                }
            }
            "headers" => {
                let (name, other) = *pick(random, &ROUTING_FIELDS);
                fields.push(format!("{name}: {host}"));
                if one_in(random, 2) {
                    fields.push(format!("{other}: {scheme}"));
                }
            }
            "host" => sent_host = host,
            "query" => {
                let mark = if path.contains('?') { '&' } else { '?' };
                let more = if one_in(random, 2) { format!("&egret_scheme={scheme}") } else { String::new() };
                target = format!("{path}{mark}egret_host={host}{more}");
            }
            _ => {
                method = "CONNECT";
                target.clone_from(&host);
                sent_host.clone_from(&host);
                url = host;
            }
        }
        let is_origin_form = !matches!(kind, "proxy" | "client" | "connect");
        if is_origin_form {
            let slash = if target.starts_with('/') { "" } else { "/" };
            target.insert_str(0, slash);
        }
        if is_origin_form && inside.is_none() {
            url = format!("http://{listener}{target}");
        }
        let body = body.filter(|_| kind != "connect");
        // For `explain`, a client that names a consumer has proven to be this one.
        let consumer = (kind != "client" && one_in(random, 4)).then_some("web");
        let mut head = format!("{method} {target} HTTP/1.1\r\nHost: {sent_host}\r\n");
        if let Some(consumer) = consumer {
            let _ = write!(head, "x-egret-consumer: {consumer}\r\n");
        }
        let bytes = with_fields(head, &fields, body);
        if is_origin_form {
            fields.push(format!("Host: {sent_host}"));
        }
        Generated { kind, listener, bytes, method, url, fields, body, consumer, tunnel: inside }
    }

    /// Returns a field with which a client may prove who it is.
    fn proof(random: &mut Random) -> Option<String> {
        match random.up_to(5) {
            0..=2 => Some(format!("Proxy-Authorization: Bearer {TOKEN}")),
            3 => Some(format!("x-egret-token: {TOKEN}")),
            4 => Some("Proxy-Authorization: Bearer another-token-of-nobody".to_owned()),
            _ => None,
        }
    }

    fn host(&self, at: &[SocketAddr], random: &mut Random) -> String {
        let port = self.server.port();
        let own = at[0].port();
        let at_server = [
            "api.one.test",
            "api.one.test",
            "x.two.test",
            "y.two.test",
            "tls.test",
            "other.test",
            "far.test",
            "OTHER.test",
            "other.test.",
            "127.0.0.1",
            "[::ffff:127.0.0.1]",
            "o-o.test",
        ];
        let others = [
            "other.test:81",
            "169.254.169.254",
            "169.254.169.254:80",
            "[::ffff:169.254.169.254]",
            "[fd00:ec2::254]",
            "metadata.google.internal",
            "metadata.goog",
            "2852039166",
            "0xa9fea9fe",
            "0x7f.1",
            "127.1",
            "010.0.0.1",
            "192.0.2.7",
            "[fe80::1]",
            "169.254.1.1",
            "0.0.0.0:7",
            "127.0.0.1:7",
            "a..b",
            "-x",
            "a_b.test",
            "h:99999",
            "user@h.test",
            "a%2eb",
            "xn--bcher-kva.test",
            "[::1",
            "*",
            "1.2.3.4.5",
            "other.test:1",
        ];
        match random.up_to(9) {
            0..=5 => format!("{}:{port}", pick(random, &at_server)),
            6 => format!("127.0.0.2:{own}"),
            _ => (*pick(random, &others)).to_owned(),
        }
    }

    fn path(random: &mut Random) -> String {
        let paths = [
            "/",
            "/users/7",
            "/users/%37",
            "/users/7?a=1",
            "/v2",
            "/v2/",
            "/v2/x",
            "/v20",
            "/V2/x",
            "/v2/../v3",
            "/v%32/x",
            "//a",
            "/a/../b",
            "/a/%2e%2e/b",
            "/a/..%2fb",
            "/%2F",
            "/%zz",
            "/%00",
            "/a;b/c",
            "/b/c/d",
            "/b/c",
            "/b/cd",
            "/fixed/x",
            "/else/users/1",
            "/script/x?y",
            "/lit/x",
            "/a b",
            "/a#b",
            "/\u{e9}",
            "/x?a=1&b=%20",
            "/x?a=2",
            "?a=1",
            "/.",
            "/..",
            "/users/",
            "/a\\b",
        ];
        (*pick(random, &paths)).to_owned()
    }

    fn fields(random: &mut Random) -> Vec<String> {
        let all = [
            "x-tier: golden",
            "x-tier: silver",
            "Max-Forwards: 0",
            "Max-Forwards: 5",
            "Accept: */*",
            "Via: 1.1 elsewhere",
            "x-forwarded-proto: https",
            "Connection: close",
            "Upgrade: websocket",
            "bad name: x",
            "X-Forwarded-For: 1.2.3.4",
        ];
        all.iter().filter(|_| one_in(random, 12)).map(|field| (*field).to_owned()).collect()
    }
}

/// Sends a request on a connection of its own, and reads the response: that to the CONNECT before it, if the
/// gateway refuses to open the tunnel.
fn send(request: &Generated, id: usize, trusted: &Arc<ClientConfig>) -> Received {
    let mut stream = TcpStream::connect(request.listener).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    let Some(authority) = &request.tunnel else {
        stream.write_all(request.bytes.as_bytes()).unwrap();
        return receive(&mut stream, request.method, request);
    };
    let connect =
        format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\nx-request-id: agreement-{id}\r\n\r\n");
    stream.write_all(connect.as_bytes()).unwrap();
    let received = receive(&mut stream, "CONNECT", request);
    if received.error.is_some() {
        return received;
    }
    let host = authority.split(':').next().unwrap().to_owned();
    let name = ServerName::try_from(host).unwrap();
    let connection = ClientConnection::new(Arc::clone(trusted), name).unwrap();
    let mut stream = StreamOwned::new(connection, stream);
    stream.write_all(request.bytes.as_bytes()).unwrap();
    receive(&mut stream, request.method, request)
}

/// Reads the response to a request with this method.
fn receive(stream: &mut impl Read, method: &str, request: &Generated) -> Received {
    let (mut bytes, mut block) = (Vec::new(), [0; 4096]);
    loop {
        let count = stream.read(&mut block).unwrap_or_else(|error| panic!("{error} for {request:?}"));
        bytes.extend_from_slice(&block[..count]);
        let head = bytes.windows(4).position(|window| window == b"\r\n\r\n");
        let is_bodiless = method == "HEAD" || method == "CONNECT";
        if count == 0 || message(&bytes).is_some() || (head.is_some() && is_bodiless) {
            break;
        }
    }
    let text = String::from_utf8_lossy(&bytes);
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{text:?} for {request:?}"));
    let problem: Value = serde_json::from_str(body).unwrap_or_default();
    Received {
        status: head[9..12].parse().unwrap(),
        error: field(head, "x-egret-error").map(str::to_owned),
        detail: problem["detail"].as_str().unwrap_or_default().to_owned(),
        trace: field(head, "x-egret-trace").map(str::to_owned),
    }
}

/// Waits for the records of exchanges, by the numbers of their requests.
fn records(gateway: &Gateway, routed: &[usize]) -> BTreeMap<usize, Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut bytes = Vec::new();
        gateway.traffic().lines(1, &TrafficFilter::default(), 64 << 20, &mut bytes);
        let lines = String::from_utf8(bytes).unwrap();
        let records = lines.lines().map(|line| serde_json::from_str(line).unwrap());
        let records = records.filter_map(|record: Value| {
            let id = record["request_id"].as_str()?.strip_prefix("agreement-")?.parse().ok()?;
            Some((id, record))
        });
        let records: BTreeMap<usize, Value> = records.collect();
        if routed.iter().all(|id| records.contains_key(id)) || Instant::now() > deadline {
            return records;
        }
        std::thread::yield_now();
    }
}

/// Returns a request: the beginning of its head, further fields, and the body.
fn with_fields(mut head: String, fields: &[String], body: Option<&str>) -> String {
    for field in fields {
        let _ = write!(head, "{field}\r\n");
    }
    if let Some(body) = body {
        let _ = write!(head, "Content-Length: {}\r\n", body.len());
    }
    let _ = write!(head, "\r\n{}", body.unwrap_or_default());
    head
}

/// Counts of what has been compared.
#[derive(Debug, Default)]
struct Counts(BTreeMap<String, usize>);

impl Counts {
    fn add(&mut self, class: impl Into<String>) {
        *self.0.entry(class.into()).or_default() += 1;
    }

    fn check(&self, class: &str, least: usize) {
        let found = self.0.get(class).copied().unwrap_or_default();
        assert!(found >= least, "only {found} of {class}");
    }
}

/// Compares what `explain` says with the response. Returns the difference.
fn compare(said: &Rehearsed, received: &Received, counts: &mut Counts) -> Result<(), String> {
    let error = received.error.as_deref();
    match &said.answer {
        Responder::Error(expected) => {
            if (Some(expected.error), expected.status) != (error, received.status) {
                return Err(format!("explain: {} {}", expected.status, expected.error));
            }
            if !received.detail.is_empty() && received.detail != expected.detail {
                return Err(format!("explain: {}", expected.detail));
            }
            counts.add(format!("error {}", expected.error));
        }
        Responder::Remedy(status) => {
            if (*status, None) != (received.status, error) {
                return Err(format!("explain: a remedy responds with {status}"));
            }
            counts.add("answered by a remedy");
        }
        Responder::Provider | Responder::Relay => {
            let egress = said.egress.as_ref().ok_or("explain: a call without a verdict")?;
            let is_far = !egress.later.is_empty() && egress.authority.starts_with("far.test:");
            match error {
                None => {}
                Some(error) if AFTER_THE_CALL.contains(&error) => {}
                Some("egress-denied") if egress.addresses_follow => counts.add("denied by address"),
                Some(error) => return Err(format!("explain: no error, gateway: {error}")),
            }
            // `far.test` is at the only address that such a rule names.
            if is_far && error != Some("egress-denied") {
                return Err("explain: a rule may deny the address".to_owned());
            }
            counts.add(if said.answer == Responder::Relay { "relayed" } else { "called" });
        }
        Responder::Intercepted => return Err("explain: intercepted".to_owned()),
    }
    if let Some(egress) = &said.egress {
        let by_rule = if egress.rule.is_some() { " by a rule" } else { "" };
        counts.add(format!("egress {:?}{by_rule}", egress.verdict));
        if egress.verdict == EgressVerdict::Denied && error != Some("egress-denied") {
            return Err("explain: egress denied".to_owned());
        }
    }
    Ok(())
}

/// Resolves percent-encodings: records have more of them.
fn decoded(url: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = url.as_bytes();
    while let [first, after @ ..] = rest {
        let code = after.get(..2).filter(|_| *first == b'%').and_then(|code| std::str::from_utf8(code).ok());
        let byte = code.and_then(|code| u8::from_str_radix(code, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { &after[2..] } else { after };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Compares what `explain` says with the record of the exchange, and with its trace.
fn compare_record(
    config: &Config,
    (request, said): (&Generated, &Rehearsed),
    record: &Value,
    trace: Option<&str>,
    counts: &mut Counts,
) -> Result<(), String> {
    let destination = said.destination.as_ref().ok_or("explain: no destination")?;
    let provider = record["provider"].as_str().unwrap_or_default();
    if said.answer == Responder::Relay || record["method"] == "CONNECT" {
        return Ok(());
    }
    // The record names the provider that was called, and the URL that the client has named.
    let called = said.elsewhere.as_ref().unwrap_or(destination);
    if called.provider != provider {
        return Err(format!("explain: provider {}", called.provider));
    }
    let base = if let Some(provider) = config.providers.get(&destination.provider) {
        provider.base_url().trim_end_matches('/').to_owned()
    } else {
        let port = match (destination.scheme, destination.port) {
            ("http", 80) | ("https", 443) => String::new(),
            (_, port) => format!(":{port}"),
        };
        format!("{}://{}{port}", destination.scheme, destination.host)
    };
    let expected = format!("{base}{}", destination.target);
    let url = record["url"].as_str().unwrap_or_default();
    // The client of a reverse listener may have chosen the host in the record.
    let plain = |url: &str| {
        let (_, rest) = url.split_once("://").unwrap_or_default();
        let path = rest.find(['/', '?']).map_or("", |at| &rest[at..]);
        let url = if request.kind == "reverse" { path } else { url };
        decoded(url).replacen("/?", "?", 1).trim_end_matches(['/', '*']).to_owned()
    };
    if plain(url) != plain(&expected) {
        return Err(format!("explain: URL {expected}"));
    }
    counts.add("same URL");
    let names: Vec<&str> = said.flows.iter().filter(|flow| flow.matches).map(|flow| &*flow.flow).collect();
    let flows: Vec<&str> = record["flows"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    if names != flows {
        return Err(format!("explain: flows {names:?}"));
    }
    counts.add(if names.is_empty() { "no flow" } else { "same flows" });
    let Some(trace) = trace.filter(|trace| !trace.is_empty()) else { return Ok(()) };
    let mut entered: Vec<&str> = Vec::new();
    for (remedy, _) in trace.split(", ").filter_map(|step| step.split_once('=')) {
        if !entered.contains(&remedy) {
            entered.push(remedy);
        }
    }
    let steps = said.remedies.iter().map(|step| format!("{}/{}", step.flow, step.remedy));
    let steps: Vec<String> = steps.filter(|step| !step.ends_with("/access-log")).collect();
    if !steps.iter().map(String::as_str).take(entered.len()).eq(entered.iter().copied()) {
        return Err(format!("explain: remedies {steps:?}"));
    }
    if said.answer == Responder::Provider && steps.len() != entered.len() {
        return Err(format!("explain: more remedies, {steps:?}"));
    }
    counts.add("same remedies");
    Ok(())
}

/// Returns the TLS settings of clients that trust the gateway's authority.
fn trusting(certificates: &Certificates) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(certificates.configs().authority().root().der().clone()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().unwrap();
    Arc::new(config.with_root_certificates(roots).with_no_client_auth())
}

fn one_config(world: &World, number: u64, seed: u64, requests: usize, counts: &mut Counts) {
    let random = &mut Random::new(seed ^ (number << 32));
    let text = world.config(number, random);
    let mut config = Config::parse("egret.yaml", &text).unwrap_or_else(|report| panic!("{report}\n{text}"));
    let exports = unopened::exports(&config.exporters);
    let certificates = Certificates::of(&config, None).unwrap().unwrap();
    let interception = config.interception.clone().unwrap();
    let mut parts = config.gateway_parts(&exports);
    parts.interception =
        Some(InterceptionParts { config: &interception, configs: Some(certificates.configs()) });
    let gateway = Gateway::start(parts, &[config.control.listen]).unwrap();
    let trusted = trusting(&certificates);
    gateway.watch_traffic(true);
    let addresses: Vec<SocketAddr> =
        gateway.addresses().into_iter().filter_map(ListenAddress::internet).collect();
    for (listen, address) in config.gateway.listen.iter_mut().zip(&addresses) {
        listen.address = (*address).into();
    }
    let explained = ExplainedConfig::new("egret.yaml", &config).unwrap();
    let mut compared = Vec::new();
    for id in 0..requests {
        let mut request = world.request(&addresses, id, random);
        if one_in(random, 2) {
            request.bytes = request.bytes.replacen("\r\n", "\r\nx-egret-trace: 1\r\n", 1);
            request.fields.push("x-egret-trace: 1".to_owned());
        }
        let said = explained.ask(&ProbeRequest {
            method: request.method,
            url: &request.url,
            fields: &request.fields,
            body: request.body,
            consumer: request.consumer,
            listener: Some(request.listener.into()),
        });
        let said = said.unwrap_or_else(|failure| panic!("{failure} for {request:?}"));
        let received = send(&request, id, &trusted);
        let context = || {
            format!(
                "config {number}, seed {seed}:\n{text}\n{request:?}\ngateway: {received:?}\nexplain: {said:?}"
            )
        };
        compare(&said, &received, counts).unwrap_or_else(|why| panic!("{why}\n{}", context()));
        counts.add(format!("by {}", request.kind));
        compared.push((request, said, received));
    }
    let routed = compared.iter().enumerate().filter(|(_, (_, said, _))| said.destination.is_some());
    let records = records(&gateway, &routed.map(|(id, _)| id).collect::<Vec<_>>());
    for (id, (request, said, received)) in compared.iter().enumerate() {
        let Some(record) = records.get(&id).filter(|_| said.destination.is_some()) else { continue };
        let trace = received.trace.as_deref();
        compare_record(&config, (request, said), record, trace, counts).unwrap_or_else(|why| {
            panic!("{why}\nconfig {number}, seed {seed}:\n{text}\n{request:?}\ngateway: {record}\n{trace:?}\nexplain: {said:?}")
        });
        counts.add("records");
    }
    assert!(gateway.drain());
}

#[test]
#[expect(clippy::print_stdout, reason = "the counts are the result")]
fn the_gateway_does_what_explain_says() {
    let mut token = tempfile::NamedTempFile::new().unwrap();
    token.write_all(TOKEN.as_bytes()).unwrap();
    let world = World { names: start_name_server(), server: start_server(), token };
    let variable = |name| std::env::var(name).ok()?.parse().ok();
    let seed = variable("PROPTEST_RNG_SEED").unwrap_or(SEED);
    let requests = variable("PROPTEST_CASES").map_or(REQUESTS, |cases| usize::try_from(cases).unwrap());
    let each = requests / usize::try_from(CONFIGS).unwrap();
    let world = Arc::new(world);
    // Two at a time: most of the time each waits for the other side.
    let halves = [0, CONFIGS / 2].map(|first| {
        let world = Arc::clone(&world);
        std::thread::spawn(move || {
            let mut counts = Counts::default();
            for number in first..first + CONFIGS / 2 {
                one_config(&world, number, seed, each, &mut counts);
            }
            counts
        })
    });
    let mut counts = Counts::default();
    for half in halves {
        for (class, count) in half.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)).0 {
            *counts.0.entry(class).or_default() += count;
        }
    }
    for (class, count) in &counts.0 {
        println!("{count:6} {class}");
    }
    for (class, least) in [
        ("by proxy", 1_600),
        ("by base-url", 800),
        ("by headers", 800),
        ("by host", 800),
        ("by reverse", 800),
        ("by query", 800),
        ("by connect", 800),
        ("by client", 800),
        ("by inside", 800),
        ("called", 2_000),
        ("relayed", 100),
        ("answered by a remedy", 20),
        ("denied by address", 10),
        ("egress Allowed by a rule", 100),
        ("egress Denied by a rule", 100),
        ("egress Denied", 100),
        ("egress Reported", 100),
        ("error bad-request", 500),
        ("error unknown-provider", 100),
        ("error egress-denied", 200),
        ("error no-forwards-left", 20),
        ("error script-refused", 5),
        ("error client-unproven", 200),
        ("error misdirected", 100),
        ("error connect-not-allowed", 100),
        ("same URL", 4_000),
        ("same flows", 1_000),
        ("no flow", 500),
        ("same remedies", 300),
    ] {
        counts.check(class, (least * requests / COUNTED).max(1));
    }
}
