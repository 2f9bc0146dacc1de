//! Connections of HTTP/2 clients: streams beside each other, backpressure, cancelled calls, and the drain.

use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use egret_tests::egret::{Config, Egret};
use egret_tests::http2::{
    ACK, DATA, END_HEADERS, END_STREAM, GOAWAY, HEADERS, Http2Client, PING, RST_STREAM, Room, SETTINGS,
    WINDOW_UPDATE, block, frame,
};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

/// The error code of a cancelled call (RFC 9113 §7).
const CANCEL: u32 = 8;

fn before(origin: &Provider) -> Egret {
    Config::with_origin(origin.url()).gateway("workers: 1").start()
}

/// Sends the head of a POST with a body.
fn begin_post(client: &mut Http2Client, egret: &Egret, stream: u32) {
    let own = egret.address().to_string();
    let fields = [(":method", "POST"), (":scheme", "http"), (":authority", &own), (":path", "/origin/up")];
    client.headers(stream, &fields, false);
}

/// Opens a connection with a GET. The gateway stands still until all of it has arrived, so however busy the
/// machine is, the connection is not idle before.
fn connect_with_get(egret: &Egret) -> Http2Client {
    let own = egret.address().to_string();
    let fields = [(":method", "GET"), (":scheme", "http"), (":authority", &own), (":path", "/origin/")];
    let request = frame(HEADERS, END_STREAM | END_HEADERS, 1, &block(&fields));
    egret.process().signal("STOP");
    let client = Http2Client::connect_with(egret.address(), &request);
    egret.process().signal("CONT");
    client
}

#[test]
fn a_slow_reader_does_not_stall_its_neighbour() {
    let origin = Provider::with_responses(|request| match request.target() {
        "/large" => ok(&"x".repeat(1 << 20)),
        _ => ok("small"),
    });
    let egret = before(&origin);
    let mut client = Http2Client::connect(egret.address());
    client.get(1, egret.address(), "/origin/large");
    // The windows of both the stream and the connection are used up by the first; more only for the others.
    let mut received = 0;
    while received < 65_535 {
        received += client.until_on(1, DATA).payload.len();
    }
    assert_eq!(received, 65_535);
    client.frame(WINDOW_UPDATE, 0, 0, &100_000_u32.to_be_bytes());
    for stream in [3, 5, 7] {
        client.get(stream, egret.address(), "/origin/small");
        assert_eq!(client.until_on(stream, DATA).payload, b"small");
    }
    // The first goes on once it may.
    client.frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
    assert_eq!(client.until_on(1, DATA).payload, b"x");
}

#[test]
fn a_request_that_comes_with_the_preface_outlasts_idle_connections() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let origin = Provider::with_responses(move |_| {
        let _ = released.lock().unwrap().recv();
        ok("late")
    });
    let gateway = "workers: 1\n  timeouts: { keep_alive: 300ms }";
    let egret = Config::with_origin(origin.url()).gateway(gateway).start();
    let mut client = connect_with_get(&egret);
    // A connection without a request is closed after that time, and this one was opened later.
    for _ in 0..2 {
        let mut idle = std::net::TcpStream::connect(egret.address()).unwrap();
        let _ = std::io::Read::read(&mut idle, &mut [0; 1]);
    }
    release.send(()).unwrap();
    assert_eq!(client.until_on(1, DATA).payload, b"late");
}

