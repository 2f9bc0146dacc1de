//! Upgrades: a tunnel is opened only by a real 101.

use egret_tests::closed_port::ClosedPort;
use egret_tests::egret::Config;
use egret_tests::http::Client;
use egret_tests::peers::Httpbin;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

/// Returns a masked frame, as RFC 6455 §5.2 requires of a client.
fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mask = [0x12, 0x34, 0x56, 0x78];
    let mut frame = vec![0x80 | opcode, 0x80 | u8::try_from(payload.len()).unwrap()];
    frame.extend(mask);
    frame.extend(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask));
    frame
}

/// Returns the payload of the next frame, which must be short.
fn payload(client: &mut Client) -> Vec<u8> {
    let head = client.bytes(2);
    client.bytes(usize::from(head[1] & 0x7f))
}

#[test]
fn a_websocket_echoes_through_the_upgrade() {
    let httpbin = Httpbin::start();
    let egret = Config::with_origin(httpbin.url()).start();
    let mut client = egret.client();
    client.send(format!(
        "GET /origin/websocket/echo HTTP/1.1\r\nHost: {}\r\nConnection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
        egret.address()
    ));
    let switched = client.head();
    assert_eq!(switched.status, 101, "{switched:?}");
    assert!(switched.field("upgrade").unwrap().eq_ignore_ascii_case("websocket"));
    assert!(switched.field("connection").unwrap().to_ascii_lowercase().contains("upgrade"));
    assert_eq!(switched.field("sec-websocket-accept"), Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="));
    for text in ["hello", "", "a longer text that comes back as it went"] {
        client.send(frame(1, text.as_bytes()));
        assert_eq!(payload(&mut client), text.as_bytes());
    }
    assert_eq!(egret.stat("/clients/tunnels"), 1);
    client.send(frame(8, &1000_u16.to_be_bytes()));
    assert_eq!(payload(&mut client), 1000_u16.to_be_bytes());
    drop(client);
    wait::until_true("the tunnel is gone", || egret.stat("/clients/tunnels") == 0);
}

#[test]
fn a_websocket_holds_its_place_among_calls_until_it_ends() {
    let flow = |remedy: &str| format!("flows: [{{ name: f, remedies: [{{ {remedy} }}] }}]\n");
    let quota = "quotas: { one: { kind: concurrency, limit: 1 } }\n";
    let cases = [
        (format!("{quota}{}", flow("limit: one")), "quota-exceeded"),
        (flow("concurrency: { max: 1 }"), "too-many-in-flight"),
    ];
    for (flows, refusal) in cases {
        let origin = Provider::scripted(|peer| {
            while let Some(request) = peer.request() {
                if request.values("upgrade").is_empty() {
                    peer.send(ok("hello"));
                } else {
                    peer.send("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
                }
            }
        });
        let egret = Config::with_origin(origin.url()).flows(flows).start();
        let mut client = egret.client();
        client.send(format!(
            "GET /origin/ HTTP/1.1\r\nHost: {}\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            egret.address()
        ));
        assert_eq!(client.head().status, 101);
        egret.get("/origin/").assert_generated(429, refusal);
        drop(client);
        wait::until_true("the place is free", || egret.get("/origin/").status == 200);
    }
}

#[test]
fn an_upgrade_that_is_answered_with_200_stays_http() {
    let origin = Provider::with_responses(|request| ok(&request.line));
    let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
    let own = egret.address();
    let mut client = egret.client();
    // If a tunnel were opened, the following bytes would reach the provider unchanged, with a host and target
    // chosen by the client.
    client.send(format!(
        "GET /origin/a HTTP/1.1\r\nHost: {own}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\nGET /origin/b HTTP/1.1\r\nHost: {own}\r\n\r\n"
    ));
    assert_eq!(client.response().assert_forwarded(200).text(), "GET /a HTTP/1.1");
    assert_eq!(client.response().assert_forwarded(200).text(), "GET /b HTTP/1.1");
    client.send(format!(
        "GET /origin/c HTTP/1.1\r\nHost: {own}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n\x16\x03not http\r\n\r\n"
    ));
    assert_eq!(client.response().assert_forwarded(200).text(), "GET /c HTTP/1.1");
    client.response().assert_generated(400, "bad-request");
    client.assert_closed();
    assert!(!String::from_utf8_lossy(&origin.received()).contains("not http"));
    assert_eq!(egret.stat("/clients/tunnels"), 0);
}

#[test]
fn protocols_are_named_for_all_or_for_one_provider() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            match request.values("upgrade")[..] {
                [] => peer.send(ok("as ever")),
                [asked, ..] => {
                    peer.send(format!("HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: {asked}\r\n\r\n"))
                }
            };
        }
    });
    let egret = Config::with_origin(origin.url())
        .provider_with("own", origin.url(), "upgrades: [spdy/3]")
        .provider_with("none", origin.url(), "upgrades: []")
        .gateway("upgrades: [x, websocket]")
        .start();
    for (provider, asked, status) in [
        ("origin", "x", 101),
        ("origin", "x/2", 101),
        ("origin", "WebSocket", 101),
        ("origin", "spdy/3", 200),
        ("own", "SPDY/3", 101),
        ("own", "spdy/4", 200),
        ("own", "websocket", 200),
        ("none", "websocket", 200),
    ] {
        let mut client = egret.client();
        client.send(format!(
            "GET /{provider}/ HTTP/1.1\r\nHost: {}\r\nConnection: upgrade\r\nUpgrade: {asked}\r\n\r\n",
            egret.address()
        ));
        assert_eq!(client.head().status, status, "{provider}: {asked}");
    }
}

