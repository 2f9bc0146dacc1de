//! Providers behind a company's proxy: CONNECT, TLS to the proxy, SOCKS 5, and proxies that fail.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

use egret_tests::closed_port::ClosedPort;
use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret};
use egret_tests::http2::Http2Provider;
use egret_tests::pki::{Authority, Leaf};
use egret_tests::process::Directory;
use egret_tests::provider::{Peer, Provider, ok};
use egret_tests::wait::until_value;
use rustls::{ServerConnection, StreamOwned};

/// `egret:s3cret`
const BASIC: &str = "Basic ZWdyZXQ6czNjcmV0";

const OPEN: &str = "HTTP/1.1 200 Connection established\r\nVia: 1.1 company\r\n\r\n";

/// Starts a proxy that opens tunnels to `backend`, whatever host it is asked for.
fn http_proxy(backend: SocketAddr) -> Provider {
    Provider::scripted(move |peer| serve_connect(peer, backend))
}

fn serve_connect(peer: &mut Peer, backend: SocketAddr) {
    let Some(request) = peer.request() else { return };
    if request.values("proxy-authorization") != [BASIC] {
        peer.send("HTTP/1.1 407 Who are you\r\nContent-Length: 6\r\n\r\ninside");
        return;
    }
    peer.send(OPEN);
    peer.relay_to(backend);
}

