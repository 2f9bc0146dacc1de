//! Connections of other kinds: HTTP/2, TLS, tunnels, sockets and streams, and clients that do not behave.

use std::collections::BTreeSet;
use std::io::Read as _;
use std::time::Duration;

use egret_tests::grpc::framed;
use egret_tests::http::Client;
use egret_tests::http2::{DATA, END_STREAM, HEADERS, Http2Client, RST_STREAM};
use egret_tests::intercepted::tunnel;
use egret_tests::pki::{Authority, anonymous};
use egret_tests::random::Random;
use egret_tests::socks;
use egret_tests::timeline::pass;

use super::calls::{call, named};
use super::gateway::World;

/// Number of streams on a connection of HTTP/2.
const STREAMS: usize = 10;
/// The frame of a message `hello` of a WebSocket's client, with a mask that does not change it.
const HELLO: &[u8] = b"\x81\x85\0\0\0\0hello";
/// The code of a client that no longer wants a response (RFC 9113 §7).
const CANCEL: [u8; 4] = [0, 0, 0, 8];

/// Streams of HTTP/2, to a provider of HTTP/1.1, of HTTP/2, and of HTTP/2 over TLS. One in five is cancelled.
pub(crate) fn http2(world: &World, random: &mut Random) {
    let mut client = Http2Client::connect(world.address());
    let mut awaited = BTreeSet::new();
    for number in 0..STREAMS {
        let stream = u32::try_from(2 * number + 1).unwrap();
        let path = format!("/{}/anything/{:x}", random.part("origin¦two¦secure"), random.draw());
        assert!(client.get(stream, world.address(), &path));
        if random.once_in(5) {
            client.frame(RST_STREAM, 0, stream, &CANCEL);
        } else {
            awaited.insert(stream);
        }
    }
    while !awaited.is_empty() {
        let frame = client.receive().unwrap_or_else(|| panic!("the connection ended before {awaited:?}"));
        if matches!(frame.kind, DATA | HEADERS) && frame.flags & END_STREAM != 0 {
            awaited.remove(&frame.stream);
        }
        assert!(frame.kind != RST_STREAM || !awaited.contains(&frame.stream), "reset: {frame:?}");
    }
}

/// Calls of gRPC.
pub(crate) fn grpc(world: &World, random: &mut Random) {
    let mut client = Http2Client::connect(world.address());
    let authority = world.address().to_string();
    for number in 0..STREAMS {
        let stream = u32::try_from(2 * number + 1).unwrap();
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", authority.as_str()),
            (":path", "/two/egret.provider.Echo/Unary"),
            ("content-type", "application/grpc"),
            ("te", "trailers"),
        ];
        let text = format!("\n\u{10}{:016x}", random.draw());
        assert!(client.headers(stream, &fields, false));
        assert!(client.frame(DATA, END_STREAM, stream, &framed(&text)));
        let head = client.until_on(stream, HEADERS);
        assert_eq!(head.status(), Some(200));
        if head.flags & END_STREAM == 0 {
            client.until_on(stream, HEADERS);
        }
    }
}

/// Clients that use TLS to the gateway.
pub(crate) fn over_tls(world: &World, random: &mut Random) {
    let mut client = Client::connect(world.egret().listener(1));
    let host = format!("localhost:{}", world.egret().listener(1).port());
    let version = random.one(&[&rustls::version::TLS13, &rustls::version::TLS12]);
    client.shake_hands(anonymous(&world.authority, version)).unwrap();
    for _ in 0..STREAMS {
        let line = format!("GET /secure/anything/{:x}", random.draw());
        call(&mut client, &line, &host, &named(random), "").assert_forwarded(200);
    }
}

/// Tunnels: relayed unread, and intercepted, each for a name of its own.
pub(crate) fn tunnels(world: &World, random: &mut Random) {
    let host =
        format!("127.0.{}.{}:{}", random.below(250), 1 + random.below(250), world.plain.address().port());
    let mut client = tunnel(world.egret(), &host);
    call(&mut client, "GET /get", &host, "", "").assert_forwarded(200);
    let name = format!("h{}.soak.test", random.below(100_000));
    let host = format!("{name}:{}", world.named.port());
    let mut client = world.intercepting.open(&host, &name, &["http/1.1"]).unwrap();
    for _ in 0..STREAMS / 2 {
        call(&mut client, &format!("GET /anything/{:x}", random.draw()), &host, &named(random), "")
            .assert_forwarded(200);
    }
    // One that speaks no TLS.
    tunnel(world.egret(), &host).offer("GET / HTTP/1.1\r\n\r\n").rest();
}

