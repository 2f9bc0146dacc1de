//! Egret with a provider for each of its errors, named after it: a call to `/NAME/` fails in that way.

use std::net::SocketAddr;

use crate::closed_port::ClosedPort;
use crate::egret::{Config, Egret};
use crate::http::{Client, Response};
use crate::process::Directory;
use crate::provider::{Peer, Provider, ok};

/// One error, and the call that has it.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Its name, which is that of the provider, unless no provider is called.
    pub error: &'static str,
    /// The status code.
    pub status: u16,
    /// A part of its cause.
    pub cause: &'static str,
    /// The property of the request that it needs.
    pub needs: Needs,
}

/// A property of the request without which the error does not happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// None.
    Nothing,
    /// The method GET.
    Get,
    /// A body of this many bytes.
    Body(usize),
    /// A header field with this name and value.
    Field(&'static str, &'static str),
    /// A header field of this length.
    LongField(usize),
    /// A path of this length.
    LongPath(usize),
}

const fn case(error: &'static str, status: u16, cause: &'static str) -> Case {
    Case { error, status, cause, needs: Needs::Nothing }
}

const fn needing(error: &'static str, status: u16, cause: &'static str, needs: Needs) -> Case {
    Case { error, status, cause, needs }
}

/// The errors that a program with an SDK can meet.
pub const CASES: [Case; 30] = [
    needing("bad-request", 400, "host", Needs::Field("x-egret-host", "a b")),
    needing("uri-too-long", 414, "line", Needs::LongPath(9_000)),
    needing("head-too-large", 431, "head", Needs::LongField(40_000)),
    case("unknown-provider", 404, "dns-failed"),
    case("egress-denied", 403, "denied.invalid"),
    case("dns-failed", 502, "unknown.invalid"),
    case("connect-failed", 502, "refused"),
    case("tls-failed", 502, "TLS"),
    case("tls-timeout", 504, "timed out"),
    case("pool-full", 503, "pool.connections"),
    case("bad-response", 502, "cannot be forwarded"),
    case("provider-closed", 502, "closed the connection"),
    case("first-byte-timeout", 504, "timeouts.first_byte"),
    case("total-timeout", 504, "timeouts.total"),
    needing("echo-unreadable", 502, "mask_echoes", Needs::Get),
    case("quota-exceeded", 429, "`used`"),
    case("store-unavailable", 503, "`shared`"),
    case("too-many-in-flight", 429, "`concurrency`"),
    case("queue-full", 429, "queue"),
    case("queue-timeout", 429, "max_wait"),
    case("provider-throttled", 429, "Retry-After"),
    case("circuit-open", 503, "failed too often"),
    needing("not-cached", 504, "only-if-cached", Needs::Field("cache-control", "only-if-cached")),
    case("account-unavailable", 503, "token"),
    needing("body-too-large-to-sign", 413, "sigv4.body", Needs::Body(2_000)),
    case("remedy-failed", 503, "script"),
    case("script-refused", 403, "no such user"),
    needing("bodies-full", 503, "gateway.limits.gathered", Needs::Body(2 << 20)),
    case("client-unproven", 407, "token"),
    case("too-many-connections", 503, "gateway.limits.connections"),
];

/// Number of connections that the gateway accepts.
const CONNECTIONS: usize = 40;

const FLOWS: &str = "\
quotas:
  used: { limit: 1, window: 1h, kind: fixed }
  waits: { limit: 1, window: 1h, kind: fixed }
  full: { limit: 1, window: 1h, kind: fixed }
  shared: { limit: 10, window: 1s, store: redis, on_store_error: closed }
