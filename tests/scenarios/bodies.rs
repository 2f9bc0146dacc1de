//! Bodies are streamed without buffering: large, slow and aborted ones.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::peers::Nginx;
use egret_tests::permits;
use egret_tests::pki::Authority;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;
use socket2::SockRef;

const GIB: u64 = 1 << 30;
const MIB: u64 = 1 << 20;
/// Maximum growth of resident memory for a body of any size.
const GROWTH_MAX: u64 = 8 * MIB;
/// A prime, so it divides no buffer size and a lost or doubled byte shows.
const PATTERN_LEN: usize = 65_521;

fn pattern() -> Vec<u8> {
    (0..PATTERN_LEN).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

/// Compares a stream with the pattern, piece by piece.
#[derive(Default)]
struct Checker {
    pattern: Vec<u8>,
    seen: u64,
}

impl Checker {
    fn check(&mut self, mut piece: &[u8]) {
        if self.pattern.is_empty() {
            self.pattern = pattern();
        }
        while !piece.is_empty() {
            let at = usize::try_from(self.seen % PATTERN_LEN as u64).unwrap();
            let count = piece.len().min(PATTERN_LEN - at);
            assert!(
                piece[..count] == self.pattern[at..at + count],
                "the body differs near byte {}",
                self.seen
            );
            self.seen += count as u64;
            piece = &piece[count..];
        }
    }
}

/// Returns the growth of resident memory during `work`, at its peak.
fn growth(egret: &Egret, work: impl FnOnce()) -> u64 {
    let _permit = permits::busy();
    let before = egret.process().resident_bytes();
    work();
    egret.process().resident_bytes_max().saturating_sub(before)
}

#[test]
fn one_gib_down_adds_no_memory() {
    let nginx = Nginx::start(&Authority::default(), "");
    let file = std::fs::File::create(nginx.directory().join("www/gib")).unwrap();
    file.set_len(GIB).unwrap();
    let egret = Config::with_origin(nginx.url()).start();
    egret.get("/none").assert_forwarded(404);
    let growth = growth(&egret, || {
        let mut client = egret.client();
        let head = client.get(egret.address(), "/origin/gib").head();
        assert_eq!((head.status, head.field("content-length")), (200, Some("1073741824")));
        let (mut piece, zeros) = (vec![0; 256 << 10], vec![0; 256 << 10]);
        let mut count = client.pending().len() as u64;
        while count < GIB {
            let read = client.stream().read(&mut piece).unwrap();
            assert!(read > 0, "closed after {count} bytes");
            assert!(piece[..read] == zeros[..read]);
            count += read as u64;
        }
    });
    println!("1 GiB down: {} KiB more resident", growth >> 10);
    assert!(growth <= GROWTH_MAX, "{} KiB", growth >> 10);
}

#[test]
fn one_gib_up_adds_no_memory_and_arrives_as_it_was() {
    let origin = Provider::scripted(|peer| {
        while let Some(head) = peer.request_head() {
            let length: u64 =
                head.values("content-length").first().map_or(0, |length| length.parse().unwrap());
            let (mut checker, mut piece) = (Checker::default(), vec![0; 256 << 10]);
            while checker.seen < length {
                match peer.read(&mut piece) {
                    0 => return,
                    count => checker.check(&piece[..count]),
                }
            }
            peer.send(ok(&checker.seen.to_string()));
        }
    });
    let egret = Config::with_origin(origin.url()).start();
    egret.get("/").assert_forwarded(200);
    let growth = growth(&egret, || {
        let mut client = egret.client();
        client.request(egret.address(), "POST /origin/", &format!("Content-Length: {GIB}\r\n"), "");
        let (piece, mut left) = (pattern(), GIB);
        while left > 0 {
            let count = usize::try_from(left.min(PATTERN_LEN as u64)).unwrap();
            client.send(&piece[..count]);
            left -= count as u64;
        }
        assert_eq!(client.response().assert_forwarded(200).text(), GIB.to_string());
    });
    println!("1 GiB up: {} KiB more resident", growth >> 10);
    assert!(growth <= GROWTH_MAX, "{} KiB", growth >> 10);
}

#[test]
fn chunked_bodies_pass_whole_both_ways_at_once() {
    const CHUNKS: usize = 500;
    let origin = Provider::scripted(|peer| {
        let Some(request) = peer.request() else { return };
        let mut checker = Checker::default();
        checker.check(&request.body);
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        // Chunk sizes that fit no buffer, from one byte up.
        let mut rest = request.body.as_slice();
        let mut size = 1;
        while !rest.is_empty() {
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            let mut framed = format!("{:x}\r\n", chunk.len()).into_bytes();
            framed.extend(chunk);
            framed.extend(b"\r\n");
            peer.send(framed);
            (rest, size) = (after, size * 3 % 50_021 + 1);
        }
        peer.send("0\r\n\r\n");
    });
    let egret = Config::with_origin(origin.url()).start();
    let mut client = egret.client();
    client.request(egret.address(), "POST /origin/", "Transfer-Encoding: chunked\r\n", "");
    let (body, mut at) = (pattern(), 0);
    for number in 0..CHUNKS {
        let size = (number * number % 9_973 + 1).min(PATTERN_LEN - at);
        client.send(format!("{size:X}\r\n")).send(&body[at..at + size]).send("\r\n");
        at = (at + size) % PATTERN_LEN;
    }
    let response = client.send("0\r\n\r\n").response();
    assert_eq!(response.body, origin.only_request().body);
    assert!(response.body.len() > PATTERN_LEN);
}

/// A buffer of 128 KiB has more chunks of a few bytes than one system call sends pieces.
#[test]
fn bursts_of_small_chunks_pass_whole_both_ways() {
    let framed = |body: &[u8]| {
        let mut bytes = Vec::new();
        for chunk in body.chunks(3) {
            bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
            bytes.extend([chunk, b"\r\n"].concat());
        }
        bytes.extend(b"0\r\n\r\n");
        bytes
    };
    let origin = Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            let head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            peer.send([&head[..], &framed(&request.body)].concat());
        }
    });
    let egret = Config::with_origin(origin.url()).start();
    let mut client = egret.client();
    let body = pattern().repeat(16);
    for _ in 0..4 {
        let head = format!(
            "POST /origin/ HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\n\r\n",
            egret.address()
        );
        client.send([head.as_bytes(), &framed(&body)].concat());
        assert!(client.response().body == body);
    }
    assert!(origin.requests().iter().all(|request| request.body == body));
}