/// Starts a proxy of SOCKS 5 that asks for a password.
fn socks_proxy(backend: SocketAddr) -> Provider {
    Provider::scripted(move |peer| {
        let mut take = |count| peer.take(count).unwrap_or_default();
        assert_eq!(take(4), [5, 2, 0, 2]);
        peer.send([5, 2]);
        assert_eq!(peer.take(14).unwrap(), b"\x01\x05egret\x06s3cret");
        peer.send([1, 0]);
        let head = peer.take(5).unwrap();
        let host = peer.take(usize::from(head[4]) + 2).unwrap();
        assert_eq!((&head[..4], &host[..host.len() - 2]), (&[5, 1, 0, 3][..], &b"api.test"[..]));
        peer.send([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        peer.relay_to(backend);
    })
}

/// Configures one worker, so each call finds the connection that the previous one left in the pool.
fn config(proxy: &str) -> Config {
    let keys = format!("{{ url: '{proxy}', username: egret, password: '${{env:EGRET_TEST_PROXY}}' }}");
    let config = Config::with_origin("http://api.test").gateway("workers: 1");
    config.gateway(format!("upstream_proxy: {keys}"))
}

fn start(config: &Config) -> Egret {
    Egret::start_with(config, |command| {
        command.env("EGRET_TEST_PROXY", "s3cret");
    })
}

fn forward(egret: &Egret, authority: impl std::fmt::Display) -> egret_tests::http::Response {
    egret.client().send(format!("GET http://{authority}/ HTTP/1.1\r\nHost: a\r\n\r\n")).response()
}

#[test]
fn every_way_of_naming_a_host_leads_through_the_proxy() {
    let origin = Provider::plain();
    let proxy = http_proxy(origin.address());
    let egret = start(&config(&proxy.url()));
    for _ in 0..3 {
        assert_eq!(egret.get("/a").assert_forwarded(200).text(), "hello");
    }
    forward(&egret, "other.test:8080").assert_forwarded(200);
    let mut tunnel = egret.client();
    assert_eq!(tunnel.send("CONNECT far.test:443 HTTP/1.1\r\nHost: a\r\n\r\n").head().status, 200);
    tunnel.get("far.test", "/in-the-tunnel").response().assert_forwarded(200);
    let asked: Vec<_> = proxy.requests().into_iter().map(|request| request.line).collect();
    let connect = |host: &str| format!("CONNECT {host} HTTP/1.1");
    assert_eq!(asked, [connect("api.test:80"), connect("other.test:8080"), connect("far.test:443")]);
    // The provider sees nothing of the proxy, and the proxy nothing of the call.
    for request in origin.requests() {
        assert!(request.values("proxy-authorization").is_empty(), "{request:?}");
    }
    assert_eq!(origin.requests().len(), 5);
    assert!(!egret.log().contains("s3cret"));
}

#[test]
fn exporters_send_through_the_proxy() {
    let receiver = Provider::with_responses(|_| ok("got it"));
    let proxy = http_proxy(receiver.address());
    let origin = Provider::plain();
    let keys =
        format!("{{ url: '{}', username: egret, password: '${{env:EGRET_TEST_PROXY}}' }}", proxy.url());
    let config = Config::with_origin(origin.url()).gateway(format!("upstream_proxy: {keys}"));
    let flows = "exporters:\n  pager: { type: webhook, url: 'http://hooks.test/alert' }\n  \
                 otel: { type: otlp, endpoint: 'http://collector.test:4318', flush_after: 100ms }\n\
                 alerts: { export: pager }\n\
                 quotas: { daily: { kind: calendar, period: day, limit: 2, alerts: [50%] } }\n\
                 flows: [{ name: all, remedies: [limit: { quota: daily }], diagnoses: [traces: { export: otel }] }]\n";
    let egret = start(&config.flows(flows));
    egret.get("/").assert_forwarded(200);
    let asked = || {
        let asked: std::collections::BTreeSet<String> =
            proxy.requests().into_iter().map(|request| request.line).collect();
        asked.into_iter().collect::<Vec<_>>()
    };
    let expected = ["CONNECT collector.test:4318 HTTP/1.1", "CONNECT hooks.test:80 HTTP/1.1"];
    until_value("both exporters have asked the proxy", asked, |asked| *asked == expected);
    let lines = || receiver.requests().into_iter().map(|request| request.line).collect::<Vec<_>>();
    for start in ["POST /alert ", "POST /v1/traces "] {
        until_value(start, lines, |lines| lines.iter().any(|line| line.starts_with(start)));
    }
    assert!(!egret.log().contains("s3cret"));
}

#[test]
fn a_name_of_socks_is_looked_up_by_the_proxy() {
    let origin = Provider::plain();
    let proxy = socks_proxy(origin.address());
    let egret = start(&config(&proxy.url().replace("http:", "socks5h:")));
    egret.get("/").assert_forwarded(200);
    egret.get("/").assert_forwarded(200);
    assert_eq!(proxy.connections(), 1);
}

#[test]
fn calls_of_http2_share_a_tunnel() {
    let provider = Http2Provider::scripted(|peer| {
        while let Some(stream) = peer.request() {
            peer.respond(stream, "in a stream");
        }
    });
    let address = provider.url().strip_prefix("http://").unwrap().parse().unwrap();
    let proxy = http_proxy(address);
    let keys =
        format!("{{ url: '{}', username: egret, password: '${{env:EGRET_TEST_PROXY}}' }}", proxy.url());
    let config =
        Config::default().provider_with("origin", "http://api.test", &format!("http: 2, proxy: {keys}"));
    let egret = start(&config.gateway("workers: 1"));
    for _ in 0..3 {
        assert_eq!(egret.get("/").assert_forwarded(200).text(), "in a stream");
    }
    assert_eq!((proxy.connections(), provider.connections(), provider.requests()), (1, 1, 3));
}

#[test]
fn the_certificate_behind_the_proxy_is_verified() {
    let (authority, other) = (Authority::default(), Authority::default());
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    for (leaf, error) in [
        (authority.leaf(&["api.test"]), None),
        (authority.leaf(&["elsewhere.test"]), Some("tls-failed")),
        (other.leaf(&["api.test"]), Some("tls-failed")),
    ] {
        let proxy = http_proxy(leaf.serve("from the provider"));
        let keys =
            format!("{{ url: '{}', username: egret, password: '${{env:EGRET_TEST_PROXY}}' }}", proxy.url());
        let keys = format!("proxy: {keys}, tls: {{ ca: '{}' }}", ca.display());
        let egret = start(&Config::default().provider_with("origin", "https://api.test", &keys));
        let response = egret.get("/");
        match error {
            None => assert_eq!(response.assert_forwarded(200).text(), "from the provider"),
            Some(slug) => {
                response.assert_generated(502, slug);
            }
        }
        assert_eq!(proxy.requests()[0].line, "CONNECT api.test:443 HTTP/1.1");
    }
}

/// Starts a proxy with TLS that is the provider with TLS at the same time. Serves one connection.
fn proxy_with_tls(proxy: &Leaf, provider: &Leaf) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (outer, inner) = (proxy.server(), provider.server());
    std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut outer = StreamOwned::new(ServerConnection::new(outer).unwrap(), socket);
        assert!(head(&mut outer).starts_with("CONNECT api.test:443 "));
        outer.write_all(OPEN.as_bytes()).unwrap();
        let mut inner = StreamOwned::new(ServerConnection::new(inner).unwrap(), outer);
        while !head(&mut inner).is_empty() {
            inner.write_all(&ok("through both")).unwrap();
        }
    });
    address
}