flows:
  - { name: used, match: { provider: quota-exceeded }, remedies: [limit: { quota: used }] }
  - { name: shared, match: { provider: store-unavailable }, remedies: [limit: { quota: shared }] }
  - { name: flight, match: { provider: too-many-in-flight }, remedies: [concurrency: { max: 1 }] }
  - { name: full, match: { provider: queue-full }, remedies: [queue: { quota: full, size: 1, max_wait: 2h }] }
  - { name: waits, match: { provider: queue-timeout }, remedies: [queue: { quota: waits, max_wait: 1s }] }
  - { name: throttle, match: { provider: provider-throttled }, remedies: [provider-throttle: {}] }
  - name: circuit
    match: { provider: circuit-open }
    remedies: [circuit-breaker: { consecutive: 1, open: 1h, open_max: 1h }]
  - { name: cache, match: { provider: not-cached }, remedies: [cache: {}] }
  - { name: token, match: { provider: account-unavailable }, remedies: [authenticate: { account: token }] }
  - { name: small, match: { provider: body-too-large-to-sign }, remedies: [authenticate: { account: small }] }
  - { name: large, match: { provider: bodies-full }, remedies: [authenticate: { account: large }] }
  - name: echo
    match: { provider: echo-unreadable }
    remedies: [authenticate: { account: echo, mask_echoes: true }]
  - name: closed
    match: { provider: remedy-failed }
    remedies: [{ script: { source: 'function onRequest() { null.a; }' }, on_error: closed }]
  - name: refusing
    match: { provider: script-refused }
    remedies: [script: { source: 'function onRequest() { return refuse({ detail: \"no such user\" }); }' }]
";

/// A running Egret whose calls fail, and what they fail for.
#[derive(Debug)]
pub struct Failing {
    /// The running Egret.
    pub egret: Egret,
    origin: Provider,
    _no_tls: Provider,
    /// Calls in progress, and connections.
    held: Vec<Client>,
    _closed: ClosedPort,
}

impl Case {
    /// The path below which every call fails in this way.
    pub fn path(&self) -> String {
        match self.needs {
            Needs::LongPath(len) => format!("/dns-failed/{}", "x".repeat(len)),
            _ if self.error == "unknown-provider" => "/no-such-provider".to_owned(),
            _ => format!("/{}", self.error),
        }
    }

    /// The header field that the request needs.
    pub fn field(&self) -> Option<(&'static str, String)> {
        match self.needs {
            Needs::Field(name, value) => Some((name, value.to_owned())),
            Needs::LongField(len) => Some(("x-long", "x".repeat(len))),
            _ => None,
        }
    }
}

impl Failing {
    /// Starts Egret with errors in this format, and brings about what its calls fail for.
    pub fn start(format: &str) -> Self {
        let (origin, closed, directory) =
            (Provider::scripted(respond), ClosedPort::take(), Directory::default());
        let no_tls = Provider::scripted(|peer: &mut Peer| {
            peer.take(1);
            peer.send("this is not TLS");
        });
        let secret = directory.write_secret("secret", "0123456789abcdef0123456789abcdef");
        let proven = format!(
            "{{ address: '127.0.0.1:0', clients: {{ tokens: {{ one: '${{file:{}}}' }} }} }}",
            secret.display()
        );
        let config = config(&origin, no_tls.address(), closed.address())
            .gateway(format!("errors: {{ format: {format} }}"))
            .listen(["'127.0.0.1:0'", &proven]);
        let egret = Egret::start_with(&config, |command| {
            command.env("EGRET_TEST_KEY", "0123456789abcdef0123456789abcdef");
        });
        let mut failing = Self { egret, origin, _no_tls: no_tls, held: Vec::new(), _closed: closed };
        failing.prepare();
        failing
    }

    fn prepare(&mut self) {
        for provider in
            ["quota-exceeded", "queue-timeout", "queue-full", "provider-throttled", "circuit-open"]
        {
            self.get(&format!("/{provider}/"), "");
        }
        for provider in ["pool-full", "too-many-in-flight", "queue-full"] {
            let mut client = self.egret.client();
            client.get(self.egret.address(), &format!("/{provider}/"));
            self.held.push(client);
        }
        self.origin.until_requested(7);
    }

    /// Sends a GET for this path.
    pub fn get(&self, path: &str, fields: &str) -> Response {
        let host = self.egret.address();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        self.egret.client().send(request).response()
    }

    /// The listener to which the call of a case is made. Nobody else may be connected if there are too many
    /// connections, so it takes the rest of them.
    pub fn listener(&mut self, case: &Case) -> SocketAddr {
        if case.error == "too-many-connections" {
            self.held.extend((0..CONNECTIONS).map(|_| self.egret.client()));
        }
        self.egret.listener(usize::from(case.error == "client-unproven"))
    }