#[test]
fn a_tunnel_takes_the_place_of_an_idle_connection() {
    let origin = Provider::scripted(|peer| {
        while peer.request().is_some() {
            peer.send(ok("hello"));
        }
    });
    let config = Config::default().provider_with("origin", origin.url(), "pool: { connections: 1 }");
    let egret = config.gateway("workers: 4").start();
    for number in 1..=3 {
        wait::until_true("a connection is free", || egret.get("/").status == 200);
        wait::until_true("the connection is idle", || egret.provider_stat("origin", "connections_idle") == 1);
        // Any worker may serve it.
        let mut client = egret.client();
        client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address()));
        assert_eq!(client.response_to("HEAD").status, 200);
        client.get("a", "/").response();
        assert_eq!(
            (egret.provider_stat("origin", "connections_open"), origin.connections()),
            (1, 2 * number)
        );
        egret.get("/").assert_generated(503, "pool-full");
        drop(client);
    }
}

#[test]
fn a_101_that_nobody_asked_for_is_a_502() {
    let origin = Provider::responding(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nsurprise",
    );
    let egret = Config::with_origin(origin.url()).start();
    let mut client = egret.client();
    client.get(egret.address(), "/origin/").response().assert_generated(502, "bad-response");
    egret.assert_well();
}

#[test]
fn a_101_before_the_request_is_through_is_a_502() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request_head();
        peer.send(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nsurprise",
        );
        peer.stall();
    });
    let egret = Config::with_origin(origin.url()).start();
    let mut client = egret.client();
    client.send(format!(
        "POST /origin/ HTTP/1.1\r\nHost: {}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nContent-Length: 10\r\n\r\nabc",
        egret.address()
    ));
    client.response().assert_generated(502, "bad-response");
    client.assert_closed();
    origin.until_ended(1);
    assert_eq!(egret.stat("/clients/tunnels"), 0);
}

#[test]
fn a_tunnel_passes_half_closes_on_and_ends_when_both_sides_have() {
    let origin = Provider::scripted(|peer| {
        let mut all = Vec::new();
        let mut piece = [0; 1024];
        loop {
            match peer.read(&mut piece) {
                0 => break,
                count => all.extend(&piece[..count]),
            }
        }
        peer.send(all);
    });
    let egret = Config::default().start();
    let mut client = egret.client();
    client.send(format!("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\n\r\n", origin.address()));
    assert_eq!(client.response_to("HEAD").status, 200);
    assert_eq!(client.send("all there is").half_close().rest(), b"all there is");
    wait::until_true("the tunnel is gone", || egret.stat("/clients/tunnels") == 0);
}

#[test]
fn bytes_after_a_failed_connect_are_no_request() {
    let (origin, port) = (Provider::plain(), ClosedPort::take());
    let egret = Config::with_origin(origin.url()).start();
    let (own, closed) = (egret.address(), port.address());
    let mut client = egret.client();
    client.send(format!(
        "CONNECT {closed} HTTP/1.1\r\nHost: {closed}\r\n\r\nGET /origin/ HTTP/1.1\r\nHost: {own}\r\n\r\n"
    ));
    client.response().assert_generated(502, "connect-failed");
    client.rest();
    assert_eq!(origin.connections(), 0);
}

#[test]
fn connect_wants_a_host_and_a_port_and_nothing_else() {
    let egret = Config::default().start();
    for target in [
        "127.0.0.1",
        "/",
        "http://127.0.0.1:1/",
        "user@127.0.0.1:1",
        "127.0.0.1:1/a",
        "127.0.0.1:99999",
        ":1",
        "127.0.0.1:",
    ] {
        let mut client = egret.client();
        client.send(format!("CONNECT {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
        client.response().assert_generated(400, "bad-request");
        client.assert_closed();
    }
}