/// Reads a head, byte by byte. Empty if the connection has ended.
fn head(stream: &mut impl Read) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => head.push(byte[0]),
            _ => return String::new(),
        }
    }
    String::from_utf8(head).unwrap()
}

#[test]
fn a_connection_over_two_layers_of_tls_is_kept() {
    let authority = Authority::default();
    let directory = Directory::default();
    let ca = directory.write("ca.pem", authority.certificate());
    let address = proxy_with_tls(&authority.leaf(&["127.0.0.1"]), &authority.leaf(&["api.test"]));
    let keys = format!(
        "proxy: {{ url: 'https://{address}', ca: '{ca}' }}, tls: {{ ca: '{ca}' }}",
        ca = ca.display()
    );
    let config = Config::default().provider_with("origin", "https://api.test", &keys);
    let egret = start(&config.gateway("workers: 1"));
    for _ in 0..4 {
        // The proxy accepts no other connection.
        assert_eq!(egret.get("/").assert_forwarded(200).text(), "through both");
    }
}

#[test]
fn a_proxy_that_fails_is_named_without_its_words() {
    let refusing = |response: &'static str| {
        Provider::scripted(move |peer| {
            peer.request();
            peer.send(response);
            peer.half_close();
            peer.stall();
        })
    };
    for (response, status, slug, cause) in [
        ("HTTP/1.1 407 inside\r\nContent-Length: 6\r\n\r\ninside", 502, "proxy-credentials", "407"),
        ("HTTP/1.1 403 inside\r\n\r\ninside", 502, "proxy-refused", "status 403"),
        ("HTTP/1.1 503 inside\r\n", 502, "proxy-refused", "status 503"),
        ("", 502, "proxy-closed", "closed"),
        ("HTTP/1.1 200 OK\r\nX: y\r\n", 502, "proxy-closed", "closed"),
        ("SSH-2.0-inside\r\n", 502, "proxy-bad-response", "not HTTP"),
        ("HTTP/1.1 200 OK\n\ninside, and more of it", 502, "proxy-bad-response", "not HTTP"),
    ] {
        let proxy = refusing(response);
        let egret = start(&config(&proxy.url()));
        let failed = egret.get("/");
        failed.assert_generated(status, slug);
        let text = failed.text();
        assert!(text.contains(cause) && text.contains(&proxy.url()) && !text.contains("inside"), "{text}");
        assert_eq!((egret.generated(slug), egret.provider_stat("origin", "connect_failures")), (1, 1));
    }
    let closed = ClosedPort::take();
    let egret = start(&config(&format!("http://{}", closed.address())));
    egret.get("/").assert_generated(502, "proxy-unreachable");
    let silent = Provider::scripted(Peer::stall);
    let egret = start(&config(&silent.url()).gateway("timeouts: { connect: 200ms }"));
    egret.get("/").assert_generated(504, "proxy-timeout");
}

