//! Hostile HTTP/2 clients: requests that would become others in HTTP/1.1, and floods of frames.

use std::sync::Arc;

use egret_tests::egret::{Config, Egret};
use egret_tests::http2::{
    CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM, Frame, GOAWAY, HEADERS, Http2Client,
    Http2Provider, PING, PRIORITY, RST_STREAM, SETTINGS, WINDOW_UPDATE, block, frame,
};
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};
use egret_tests::wait::{self, Watched};

/// Starts a provider that responds to no request for `/slow`.
fn stalling() -> Provider {
    Provider::scripted(|peer| {
        while let Some(request) = peer.request_head() {
            if request.target() == "/slow" {
                peer.stall();
                return;
            }
            peer.send(ok("ok"));
        }
    })
}

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
    for (frames, named, kind) in [
        (frame(PING, 0, 0, &[0; 8]), "PING", "pings"),
        (frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255]), "SETTINGS", "settings"),
        (frame(PRIORITY, 0, 1, &[0, 0, 0, 3, 1]), "PRIORITY", "priorities"),
        (frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes()), "WINDOW_UPDATE", "updates"),
        (frame(unknown, 0, 0, b"x"), "of unknown types", "updates"),
    ] {
        let egret = before(&origin);
        let mut honest = Http2Client::connect(egret.address());
        assert_eq!(flooded(&egret, &frames), ENHANCE_YOUR_CALM, "{named}");
        egret.until_logged(named);
        assert_eq!(egret.floods(kind), 1, "{named}");
        honest.get(1, egret.address(), "/origin/");
        assert_eq!(honest.until_on(1, HEADERS).status(), Some(200), "{named}");
    }
}

/// As gRPC for Go does: for each message it opens the window of the connection, and measures its bandwidth.
#[test]
fn answers_to_small_messages_are_no_flood() {
    const MESSAGES: usize = 1_500;
    let received = Arc::new(Watched::<usize>::default());
    let seen = Arc::clone(&received);
    let origin = Provider::scripted(move |peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        for number in 0..MESSAGES {
            // Each is sent once the one before has arrived, so no two of them are in one frame.
            seen.until("the last message has arrived", |seen| (*seen >= number).then_some(()));
            peer.send("1\r\nx\r\n");
        }
        peer.send("0\r\n\r\n");
    });
    let egret = before(&origin);
    let mut client = Http2Client::connect(egret.address());
    client.get(1, egret.address(), "/origin/");
    for _ in 0..MESSAGES {
        assert_eq!(client.until_on(1, DATA).payload, b"x");
        client.frame(WINDOW_UPDATE, 0, 0, &1_u32.to_be_bytes());
        client.frame(PING, 0, 0, &[0; 8]);
        received.change(|received| *received += 1);
    }
    assert_eq!((egret.floods("pings"), egret.floods("updates")), (0, 0));
}

#[test]
fn small_frames_that_nobody_reads_do_not_end_their_connection() {
    // They fill the window of their stream.
    const FRAMES: usize = 32_000;
    let provider = Http2Provider::scripted(|peer| {
        let Some(stream) = peer.request() else { return };
        peer.inner.headers(stream, &[(":status", "200")], false);
        for _ in 0..FRAMES / 100 {
            peer.inner.send(&frame(DATA, 0, stream, b"s.").repeat(100));
        }
        peer.inner.frame(DATA, END_STREAM, stream, b"");
        while let Some(stream) = peer.request() {
            peer.respond(stream, "neighbour");
        }
    });
    let config = Config::default().provider_with("origin", provider.url(), "http: 2");
    let egret = config.gateway("workers: 1").start();
    let mut client = Http2Client::connect(egret.address());
    client.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    client.get(1, egret.address(), "/origin/");
    assert_eq!(client.until_on(1, HEADERS).status(), Some(200));
    // It is answered behind all of the frames.
    client.get(3, egret.address(), "/origin/");
    assert_eq!(client.until_on(3, HEADERS).status(), Some(200));
    for stream in [0, 1] {
        client.frame(WINDOW_UPDATE, 0, stream, &(1_u32 << 20).to_be_bytes());
    }
    let mut body = Vec::new();
    loop {
        let data = client.until_on(1, DATA);
        body.extend(data.payload);
        if data.flags & END_STREAM != 0 {
            break;
        }
    }
    assert!(body == b"s.".repeat(FRAMES), "{} bytes", body.len());
    assert_eq!(provider.connections(), 1);
}

#[test]
fn windows_of_one_byte_do_not_explain_themselves() {
    let origin = Provider::responding(ok(&"x".repeat(4 << 20)));
    let egret = before(&origin);
    let mut client = Http2Client::connect(egret.address());
    client.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
    client.get(1, egret.address(), "/origin/");
    client.until_on(1, HEADERS);
    let mut reader = client.reader();
    let reading = std::thread::spawn(move || reader.rest());
    let update = frame(WINDOW_UPDATE, 0, 1, &1_u32.to_be_bytes());
    while client.send(&update) {}
    let received = reading.join().unwrap();
    let last = received.iter().find(|frame| frame.kind == GOAWAY);
    assert_eq!(last.map(Frame::error), Some(ENHANCE_YOUR_CALM));
    assert_eq!(egret.floods("updates"), 1);
}

