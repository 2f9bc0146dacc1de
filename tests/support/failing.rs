//! Egret with a provider for each of its errors, named after it: a call to `/NAME/` fails in that way.

mod cases;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use crate::closed_port::{ClosedPort, FullPort};
use crate::dns::{Answer, NameServer};
use crate::egret::{Config, Egret};
use crate::http::{Client, Response};
use crate::intercepted::Intercepting;
use crate::process::Directory;
use crate::provider::{Peer, Provider, ok};
use crate::wait;

pub use cases::{CASES, Case, Needs, assert_table_is_complete};

/// Number of connections that the gateway accepts.
const CONNECTIONS: usize = 40;

/// A host whose tunnels the gateway intercepts.
const INTERCEPTED: &str = "misdirected.invalid";

const FLOWS: &str = "\
quotas:
  used: { limit: 1, window: 1h, kind: fixed, starts: first }
  waits: { limit: 1, window: 1h, kind: fixed, starts: first }
  full: { limit: 1, window: 1h, kind: fixed, starts: first }
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
  - { name: trouble, match: { provider: fault-injected }, remedies: [fault: { abort: 503 }] }
  - { name: cache, match: { provider: not-cached }, remedies: [cache: {}] }
  - { name: token, match: { provider: account-unavailable }, remedies: [authenticate: { account: token }] }
  - { name: small, match: { provider: body-too-large-to-sign }, remedies: [authenticate: { account: small }] }
  - { name: large, match: { provider: bodies-full }, remedies: [authenticate: { account: large }] }
  - name: gathered
    match: { provider: idle-timeout }
    remedies: [transform: { response: { json: { remove: [/a] } }, body: 4KiB }]
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
    gateway: Intercepting,
    origin: Provider,
    /// The gateway's name in `Via`.
    via: String,
    /// Calls in progress, and connections.
    held: Vec<Client>,
    relays: Vec<Provider>,
    _others: Others,
}

/// Ports and servers that are not HTTP.
#[derive(Debug)]
struct Others {
    no_tls: Provider,
    closed: ClosedPort,
    full: FullPort,
    names: NameServer,
}

impl Others {
    fn start() -> Self {
        let no_tls = Provider::scripted(|peer: &mut Peer| {
            peer.take(1);
            peer.send("this is not TLS");
        });
        let names = NameServer::start(|name| match name {
            "silent.example" => Answer::Silence,
            _ => Answer::NoSuchName,
        });
        Self { no_tls, closed: ClosedPort::take(), full: FullPort::take(), names }
    }
}

impl Failing {
    /// Starts Egret with errors in this format, and brings about what its calls fail for.
    pub fn start(format: &str) -> Self {
        let (origin, others, directory) =
            (Provider::scripted(respond), Others::start(), Directory::default());
        let secret = directory.write_secret("secret", "0123456789abcdef0123456789abcdef");
        let proven = format!(
            "{{ address: '127.0.0.1:0', clients: {{ tokens: {{ one: '${{file:{}}}' }} }} }}",
            secret.display()
        );
        let reverse = "{ address: '127.0.0.1:0', provider: connect-not-allowed }";
        let config = config(&origin, &others).gateway(format!("errors: {{ format: {format} }}")).listen([
            "'127.0.0.1:0'",
            &proven,
            reverse,
        ]);
        let gateway = Intercepting::with_authority(&config, |command| {
            command.env("EGRET_TEST_KEY", "0123456789abcdef0123456789abcdef");
        });
        let (via, held, relays) = (String::new(), Vec::new(), Vec::new());
        let mut failing = Self { gateway, origin, via, held, relays, _others: others };
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
            let mut client = self.egret().client();
            client.get(self.egret().address(), &format!("/{provider}/"));
            self.held.push(client);
        }
        self.origin.until_requested(7);
        self.via = self.origin.requests()[0].values("via").join(", ");
    }

    /// The running Egret.
    pub fn egret(&self) -> &Egret {
        &self.gateway.egret
    }

    /// The file with the certificate that clients of intercepted tunnels trust.
    pub fn ca(&self) -> PathBuf {
        self.gateway.ca()
    }

    /// Sends a GET for this path.
    pub fn get(&self, path: &str, fields: &str) -> Response {
        let host = self.egret().address();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n{fields}\r\n");
        self.egret().client().send(request).response()
    }

    /// The URL below which every call of a case fails. Nobody else may be connected if there are too many
    /// connections, so it takes the rest of them.
    pub fn url(&mut self, case: &Case) -> String {
        match case.needs {
            Needs::OtherHost => format!("https://{INTERCEPTED}"),
            _ => format!("http://{}{}", self.listener(case), case.path()),
        }
    }

    /// The header field that the request of a case needs.
    pub fn field(&self, case: &Case) -> Option<(&'static str, String)> {
        match case.needs {
            Needs::Field(name, value) | Needs::Options(name, value) => Some((name, value.to_owned())),
            Needs::LongField(len) => Some(("x-long", "x".repeat(len))),
            Needs::OwnVia => Some(("via", self.via.clone())),
            Needs::OtherHost => Some(("Host", "other.example".to_owned())),
            _ => None,
        }
    }

    fn listener(&mut self, case: &Case) -> SocketAddr {
        let number = match case.error {
            "client-unproven" => 1,
            "connect-not-allowed" => 2,
            _ => 0,
        };
        let listener = self.egret().listener(number);
        if case.error == "too-many-connections" {
            let held = self.held.len() as u64;
            // The place of an earlier call, freed later, would let one more connection in.
            wait::until_true("earlier calls have left", || self.egret().stat("/clients/open") <= held);
            self.held.extend((0..CONNECTIONS).map(|_| Client::connect(listener)));
        }
        if !matches!(case.needs, Needs::Start(_) | Needs::LostBody(_)) {
            return listener;
        }
        let relay = relay(case.needs, listener);
        let address = relay.address();
        self.relays.push(relay);
        address
    }

    /// Makes the call of a case.
    pub fn call(&mut self, case: &Case) -> Response {
        let (mut client, mut fields) = if case.needs == Needs::OtherHost {
            (self.gateway.open(&format!("{INTERCEPTED}:443"), INTERCEPTED, &[]).unwrap(), String::new())
        } else {
            let listener = self.listener(case);
            (Client::connect(listener), format!("Host: {listener}\r\n"))
        };
        if let Some((name, value)) = self.field(case) {
            let _ = write!(fields, "{name}: {value}\r\n");
        }
        let body = "x".repeat(case.body());
        if !body.is_empty() {
            let _ = write!(fields, "Content-Length: {}\r\n", body.len());
        }
        let request = format!("{} {}/ HTTP/1.1\r\n{fields}\r\n{body}", case.method(), case.path());
        client.offer(request).response()
    }
}