#[test]
fn calls_succeed_again_once_the_proxy_is_back() {
    // Each call needs a tunnel of its own.
    let origin = Provider::responding("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let backend = origin.address();
    let is_down = Arc::new(AtomicBool::new(false));
    let down = Arc::clone(&is_down);
    let proxy = Provider::scripted(move |peer| {
        if down.load(SeqCst) {
            peer.request();
        } else {
            serve_connect(peer, backend);
        }
    });
    let egret = start(&config(&proxy.url()));
    for (down, status) in [(false, 200), (true, 502), (false, 200)] {
        is_down.store(down, SeqCst);
        assert_eq!(egret.get("/").status, status);
    }
    assert_eq!((egret.generated("proxy-closed"), origin.requests().len()), (1, 2));
}

#[test]
fn a_denied_host_is_never_asked_of_the_proxy() {
    let origin = Provider::plain();
    let proxy = http_proxy(origin.address());
    let names = NameServer::start(|name| match name {
        "inner.test" => Answer::Addresses(vec![Ipv4Addr::new(10, 9, 8, 7)], 60),
        _ => Answer::Addresses(vec![Ipv4Addr::new(192, 0, 2, 7)], 60),
    });
    let rules = "deny: [{ host: denied.test }, { host: '*.denied.test' }, { net: 10.0.0.0/8 }]";
    let config = config(&proxy.url()).gateway(format!("egress: {{ {rules} }}")).gateway(names.config());
    let egret = start(&config);
    for host in [
        "denied.test",
        "DENIED.test",
        "denied.test.",
        "a.b.denied.test",
        "A.Denied.Test.",
        "10.1.2.3",
        "[::ffff:10.1.2.3]",
        "[::ffff:a01:203]",
        "169.254.169.254",
        "metadata.google.internal",
        "inner.test",
    ] {
        for port in [80, 443, 8080] {
            forward(&egret, format!("{host}:{port}")).assert_generated(403, "egress-denied");
            let connect = format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: a\r\n\r\n");
            let refused = egret.client().send(connect).response_to("HEAD");
            assert_eq!(
                (refused.status, refused.field("x-egret-error")),
                (403, Some("egress-denied")),
                "{host}"
            );
        }
    }
    assert_eq!(proxy.connections(), 0);
    // A rule names addresses, so the proxy is asked for one that was judged.
    forward(&egret, "outer.test:8080").assert_forwarded(200);
    assert_eq!(proxy.only_request().line, "CONNECT 192.0.2.7:8080 HTTP/1.1");
}

#[test]
fn the_environment_names_the_proxy() {
    let origin = Provider::plain();
    let proxy = http_proxy(origin.address());
    let direct = Provider::plain();
    let config = Config::with_origin("http://api.test")
        .provider("here", direct.url())
        .gateway("upstream_proxy: from_environment");
    let egret = Egret::start_with(&config, |command| {
        for name in ["http_proxy", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
        command.env("HTTP_PROXY", format!("http://egret:s3c%72et@{}", proxy.address()));
        command.env("NO_PROXY", "nowhere.test");
    });
    egret.get("/").assert_forwarded(200);
    let here = format!("GET /here/ HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address());
    egret.client().send(here).response().assert_forwarded(200);
    assert_eq!((proxy.connections(), direct.connections()), (1, 1));
}

#[test]
fn a_token_endpoint_is_reached_through_the_proxy() {
    // The tunnel closes once it is open, which ends the fetch.
    let proxy = Provider::scripted(|peer| {
        peer.request();
        peer.send(OPEN);
    });
    let egret = start(&config(&proxy.url()).flows(
        "accounts:\n\
         \x20 one: { provider: origin, oauth2: { token_url: 'https://login.test/token', client_id: one, \
         client_secret: '${env:EGRET_TEST_PROXY}' } }\n\
         flows:\n  - { name: one, match: { provider: origin }, remedies: [authenticate: { account: one }] }\n",
    ));
    egret.get("/").assert_generated(503, "account-unavailable");
    assert_eq!(proxy.requests()[0].line, "CONNECT login.test:443 HTTP/1.1");
}
