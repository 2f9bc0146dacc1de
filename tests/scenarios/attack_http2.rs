//! Hostile HTTP/2 clients: requests that would become others in HTTP/1.1, and floods of frames.

use egret_tests::egret::{Config, Egret};
use egret_tests::http2::{
    CONTINUATION, END_HEADERS, ENHANCE_YOUR_CALM, Frame, GOAWAY, HEADERS, Http2Client, PING, PRIORITY,
    RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame,
};
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

fn before(origin: &Provider) -> Egret {
    Config::with_origin(origin.url()).gateway("workers: 1").start()
}

/// The fields of a GET, with changes: a pair whose name is there replaces it, others follow.
fn request<'a>(own: &'a str, changes: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut fields =
        vec![(":method", "GET"), (":scheme", "http"), (":authority", own), (":path", "/origin/")];
    for change in changes {
        match fields.iter_mut().find(|field| field.0 == change.0 && change.0.starts_with(':')) {
            Some(field) => field.1 = change.1,
            None => fields.push(*change),
        }
    }
    fields
}

#[test]
fn a_request_that_would_become_another_is_refused() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let own = egret.address().to_string();
    for changes in [
        &[("transfer-encoding", "chunked")][..],
        &[("connection", "x-a"), ("x-a", "1")],
        &[("proxy-connection", "close")],
        &[("upgrade", "websocket")],
        &[("te", "gzip")],
        &[("content-length", "5")],
        &[("content-length", "0"), ("content-length", "1")],
        &[("content-length", "+0")],
        &[("content-length", "0, 0")],
        &[("host", "other.example")],
        &[("x-a", " 1")],
        &[("x-a", "1\t")],
        &[("x-a", "1\r\nx-b: 2")],
        &[("x-a", "1\nx-b: 2")],
        &[("x-a", "1\0")],
        &[("x a", "1")],
        &[("x-a:", "1")],
        &[("X-A", "1")],
        &[("", "1")],
        &[(":path", "")],
        &[(":path", "origin/")],
        &[(":path", "http://other.example/")],
        &[(":path", "/origin/ HTTP/1.1\r\nx: y")],
        &[(":path", "/origin/a b")],
        &[(":path", "*")],
        &[(":method", "GET /x")],
        &[(":method", "")],
        &[(":scheme", "https")],
        &[(":scheme", "ftp")],
        &[(":authority", "user@other.example")],
        &[(":authority", "")],
        &[(":unknown", "1")],
        &[(":method", "CONNECT"), (":protocol", "websocket")],
    ] {
        let mut client = Http2Client::connect(egret.address());
        client.headers(1, &request(&own, changes), true);
        let answer = loop {
            match client.receive() {
                Some(frame) if [HEADERS, RST_STREAM, GOAWAY].contains(&frame.kind) => break frame,
                Some(_) => {}
                None => panic!("closed without a reason: {changes:?}"),
            }
        };
        match answer.kind {
            HEADERS => assert_eq!(answer.status(), Some(400), "{changes:?}"),
            _ => assert_ne!(answer.error(), 0, "{changes:?}"),
        }
    }
    assert!(origin.requests().is_empty());
    egret.assert_well();
}

#[test]
fn too_many_parts_of_a_cookie_are_too_many_fields() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let own = egret.address().to_string();
    let crumbs = vec![("cookie", "a=1"); 200];
    let mut client = Http2Client::connect(egret.address());
    client.headers(1, &request(&own, &crumbs), true);
    client.until_on(1, HEADERS);
    assert_eq!((egret.generated("head-too-large"), origin.requests().len()), (1, 0));
}

/// Receives frames until a ping is answered. Returns those from the end of the connection on, if it ends.
fn until_ping(client: &mut Http2Client) -> Vec<Frame> {
    loop {
        match client.receive() {
            Some(frame) if frame.kind == PING => return Vec::new(),
            Some(frame) if frame.kind == GOAWAY => return vec![frame],
            Some(_) => {}
            None => return Vec::new(),
        }
    }
}

/// Sends `frames` again and again until the connection ends. Returns the error that it ends with.
fn flooded(egret: &Egret, frames: &[u8]) -> u32 {
    let mut client = Http2Client::connect(egret.address());
    let mut reader = client.reader();
    let reading = std::thread::spawn(move || reader.rest());
    while client.send(frames) {}
    let received = reading.join().unwrap();
    let last = received.iter().find(|frame| frame.kind == GOAWAY);
    last.unwrap_or_else(|| panic!("no GOAWAY: {received:?}")).error()
}