#[test]
fn streams_reset_at_once_do_not_pile_up_work() {
    let origin = stalling();
    let egret = before(&origin);
    // All at once, and then each after the one before has been accepted.
    for accepted in [false, true] {
        let mut client = Http2Client::connect(egret.address());
        let mut ended = Vec::new();
        // A connection ends after 10,000 resets, even if a busy machine makes them too slow for a flood.
        for number in 0..20_000 {
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
    assert_eq!(egret.floods("resets") + egret.floods("frames"), 2);
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
    egret.until_logged("CONTINUATION");
    assert_eq!(egret.floods("frames"), 1);
    assert!(egret.process().resident_bytes_max() < 128 << 20);
    let mut client = Http2Client::connect(egret.address());
    client.frame(HEADERS, 0, 1, &block(&request(&own, &[])));
    client.frame(CONTINUATION, END_HEADERS, 1, &block(&[("x-a", "b")]));
    // Without END_STREAM, the body follows.
    assert!(client.receive().is_some());
    egret.assert_well();
}

/// Asserts that the gateway took little memory for an attack, and still serves an honest client.
fn assert_unharmed(egret: &Egret, honest: &mut Http2Client) {
    assert!(egret.process().resident_bytes_max() < 128 << 20);
    honest.get(1, egret.address(), "/origin/");
    assert_eq!(honest.until_on(1, HEADERS).status(), Some(200));
    egret.assert_well();
}

#[test]
fn fields_that_grow_when_decoded_are_refused() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let own = egret.address().to_string();
    let mut honest = Http2Client::connect(egret.address());
    let mut client = Http2Client::connect(egret.address());
    // A field that enters the table (RFC 7541 §6.2.1), and then is named a thousand times by one byte each.
    let mut fields = block(&request(&own, &[]));
    let mut bomb = block(&[("x-a", &"x".repeat(3_000))]);
    bomb[0] = 0x40;
    fields.extend(bomb);
    fields.extend([0xbe; 12_000]);
    client.frame(HEADERS, END_HEADERS | END_STREAM, 1, &fields);
    let ends = |frame: &Frame| [HEADERS, RST_STREAM, GOAWAY].contains(&frame.kind);
    let answer = std::iter::from_fn(|| client.receive()).find(ends);
    assert!(answer.is_some_and(|frame| frame.kind != HEADERS || frame.status() != Some(200)));
    assert!(origin.requests().is_empty());
    assert_unharmed(&egret, &mut honest);
}

#[test]
fn streams_that_egret_is_made_to_reset_do_not_pile_up_work() {
    let origin = stalling();
    let egret = before(&origin);
    let mut honest = Http2Client::connect(egret.address());
    let mut client = Http2Client::connect(egret.address());
    let mut reader = client.reader();
    let reading = std::thread::spawn(move || reader.rest());
    // A window that overflows is an error of the stream (RFC 9113 §6.9.1), "MadeYouReset" (CVE-2025-8671).
    let overflow = 0x7fff_ffff_u32.to_be_bytes();
    // More than what the buffers of a connection hold, which a gateway on a busy machine reads late.
    let (mut sent, most) = (0_u32, 1_000_000);
    while sent < most
        && client.get(2 * sent + 1, egret.address(), "/origin/slow")
        && client.frame(WINDOW_UPDATE, 0, 2 * sent + 1, &overflow)
    {
        sent += 1;
    }
    let received = reading.join().unwrap();
    assert!(sent < most && received.iter().any(|frame| frame.kind == GOAWAY), "{sent}");
    wait::until_true("only the honest client is left", || egret.stat("/clients/open") == 1);
    // A connection ends after 1,024 resets, so these calls were made at most, and those of the last streams.
    assert!(origin.connections() <= 1_024 + 100, "{}", origin.connections());
    assert_unharmed(&egret, &mut honest);
}

#[test]
fn data_without_bytes_ends_its_connection() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let own = egret.address().to_string();
    let mut honest = Http2Client::connect(egret.address());
    let mut client = Http2Client::connect(egret.address());
    client.headers(1, &request(&own, &[(":method", "POST")]), false);
    let mut reader = client.reader();
    let reading = std::thread::spawn(move || reader.rest());
    let frames = frame(DATA, 0, 1, &[]).repeat(100);
    while client.send(&frames) {}
    let received = reading.join().unwrap();
    let last = received.iter().find(|frame| frame.kind == GOAWAY);
    assert_eq!(last.map(Frame::error), Some(ENHANCE_YOUR_CALM));
    assert_eq!(egret.floods("frames"), 1);
    assert_unharmed(&egret, &mut honest);
}

#[test]
fn responses_that_nobody_reads_take_little_memory() {
    let origin = Provider::with_responses(|request| match request.target() {
        "/large" => ok(&"x".repeat(4 << 20)),
        _ => ok("small"),
    });
    let egret = before(&origin);
    let mut honest = Http2Client::connect(egret.address());
    let mut hostile: Vec<Http2Client> = (0..2).map(|_| Http2Client::connect(egret.address())).collect();
    for client in &mut hostile {
        // No window at all for streams (RFC 9113 §6.5.2).
        client.frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 0, 0]);
        for number in 0..20 {
            client.get(2 * number + 1, egret.address(), "/origin/large");
        }
        let mut heads = 0;
        while heads < 20 {
            heads += u32::from(client.until(HEADERS).stream > 0);
        }
    }
    assert_unharmed(&egret, &mut honest);
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