#[test]
fn a_provider_that_does_not_read_stops_the_upload() {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let origin = Provider::scripted(move |peer| {
        if let Some(request) = peer.request_head() {
            if request.target() == "/up" {
                let _ = released.lock().unwrap().recv();
                let mut left = 32 << 20;
                let mut piece = vec![0; 1 << 16];
                while left > 0 {
                    match peer.read(&mut piece) {
                        0 => return,
                        count => left -= count.min(left),
                    }
                }
            }
            peer.send(ok("done"));
        }
    });
    let egret = before(&origin);
    let mut client = Http2Client::connect(egret.address());
    let own = egret.address().to_string();
    let length = (32 << 20).to_string();
    let fields = [
        (":method", "POST"),
        (":scheme", "http"),
        (":authority", own.as_str()),
        (":path", "/origin/up"),
        ("content-length", &length),
    ];
    client.headers(1, &fields, false);
    // Sends as much as the windows allow, and notes how much that is.
    let (mut room, mut left) = (Room::new(1), 32 << 20);
    let mut is_released = false;
    let mut sent_before = 0;
    while left > 0 {
        let count = room.take(left);
        if count > 0 {
            left -= count;
            client.frame(DATA, if left == 0 { END_STREAM } else { 0 }, 1, &vec![b'x'; count]);
            continue;
        }
        if !is_released {
            // An answered ping shows that nothing more was allowed before, apart from frames on their way.
            client.frame(PING, 0, 0, &[0; 8]);
        }
        loop {
            let frame = client.receive().unwrap();
            let has_changed = room.note(&frame);
            match frame.kind {
                SETTINGS if has_changed => {
                    client.frame(SETTINGS, ACK, 0, &[]);
                    break;
                }
                _ if has_changed => break,
                PING if sent_before == left => {
                    release.send(()).unwrap();
                    is_released = true;
                    break;
                }
                PING => {
                    sent_before = left;
                    break;
                }
                _ => {}
            }
        }
    }
    assert!(is_released, "all of it was taken while the provider read nothing");
    assert_eq!(client.until_on(1, HEADERS).status(), Some(200));
}

#[test]
fn a_cancelled_call_is_cancelled_at_the_provider() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request_head() {
            if request.target() == "/up" {
                peer.stall();
                return;
            }
            peer.send(ok("ok"));
        }
    });
    let egret = before(&origin);
    let mut client = Http2Client::connect(egret.address());
    for number in 0..20 {
        let stream = 2 * number + 1;
        begin_post(&mut client, &egret, stream);
        client.frame(DATA, 0, stream, b"part");
        origin.until_connected(number as usize + 1);
        client.frame(RST_STREAM, 0, stream, &CANCEL.to_be_bytes());
        origin.until_ended(number as usize + 1);
    }
    wait::until_true("no exchange is in flight", || egret.stat("/clients/idle") == 1);
    client.get(41, egret.address(), "/origin/");
    assert_eq!(client.until_on(41, HEADERS).status(), Some(200));
}

#[test]
fn a_drain_lets_streams_in_flight_end() {
    let (release, released) = mpsc::channel::<()>();
    let released = Arc::new(Mutex::new(released));
    let origin = Provider::scripted(move |peer| {
        if peer.request().is_some() {
            let _ = released.lock().unwrap().recv();
            peer.send(ok("late"));
        }
    });
    let mut egret = before(&origin);
    let mut client = Http2Client::connect(egret.address());
    client.get(1, egret.address(), "/origin/");
    origin.until_requested(1);
    egret.terminate();
    let first = client.until(GOAWAY);
    assert_eq!(first.payload[..4], 0x7fff_ffff_u32.to_be_bytes(), "it says only that no stream must follow");
    let ping = client.until(PING);
    client.frame(PING, 1, 0, &ping.payload);
    let last = client.until(GOAWAY);
    assert_eq!((last.payload[..4].to_vec(), last.error()), (1_u32.to_be_bytes().to_vec(), 0));
    release.send(()).unwrap();
    assert_eq!(client.until_on(1, DATA).payload, b"late");
    assert_eq!(client.rest(), []);
    assert!(egret.until_ended().success());
}

#[test]
fn an_idle_connection_is_told_before_it_is_closed() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("timeouts: { keep_alive: 100ms }").start();
    let mut client = connect_with_get(&egret);
    assert_eq!(client.until_on(1, HEADERS).status(), Some(200));
    assert_eq!(client.until(GOAWAY).error(), 0);
    client.rest();
}