#[test]
fn a_slow_reader_holds_the_provider_back_and_not_the_gateways_memory() {
    let offered = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&offered);
    let origin = Provider::scripted(move |peer| {
        let _ = peer.request();
        peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 256 * MIB));
        let piece = vec![b'x'; 1 << 20];
        while counted.load(SeqCst) < 256 * MIB && peer.send(&piece) {
            counted.fetch_add(MIB, SeqCst);
        }
    });
    let egret = Config::with_origin(origin.url()).start();
    let before = egret.process().resident_bytes();
    let mut client = egret.client();
    SockRef::from(client.stream()).set_recv_buffer_size(64 << 10).unwrap();
    assert_eq!(client.get(egret.address(), "/origin/").head().status, 200);
    // The provider can send what the sockets in between buffer, and then nothing more.
    let held = settled(&offered);
    assert!(held < 64 * MIB, "{} MiB went ahead of the client", held / MIB);
    let growth = egret.process().resident_bytes_max().saturating_sub(before);
    assert!(growth <= GROWTH_MAX, "{} KiB", growth >> 10);
    let mut left = usize::try_from(256 * MIB).unwrap() - client.pending().len();
    let mut piece = vec![0; 1 << 20];
    while left > 0 {
        let count = client.stream().read(&mut piece).unwrap();
        assert!(count > 0, "closed with {left} bytes missing");
        left -= count;
    }
}