/// Starts a relay to a listener. It sends the head of each request with the change that a case needs, and
/// keeps the body.
fn relay(needs: Needs, listener: SocketAddr) -> Provider {
    Provider::scripted(move |peer| {
        let Some(request) = peer.request_head() else { return };
        let start = if let Needs::Start(start) = needs { start } else { &request.line };
        let mut head = format!("{start}\r\nHost: {listener}\r\nConnection: close\r\n");
        for (name, value) in &request.fields {
            // With `Expect`, the gateway would wait for the provider, and not for the body.
            if !["host", "connection", "expect"].iter().any(|replaced| name.eq_ignore_ascii_case(replaced)) {
                let _ = write!(head, "{name}: {value}\r\n");
            }
        }
        let (mut stream, mut response) = (TcpStream::connect(listener).unwrap(), Vec::new());
        stream.write_all((head + "\r\n").as_bytes()).unwrap();
        stream.read_to_end(&mut response).unwrap();
        peer.send(response);
        // A connection that is closed with bytes unread is reset, and the response with it.
        peer.half_close();
        peer.stall();
    })
}

fn config(origin: &Provider, others: &Others) -> Config {
    let (here, closed) = (origin.address(), others.closed.address());
    let plain: [&str; 17] = [
        "bad-request",
        "connect-not-allowed",
        "no-forwards-left",
        "loop-detected",
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
        "fault-injected",
        "bodies-full",
        "too-many-connections",
    ];
    let mut config = Config::default()
        .provider("egress-denied", "http://denied.invalid")
        .provider("dns-failed", "http://unknown.invalid")
        .provider("connect-failed", format!("http://{closed}"))
        .provider("dns-timeout", "http://silent.example")
        .provider_with(
            "connect-timeout",
            format!("http://{}", others.full.address()),
            "timeouts: { connect: 200ms }",
        )
        .provider_with("request-timeout", format!("http://{here}"), "timeouts: { idle: 200ms }")
        .provider_with("idle-timeout", format!("http://{here}/part"), "timeouts: { idle: 200ms }")
        .provider("tls-failed", format!("https://{}", others.no_tls.address()))
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
        .gateway(others.names.config_within("1s"))
        .gateway(format!("limits: {{ gathered: 1MiB, connections: {CONNECTIONS} }}"));
    for name in plain {
        config = config.provider(name, format!("http://{here}"));
    }
    let key = "access_key_id: '${env:EGRET_TEST_KEY}', secret_access_key: '${env:EGRET_TEST_KEY}', \
               region: us-east-1, service: execute-api";
    config.flows(format!(
        "interception: {{ hosts: [{INTERCEPTED}] }}\n\
         cluster: {{ name: tests, member: one, key: '${{env:EGRET_TEST_KEY}}', redis: {{ url: 'redis://{closed}' }} }}\n\
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
            "part" => {
                peer.send("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{");
                return peer.stall();
            }
            "gzip" => b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx".to_vec(),
            "throttle" => b"HTTP/1.1 429 No\r\nRetry-After: 60\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "fail" => b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n".to_vec(),
            _ => ok("{}"),
        };
        peer.send(response);
    }
}
