//! Hostile clients of SOCKS 5: hosts that are denied, handshakes that never end, and bytes that are none.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use egret_tests::dns::{Answer, NameServer};
use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use egret_tests::socks::{code, handshake, request};

const LISTEN: &str = "{ address: \"127.0.0.1:0\", socks5: true }";

/// The beginning of each handshake, and the answer to it.
const GREETING: [u8; 3] = [5, 1, 0];
const METHOD: [u8; 2] = [5, 0];

fn start() -> Egret {
    Config::default().listen([LISTEN]).start()
}

/// Returns the handshake for a tunnel to port 443 of an address of this kind.
fn to_address(kind: u8, address: &[u8]) -> Vec<u8> {
    [&GREETING[..], &[5, 1, 0, kind], address, &443_u16.to_be_bytes()].concat()
}

#[test]
fn a_denied_host_stays_denied_in_every_spelling() {
    let names = NameServer::start(|name| match name {
        "inner.test" => Answer::Addresses(vec![Ipv4Addr::new(10, 9, 8, 7)], 60),
        _ => Answer::Addresses(vec![Ipv4Addr::LOCALHOST], 60),
    });
    let rules = "deny: [{ host: denied.test }, { host: '*.denied.test' }, { net: 10.0.0.0/8 }]";
    let config = Config::default().listen([LISTEN]).gateway(names.config());
    let egret = config.gateway(format!("egress: {{ {rules} }}")).start();
    let mut mapped = [0; 16];
    mapped[10..].copy_from_slice(&[0xff, 0xff, 10, 1, 2, 3]);
    let of_names = [
        "denied.test",
        "DENIED.test",
        "denied.test.",
        "a.b.Denied.Test.",
        "10.1.2.3",
        "[::ffff:10.1.2.3]",
        "[::ffff:a01:203]",
        "169.254.169.254",
        "metadata.google.internal",
        "inner.test",
    ]
    .map(|name| handshake(name, 443));
    let of_addresses =
        [to_address(1, &[10, 1, 2, 3]), to_address(4, &mapped), to_address(1, &[169, 254, 169, 254])];
    let own =
        [handshake("here.test", egret.address().port()), handshake("127.0.0.1", egret.control().port())];
    let denied: Vec<Vec<u8>> = [&of_names[..], &of_addresses, &own].concat();
    for bytes in &denied {
        let mut client = egret.client();
        assert_eq!(code(&mut client, bytes), 2, "{bytes:?}");
        client.assert_closed();
    }
    assert_eq!(egret.generated("egress-denied"), denied.len() as u64);
    let malformed = [
        "10.1",
        "0x0a.1.2.3",
        "012.1.2.3",
        "167838211",
        "denied.test\0.ok.test",
        "ok.test@denied.test",
        "denied.test:443",
        "denied.test\r\nX: y",
        "denied..test",
        "::ffff:10.1.2.3",
        "",
        "d%65nied.test",
    ];
    for name in malformed {
        assert_eq!(code(&mut egret.client(), handshake(name, 443)), 1, "{name:?}");
    }
    assert_eq!(code(&mut egret.client(), handshake("ok.test", 0)), 1);
    assert_eq!(egret.generated("bad-request"), malformed.len() as u64 + 1);
    assert_eq!((names.queries("denied.test"), names.queries("ok.test")), (0, 0));
}

#[test]
fn a_handshake_that_does_not_end_is_cut() {
    let timeouts = "timeouts: { head: 300ms, keep_alive: 1h, half_close: 1h, idle: 1h, connect: 1h }";
    let egret = Config::default().listen([LISTEN]).gateway(timeouts).start();
    let long_name = [&[5, 1, 0, 3, 255][..], &[b'a'; 254]].concat();
    for (sent, received) in [
        (vec![5], vec![5, 0xff]),
        (vec![5, 255, 0, 1, 2], vec![5, 0xff]),
        (GREETING.to_vec(), [&METHOD[..], &[5, 1, 0, 1, 0, 0, 0, 0, 0, 0]].concat()),
        ([&GREETING[..], &long_name].concat(), [&METHOD[..], &[5, 1, 0, 1, 0, 0, 0, 0, 0, 0]].concat()),
    ] {
        let start = Instant::now();
        assert_eq!(egret.client().send(&sent).rest(), received, "{sent:?}");
        assert!(start.elapsed() >= Duration::from_millis(250), "{:?}", start.elapsed());
    }
    assert_eq!(egret.generated("request-timeout"), 4);
    // A client that sends nothing waits as one of HTTP does, and one that leaves is forgotten.
    egret.client().assert_silent(Duration::from_millis(400));
    egret.client().send(GREETING).half_close();
    assert_eq!(egret.control_get("/healthz").status, 200);
}

#[test]
fn bytes_that_are_no_handshake_end_the_connection() {
    let egret = start();
    let refused = |code: u8| [&METHOD[..], &[5, code, 0, 1, 0, 0, 0, 0, 0, 0]].concat();
    for (sent, received) in [
        (vec![5, 0], vec![5, 0xff]),
        (vec![5, 2, 1, 2], vec![5, 0xff]),
        ([&GREETING[..], &[5, 2, 0, 1, 127, 0, 0, 1, 0, 80]].concat(), refused(7)),
        ([&GREETING[..], &[5, 3, 0, 1, 0, 0, 0, 0, 0, 0]].concat(), refused(7)),
        ([&GREETING[..], &[5, 1, 0, 2, 0, 80]].concat(), refused(8)),
        ([&GREETING[..], &[5, 1, 9, 1, 127, 0, 0, 1, 0, 80]].concat(), refused(1)),
        ([&GREETING[..], &GREETING[..], &GREETING[..]].concat(), refused(8)),
        ([&GREETING[..], b"GET / HTTP/1.1\r\n\r\n"].concat(), refused(1)),
    ] {
        assert_eq!(egret.client().send(&sent).rest(), received, "{sent:?}");
    }
    // What is no SOCKS at all may be HTTP, whose clients can read why they are refused.
    for sent in [
        &b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"[..],
        b"CONNECT a.test:443 HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\0\x01",
    ] {
        let mut client = egret.client();
        let response = client.send(sent).response();
        response.assert_generated(400, "bad-request");
        assert!(response.text().contains("socks5h://"), "{}", response.text());
        client.assert_closed();
    }
    let socks4 = egret.client().send([4, 1, 0, 80, 127, 0, 0, 1, 0]).rest();
    assert!(socks4.starts_with(b"HTTP/1.1 400 "), "{socks4:?}");
    assert_eq!((egret.generated("bad-request"), egret.control_get("/healthz").status), (12, 200));
}

#[test]
fn hostile_handshakes_do_not_harm_an_honest_one() {
    let (egret, origin) = (start(), Provider::plain());
    // Each has begun, and goes no further.
    let hostile: Vec<_> = (0..200)
        .map(|number| {
            let mut client = egret.client();
            let bytes = handshake("127.0.0.1", origin.address().port());
            client.send(&bytes[..=number % (bytes.len() - 1)]);
            client
        })
        .collect();
    let mut honest = egret.client();
    honest.send(GREETING);
    assert_eq!(honest.bytes(2), METHOD);
    for byte in request("127.0.0.1", origin.address().port()) {
        honest.send([byte]);
    }
    assert_eq!(honest.bytes(10), [5, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
    honest.get(origin.address(), "/").response().assert_forwarded(200);
    drop(hostile);
    assert_eq!(origin.connections(), 1);
}