    /// Makes the call of a case.
    pub fn call(&mut self, case: &Case) -> Response {
        let listener = self.listener(case);
        let field = case.field().map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
        let (method, body) = match case.needs {
            Needs::Body(len) => ("POST", "x".repeat(len)),
            _ => ("GET", String::new()),
        };
        let request = format!(
            "{method} {}/ HTTP/1.1\r\nHost: {listener}\r\n{field}Content-Length: {}\r\n\r\n{body}",
            case.path(),
            body.len()
        );
        Client::connect(listener).offer(request).response()
    }
}

fn config(origin: &Provider, no_tls: SocketAddr, closed: SocketAddr) -> Config {
    let here = origin.address();
    let plain: [&str; 13] = [
        "bad-request",
        "client-unproven",
        "quota-exceeded",
        "store-unavailable",
        "queue-full",
        "queue-timeout",
        "not-cached",
        "account-unavailable",
        "body-too-large-to-sign",
        "remedy-failed",
        "script-refused",
        "bodies-full",
        "too-many-connections",
    ];
    let mut config = Config::default()
        .provider("egress-denied", "http://denied.invalid")
        .provider("dns-failed", "http://unknown.invalid")
        .provider("connect-failed", format!("http://{closed}"))
        .provider("tls-failed", format!("https://{no_tls}"))
        .provider_with("tls-timeout", format!("https://{here}"), "timeouts: { tls: 200ms }")
        .provider("bad-response", format!("http://{here}/garbage"))
        .provider("provider-closed", format!("http://{here}/close"))
        .provider_with(
            "first-byte-timeout",
            format!("http://{here}/stall"),
            "timeouts: { first_byte: 200ms }",
        )
        .provider_with("total-timeout", format!("http://{here}/stall"), "timeouts: { total: 200ms }")
        .provider_with("pool-full", format!("http://{here}/stall"), "pool: { connections: 1 }")
        .provider("too-many-in-flight", format!("http://{here}/stall"))
        .provider("echo-unreadable", format!("http://{here}/gzip"))
        .provider("provider-throttled", format!("http://{here}/throttle"))
        .provider("circuit-open", format!("http://{here}/fail"))
        .gateway("egress: { deny: [{ host: denied.invalid }] }")
        .gateway(format!("limits: {{ gathered: 1MiB, connections: {CONNECTIONS} }}"));
    for name in plain {
        config = config.provider(name, format!("http://{here}"));
    }
    let key = "access_key_id: '${env:EGRET_TEST_KEY}', secret_access_key: '${env:EGRET_TEST_KEY}', \
               region: us-east-1, service: execute-api";
    config.flows(format!(
        "cluster: {{ name: tests, member: one, key: '${{env:EGRET_TEST_KEY}}', redis: {{ url: 'redis://{closed}' }} }}\n\
         accounts:\n\
         \x20 small: {{ provider: body-too-large-to-sign, sigv4: {{ {key}, body: 1KiB }} }}\n\
         \x20 large: {{ provider: bodies-full, sigv4: {{ {key}, body: 4MiB }} }}\n\
         \x20 echo: {{ provider: echo-unreadable, bearer: {{ token: '${{env:EGRET_TEST_KEY}}' }} }}\n\
         \x20 token: {{ provider: account-unavailable, oauth2: {{ token_url: 'http://{closed}/token', client_id: one, \
         client_secret: '${{env:EGRET_TEST_KEY}}' }} }}\n\
         {FLOWS}"
    ))
}

fn respond(peer: &mut Peer) {
    while let Some(request) = peer.request() {
        let kind = request.target().split('/').nth(1).unwrap_or_default().to_owned();
        let response = match &*kind {
            "garbage" => b"\0\r\n\r\n".to_vec(),
            "close" => return,
            "stall" => return peer.stall(),
            "gzip" => b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_vec(),
            "throttle" => b"HTTP/1.1 429 No\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "fail" => b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => ok("{}"),
        };
        peer.send(response);
    }
}