#[test]
fn a_slow_provider_holds_the_client_back_and_not_the_gateways_memory() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request_head();
        while !peer.stopped() {
            thread::park_timeout(std::time::Duration::from_millis(20));
        }
    });
    let egret = Config::with_origin(origin.url()).start();
    let before = egret.process().resident_bytes();
    let mut client = egret.client();
    client.send(format!(
        "POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n\r\n",
        egret.address(),
        256 * MIB
    ));
    let offered = Arc::new(AtomicU64::new(0));
    let (counted, mut stream) = (Arc::clone(&offered), client.stream().try_clone().unwrap());
    let sender = thread::spawn(move || {
        let piece = vec![b'x'; 1 << 20];
        while counted.load(SeqCst) < 256 * MIB && stream.write_all(&piece).is_ok() {
            counted.fetch_add(MIB, SeqCst);
        }
    });
    let held = settled(&offered);
    assert!(held < 64 * MIB, "{} MiB went ahead of the provider", held / MIB);
    let growth = egret.process().resident_bytes_max().saturating_sub(before);
    assert!(growth <= GROWTH_MAX, "{} KiB", growth >> 10);
    client.stream().shutdown(std::net::Shutdown::Both).unwrap();
    sender.join().unwrap();
}

/// Waits until the number no longer changes, and returns it.
fn settled(number: &AtomicU64) -> u64 {
    let (mut last, mut same) = (0, 0);
    wait::until("nothing more is taken", || {
        let now = number.load(SeqCst);
        same = if now == last { same + 1 } else { 0 };
        last = now;
        (same >= 60 && now > 0).then_some(now)
    })
}

#[test]
fn a_broken_response_body_never_looks_whole() {
    let origin = Provider::scripted(|peer| {
        let Some(request) = peer.request() else { return };
        match request.target() {
            "/length" => peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"),
            "/chunked" => {
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n")
            }
            "/in-chunk" => peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nff\r\nonly this"),
            "/bad-chunk" => {
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\nxyz\r\n")
            }
            "/in-trailer" => peer.send(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n0\r\nX-A: 1\r\n",
            ),
            _ => {
                peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this");
                peer.reset();
                false
            }
        };
    });
    let egret = Config::with_origin(origin.url()).start();
    for target in ["/length", "/chunked", "/in-chunk", "/bad-chunk", "/in-trailer", "/reset"] {
        let mut client = egret.client();
        let response = client.get(egret.address(), &format!("/origin{target}")).any_response_to("GET");
        if !response.cut {
            // The error was detected before anything was forwarded.
            response.assert_generated(502, "bad-response");
            continue;
        }
        // Bytes received before a reset may be lost with it.
        assert!(b"only this".starts_with(&response.body), "{target}: {response:?}");
        client.assert_closed();
    }
    egret.assert_well();
}

#[test]
fn a_broken_response_resets_an_old_client() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n");
    });
    let egret = Config::with_origin(origin.url()).start();
    let mut client = egret.client();
    client.send(format!("GET /origin/ HTTP/1.0\r\nHost: {}\r\n\r\n", egret.address()));
    // A close-delimited body has no other sign of an error: the end of the connection is its end.
    assert!(broken(&mut client), "a clean end says that the body is whole");
}

fn broken(client: &mut Client) -> bool {
    let mut all = Vec::new();
    client.stream().read_to_end(&mut all).is_err()
}

#[test]
fn a_broken_request_body_never_looks_whole() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).start();
    for (number, body) in [
        "Content-Length: 100\r\n\r\nonly this",
        "Transfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n",
        "Transfer-Encoding: chunked\r\n\r\n9\r\nonly this\r\n0\r\n",
    ]
    .iter()
    .enumerate()
    {
        let mut client = egret.client();
        client.send(format!("POST /origin/ HTTP/1.1\r\nHost: {}\r\n{body}", egret.address()));
        origin.until_connected(number + 1);
        drop(client);
        origin.until_ended(number + 1);
    }
    assert!(origin.requests().is_empty(), "{:?}", origin.requests());
    egret.assert_well();
}