#[test]
fn a_flood_of_frames_ends_its_connection_alone() {
    let origin = Provider::plain();
    let unknown = 0xbb;
    for (frames, named) in [
        (frame(PING, 0, 0, &[0; 8]), "PING"),
        (frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]), "SETTINGS"),
        (frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]), "PRIORITY"),
        (frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()), "WINDOW_UPDATE"),
        (frame(unknown, 0, 0, b"x"), "of unknown types"),
    ] {
        let egret = before(&origin);
        let mut honest = Http2Client::connect(egret.address());
        assert_eq!(flooded(&egret, &frames), ENHANCE_YOUR_CALM, "{named}");
        egret.until_logged(named);
        honest.get(1, egret.address(), "/origin/");
        assert_eq!(honest.until_on(1, HEADERS).status(), Some(200), "{named}");
    }
}

#[test]
fn streams_reset_at_once_do_not_pile_up_work() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request_head() {
            if request.target() == "/slow" {
                peer.stall();
                return;
            }
            peer.send(ok("ok"));
        }
    });
    let egret = before(&origin);
    // All at once, and then each after the one before has been accepted.
    for accepted in [false, true] {
        let mut client = Http2Client::connect(egret.address());
        let mut ended = Vec::new();
        for number in 0..5_000 {
            let stream = 2 * number + 1;
            if !client.get(stream, egret.address(), "/origin/slow") {
                break;
            }
            if accepted {
                client.frame(PING, 0, 0, &[0; 8]);
                ended = until_ping(&mut client);
            }
            if !ended.is_empty() || !client.frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes()) {
                break;
            }
        }
        ended.extend(client.rest());
        let last = ended.iter().find(|frame| frame.kind == GOAWAY);
        assert_eq!(last.map(Frame::error), Some(ENHANCE_YOUR_CALM), "{accepted}");
    }
    egret.until_logged("RST_STREAM");
    wait::until_true("no connection is left", || egret.stat("/clients/open") == 0);
    origin.until_ended(origin.connections());
    let mut honest = Http2Client::connect(egret.address());
    honest.get(1, egret.address(), "/origin/");
    assert_eq!(honest.until_on(1, HEADERS).status(), Some(200));
}

#[test]
fn fields_without_an_end_are_refused() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let own = egret.address().to_string();
    let mut client = Http2Client::connect(egret.address());
    client.frame(HEADERS, 0, 1, &block(&request(&own, &[])));
    let piece = block(&[("x-a", &"x".repeat(1_000))]).repeat(16);
    let mut sent = 0;
    while sent < 10_000 && client.frame(CONTINUATION, 0, 1, &piece) {
        sent += 1;
    }
    assert!(sent < 10_000);
    assert!(egret.process().resident_bytes_max() < 128 << 20);
    let mut client = Http2Client::connect(egret.address());
    client.frame(HEADERS, 0, 1, &block(&request(&own, &[])));
    client.frame(CONTINUATION, END_HEADERS, 1, &block(&[("x-a", "b")]));
    // Without END_STREAM, the body follows.
    assert!(client.receive().is_some());
    egret.assert_well();
}

#[test]
fn a_token_of_one_stream_proves_nothing_for_another() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let token = "checkout-token-3f9a1c7e5b2d8064";
    let file = directory.write_secret("token", token);
    let listener = format!(
        "{{ address: '127.0.0.1:0', clients: {{ tokens: {{ checkout: '${{file:{}}}' }} }} }}",
        file.display()
    );
    let egret = Config::with_origin(origin.url()).listen([&listener]).start();
    let (own, tunnel) = (egret.address().to_string(), origin.address().to_string());
    let mut client = Http2Client::connect(egret.address());
    let connect = [(":method", "CONNECT"), (":authority", &*tunnel), ("x-egret-token", token)];
    client.headers(1, &connect, false);
    assert_eq!(client.until_on(1, HEADERS).status(), Some(200));
    client.headers(3, &request(&own, &[]), true);
    client.until_on(3, HEADERS);
    assert_eq!(egret.generated("client-unproven"), 1, "the tunnel is that of another stream");
    client.headers(5, &request(&own, &[("x-egret-token", token)]), true);
    assert_eq!(client.until_on(5, HEADERS).status(), Some(200));
}