/// Clients of SOCKS.
pub(crate) fn over_socks(world: &World, random: &mut Random) {
    let mut client = Client::connect(world.egret().listener(2));
    let name = format!("s{}.names.test", random.below(1_000_000));
    assert_eq!(socks::code(&mut client, socks::handshake(&name, world.plain.address().port())), 0);
    call(&mut client, "GET /get", &name, "", "").assert_forwarded(200);
}

/// A stream of events that is read to its end, and a WebSocket.
pub(crate) fn streams(world: &World, random: &mut Random) {
    let (mut client, host) = (world.egret().client(), world.address().to_string());
    let line = format!("GET /origin/sse?count=20&duration={}ms", 100 + random.below(1_000));
    call(&mut client, &line, &host, &named(random), "").assert_forwarded(200);
    let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n\
         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    client.send(format!("GET /origin/websocket/echo HTTP/1.1\r\nHost: {host}\r\n{upgrade}\r\n"));
    assert_eq!(client.head().status, 101);
    for _ in 0..STREAMS {
        client.send(HELLO);
        assert_eq!(client.bytes(7), b"\x81\x05hello");
    }
}

/// Clients that leave: in a head, in a body, before the response, and in it, by close and by reset.
pub(crate) fn aborting(world: &World, random: &mut Random) {
    for _ in 0..STREAMS {
        let mut client = world.egret().client();
        let host = world.address();
        let sent = random.part(
            "GET /origin/anything/¦GET /origin/delay/300ms HTTP/1.1\r\nHost: H\r\n\r\n\
             ¦POST /origin/post HTTP/1.1\r\nHost: H\r\nContent-Length: 1000\r\n\r\nsome\
             ¦POST /origin/post HTTP/1.1\r\nHost: H\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel\
             ¦GET /origin/sse?count=100&duration=3s HTTP/1.1\r\nHost: H\r\n\r\n\
             ¦GET /origin/bytes/900000?seed=1 HTTP/1.1\r\nHost: H\r\n\r\n\
             ¦PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nabc",
        );
        client.offer(sent.replace("HTTP/1.1\r\nHost: H", &format!("HTTP/1.1\r\nHost: {host}")));
        if random.once_in(2) {
            pass(Duration::from_millis(5));
        }
        if random.once_in(2) {
            client.reset();
        }
    }
}

/// Requests that are none.
pub(crate) fn malformed(world: &World, random: &mut Random) {
    for _ in 0..STREAMS {
        let sent = random.part(
            "GET  / HTTP/1.1\r\n\r\n¦GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n¦\u{16}\u{3}\u{1}\0\u{5}hello\
             ¦POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n\
             ¦GET /no-such-provider/ HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        );
        let mut client = world.egret().client();
        client.offer(sent).half_close();
        client.rest();
    }
}

/// A client that reads a long body slowly, and one whose head comes byte by byte.
pub(crate) fn slow(world: &World, random: &mut Random) {
    let (mut reader, mut writer, host) = (world.egret().client(), world.egret().client(), world.address());
    socket2::SockRef::from(reader.stream()).set_recv_buffer_size(4_096).unwrap();
    reader
        .send(format!("GET /origin/bytes/200000?seed={} HTTP/1.1\r\nHost: {host}\r\n\r\n", random.below(50)));
    let head = format!("GET /origin/get?n={:x} HTTP/1.1\r\nHost: {host}\r\n\r\n", random.draw());
    let mut piece = [0; 2_048];
    for byte in head.as_bytes() {
        writer.send([*byte]);
        let _ = reader.stream().read(&mut piece);
        pass(Duration::from_millis(10));
    }
    writer.response().assert_forwarded(200);
}

/// A handshake with a client that trusts another authority.
pub(crate) fn distrusting(world: &World, _: &mut Random) {
    let other = Authority::default();
    let tls = anonymous(&other, &rustls::version::TLS13);
    let mut client = Client::connect(world.egret().listener(1));
    assert!(client.shake_hands(tls).is_err());
}
