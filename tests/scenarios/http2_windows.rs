//! Windows of HTTP/2 streams: they grow while readers keep up, so a fast transfer over a long way is not held
//! up, and stay small for readers that do not.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;

use egret_tests::egret::Config;
use egret_tests::http2::{ACK, DATA, END_STREAM, HEADERS, Http2Client, Http2Provider, Room, SETTINGS, frame};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::Watched;

/// The window that each stream begins with.
const INITIAL_BYTES: usize = 64 << 10;
/// A window that has grown. Buffers of sockets have room for half of it.
const GROWN_BYTES: usize = 1 << 20;

/// Number of bytes that have arrived at the other end.
type Arrived = Arc<Watched<usize>>;

/// Sends data on the first stream, as much as its window admits, until one of `GROWN_BYTES` is announced. The
/// reader keeps up: what the window admits has arrived before more is sent.
fn send_until_grown(peer: &mut Http2Client, mut room: Room, arrived: &Arrived) {
    let mut sent = 0;
    while room.initial < GROWN_BYTES {
        let count = room.take(usize::MAX);
        if count > 0 {
            assert!(peer.frame(DATA, 0, 1, &vec![b'x'; count]));
            sent += count;
            // Each window is read once before it doubles, and what was announced may be on its way.
            assert!(sent <= 8 * GROWN_BYTES, "the window is still {}", room.initial);
            continue;
        }
        arrived.until("all of it has arrived", |arrived| (*arrived >= sent).then_some(()));
        let received = peer.receive().unwrap();
        if room.note(&received) && received.kind == SETTINGS {
            peer.frame(SETTINGS, ACK, 0, &[]);
        }
    }
}

/// Reads to the end of a chunked body.
fn read_to_end(mut read: impl FnMut(&mut [u8]) -> usize, arrived: &Arrived) {
    let (mut piece, mut last) = (vec![0; 1 << 16], Vec::new());
    while !last.ends_with(b"\r\n0\r\n\r\n") {
        let count = read(&mut piece);
        assert!(count > 0, "the body is cut short");
        arrived.change(|arrived| *arrived += count);
        last.extend_from_slice(&piece[..count]);
        last.drain(..last.len().saturating_sub(7));
    }
}

#[test]
fn the_window_of_an_upload_grows_while_it_is_read() {
    let arrived = Arrived::default();
    let seen = Arc::clone(&arrived);
    let origin = Provider::scripted(move |peer| {
        peer.request_head();
        read_to_end(|piece| peer.read(piece), &seen);
        peer.send(ok("done"));
    });
    let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
    let mut client = Http2Client::connect(egret.address());
    let own = egret.address().to_string();
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", &own), (":path", "/origin/up")];
    client.headers(1, &fields, false);
    send_until_grown(&mut client, Room::new(1), &arrived);
    client.frame(DATA, END_STREAM, 1, b"");
    assert_eq!(client.until_on(1, DATA).payload, b"done");
}

#[test]
fn the_window_of_a_download_grows_while_it_is_read() {
    let arrived = Arrived::default();
    let seen = Arc::clone(&arrived);
    let provider = Http2Provider::scripted(move |peer| {
        let mut room = Room::new(1);
        while peer.receive().is_some_and(|frame| room.note(&frame) || frame.kind != HEADERS) {}
        peer.inner.headers(1, &[(":status", "200")], false);
        send_until_grown(&mut peer.inner, room, &seen);
        peer.inner.frame(DATA, END_STREAM, 1, b"");
        while peer.receive().is_some() {}
    });
    let egret = Config::default().provider_with("origin", provider.url(), "http: 2").start();
    let mut client = TcpStream::connect(egret.address()).unwrap();
    write!(client, "GET /origin/ HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address()).unwrap();
    read_to_end(|piece| client.read(piece).unwrap(), &arrived);
}

#[test]
fn responses_that_nobody_reads_hold_up_no_other_call() {
    // It fills the window of each stream.
    let provider = Http2Provider::scripted(|peer| {
        while let Some(stream) = peer.request() {
            peer.inner.headers(stream, &[(":status", "200")], false);
            let fill = frame(DATA, 0, stream, &[b'x'; 16_384]).repeat(INITIAL_BYTES / 16_384);
            peer.inner.send(&fill);
        }
    });
    let config = Config::default().provider_with("origin", provider.url(), "http: 2");
    let egret = config.gateway("workers: 1").start();
    let mut client = Http2Client::connect(egret.address());
    client.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    for number in 0..31 {
        client.get(2 * number + 1, egret.address(), "/origin/");
        client.until_on(2 * number + 1, HEADERS);
    }
    let mut neighbour = Http2Client::connect(egret.address());
    neighbour.get(1, egret.address(), "/origin/");
    assert!(!neighbour.until_on(1, DATA).payload.is_empty());
    assert_eq!(provider.connections(), 1);
}
