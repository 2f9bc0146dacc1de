//! Providers of HTTP/2 that admit few calls at a time: the others wait, in their order, and each is made
//! once.

use std::collections::BTreeMap;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};

use egret_tests::egret::{Config, Egret};
use egret_tests::http2::{
    ACK, DATA, END_HEADERS, END_STREAM, HEADERS, Http2Client, Http2Peer, Http2Provider, PING, SETTINGS,
    block, frame,
};
use egret_tests::wait;

/// The error code of a stream that was not processed (RFC 9113 §7).
const REFUSED_STREAM: u32 = 7;

/// A pool of one connection, and time enough to wait for it.
const ONE: &str = "pool: { connections: 1 }, timeouts: { connect: 1h }";

fn before(provider: &Http2Provider, keys: &str) -> Egret {
    let keys = format!("http: 2, {keys}");
    Config::default().provider_with("origin", provider.url(), &keys).gateway("workers: 1").start()
}

/// Announces a maximum of streams (RFC 9113 §6.5.2).
fn admit(peer: &mut Http2Peer, max: u32) {
    peer.inner.frame(SETTINGS, 0, 0, &[&[0, 3][..], &max.to_be_bytes()].concat());
}

/// Receives a whole request. Returns its stream and its body, which names it.
fn request(peer: &mut Http2Peer) -> Option<(u32, String)> {
    let mut body = Vec::new();
    loop {
        let frame = peer.receive()?;
        if frame.kind == DATA {
            body.extend(frame.payload);
        }
        if matches!(frame.kind, HEADERS | DATA) && frame.flags & END_STREAM != 0 {
            return Some((frame.stream, String::from_utf8(body).unwrap()));
        }
    }
}

/// Waits until the gateway has read all that was sent to it. Returns the streams of the requests that it has
/// sent before.
fn until_read(peer: &mut Http2Peer) -> Vec<u32> {
    peer.inner.frame(PING, 0, 0, b"all read");
    let mut streams = Vec::new();
    loop {
        let frame = peer.receive().unwrap();
        match frame.kind {
            PING if frame.flags & ACK != 0 => return streams,
            HEADERS => streams.push(frame.stream),
            _ => {}
        }
    }
}

/// A client whose calls have names, which are their bodies. Those that are sent together arrive in their
/// order.
struct Calls {
    client: Http2Client,
    authority: String,
    /// The bodies of responses, which may be incomplete, by stream.
    bodies: BTreeMap<u32, Vec<u8>>,
}

impl Calls {
    fn to(egret: &Egret) -> Self {
        let client = Http2Client::connect(egret.address());
        Self { client, authority: egret.address().to_string(), bodies: BTreeMap::new() }
    }

    /// Makes calls on these streams, which are their names.
    fn send(&mut self, streams: &[u32]) {
        let fields = [
            (":method", "POST"),
            (":scheme", "http"),
            (":authority", &*self.authority),
            (":path", "/origin/"),
        ];
        let call = |stream: &u32| {
            let head = frame(HEADERS, END_HEADERS, *stream, &block(&fields));
            [head, frame(DATA, END_STREAM, *stream, stream.to_string().as_bytes())].concat()
        };
        self.client.send(&streams.iter().map(call).collect::<Vec<_>>().concat());
    }

    /// Waits until the gateway has received all calls.
    fn until_received(&mut self) {
        self.client.frame(PING, 0, 0, b"all sent");
        self.client.until(PING);
    }

    /// Waits for the end of one more response. Returns its stream and its body.
    fn response(&mut self) -> (u32, String) {
        loop {
            let frame = self.client.until(DATA);
            self.bodies.entry(frame.stream).or_default().extend(frame.payload);
            if frame.flags & END_STREAM != 0 {
                let body = self.bodies.remove(&frame.stream).unwrap();
                return (frame.stream, String::from_utf8(body).unwrap());
            }
        }
    }

    /// Waits for the responses to calls on these streams, in any order.
    fn assert_processed_in_any_order(&mut self, streams: &[u32]) {
        let mut responses: Vec<_> = streams.iter().map(|_| self.response()).collect();
        responses.sort_unstable();
        let expected = streams.iter().map(|stream| (*stream, format!("processed {stream}")));
        assert_eq!(responses, expected.collect::<Vec<_>>());
    }

    /// Waits for the responses to calls on these streams, in this order.
    fn assert_processed(&mut self, streams: &[u32]) {
        for stream in streams {
            assert_eq!(self.response(), (*stream, format!("processed {stream}")));
        }
    }
}

fn respond(peer: &mut Http2Peer, (stream, name): &(u32, String)) {
    peer.respond(*stream, &format!("processed {name}"));
}

/// Responds to each call before the next one.
fn serve(peer: &mut Http2Peer) {
    while let Some(call) = request(peer) {
        respond(peer, &call);
    }
}

#[test]
fn calls_wait_for_the_only_connection_in_their_order() {
    let provider = Http2Provider::scripted(|peer| {
        admit(peer, 1);
        while let Some(call) = request(peer) {
            assert!(until_read(peer).is_empty(), "one call at a time is admitted");
            respond(peer, &call);
        }
    });
    let egret = before(&provider, ONE);
    let mut calls = Calls::to(&egret);
    // Now the maximum is known.
    calls.send(&[1]);
    calls.assert_processed(&[1]);
    calls.send(&[3, 5, 7, 9, 11, 13]);
    calls.assert_processed(&[3, 5, 7, 9, 11, 13]);
    assert_eq!((provider.requests(), provider.connections()), (7, 1));
}

#[test]
fn calls_wait_until_a_provider_that_admits_none_admits_some() {
    let provider = Http2Provider::scripted(|peer| {
        admit(peer, 0);
        // Those that were on their way before it was known.
        for stream in until_read(peer) {
            peer.reset(stream, REFUSED_STREAM);
        }
        assert!(until_read(peer).is_empty());
        admit(peer, 3);
        serve(peer);
    });
    let egret = before(&provider, "timeouts: { connect: 1h }");
    let mut calls = Calls::to(&egret);
    calls.send(&[1, 3, 5]);
    calls.assert_processed_in_any_order(&[1, 3, 5]);
    assert!(provider.requests() <= 6 && provider.connections() == 1, "{provider:?}");
}

#[test]
fn a_provider_that_admits_none_in_time_is_named() {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let provider = Http2Provider::scripted(move |peer| {
        let call = request(peer).unwrap();
        admit(peer, 0);
        respond(peer, &call);
        told.lock().unwrap().recv().unwrap();
        admit(peer, 1);
        serve(peer);
    });
    let egret = before(&provider, "timeouts: { connect: 2s }");
    let mut calls = Calls::to(&egret);
    calls.send(&[1]);
    calls.assert_processed(&[1]);
    let response = egret.get("/");
    response.assert_generated(504, "connect-timeout");
    assert!(response.text().contains("SETTINGS_MAX_CONCURRENT_STREAMS"), "{}", response.text());
    assert_eq!((provider.requests(), provider.connections()), (1, 1));
    tell.send(()).unwrap();
    // On a busy machine, the time of a call may be over before the frame is read.
    wait::until_true("a call is admitted", || egret.get("/").status == 200);
    assert_eq!(provider.connections(), 1);
}

#[test]
fn a_lowered_maximum_is_for_new_calls_only() {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let provider = Http2Provider::scripted(move |peer| {
        let [one, two, three] = [(); 3].map(|()| request(peer).unwrap());
        admit(peer, 1);
        assert!(until_read(peer).is_empty());
        respond(peer, &one);
        respond(peer, &two);
        told.lock().unwrap().recv().unwrap();
        assert!(until_read(peer).is_empty(), "one call is still in progress");
        respond(peer, &three);
        serve(peer);
    });
    let egret = before(&provider, ONE);
    let mut calls = Calls::to(&egret);
    calls.send(&[1, 3, 5]);
    calls.assert_processed(&[1, 3]);
    calls.send(&[7, 9]);
    calls.until_received();
    tell.send(()).unwrap();
    calls.assert_processed(&[5, 7, 9]);
    assert_eq!((provider.requests(), provider.connections()), (5, 1));
}

#[test]
fn calls_sent_before_the_maximum_is_known_are_made_once() {
    let made = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&made);
    let provider = Http2Provider::scripted(move |peer| {
        while let Some(call) = request(peer) {
            admit(peer, 1);
            // All but one are refused (RFC 9113 §5.1.2).
            for stream in until_read(peer) {
                peer.reset(stream, REFUSED_STREAM);
            }
            all.lock().unwrap().push(call.1.clone());
            respond(peer, &call);
        }
    });
    let egret = before(&provider, "pool: { connections: 2 }, timeouts: { connect: 1h }");
    let mut calls = Calls::to(&egret);
    let streams: Vec<_> = (0..20).map(|number| 2 * number + 1).collect();
    calls.send(&streams);
    calls.assert_processed_in_any_order(&streams);
    let mut made: Vec<u32> = made.lock().unwrap().iter().map(|name| name.parse().unwrap()).collect();
    made.sort_unstable();
    assert_eq!((made, provider.connections()), (streams, 2));
}

#[test]
fn a_call_whose_client_leaves_gives_up_its_turn() {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let provider = Http2Provider::scripted(move |peer| {
        admit(peer, 1);
        while let Some(call) = request(peer) {
            if call.1 == "3" {
                told.lock().unwrap().recv().unwrap();
            }
            respond(peer, &call);
        }
    });
    let egret = before(&provider, ONE);
    let mut calls = Calls::to(&egret);
    calls.send(&[1]);
    calls.assert_processed(&[1]);
    calls.send(&[3]);
    wait::until_true("the second call has arrived", || provider.requests() == 2);
    let mut leaving = egret.client();
    leaving.get(egret.address(), "/origin/");
    wait::until_true("its client has come", || egret.stat("/clients/open") == 2);
    calls.send(&[5]);
    calls.until_received();
    leaving.reset();
    wait::until_true("its client has left", || egret.stat("/clients/open") == 1);
    tell.send(()).unwrap();
    calls.assert_processed(&[3, 5]);
    assert_eq!((provider.requests(), provider.connections()), (3, 1));
}

#[test]
fn calls_that_wait_are_made_elsewhere_when_the_connection_ends() {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let provider = Http2Provider::scripted(move |peer| {
        if peer.number == 0 {
            let call = request(peer).unwrap();
            admit(peer, 0);
            respond(peer, &call);
            told.lock().unwrap().recv().unwrap();
            return peer.go_away(call.0);
        }
        serve(peer);
    });
    let egret = before(&provider, ONE);
    let mut calls = Calls::to(&egret);
    calls.send(&[1]);
    calls.assert_processed(&[1]);
    calls.send(&[3, 5]);
    calls.until_received();
    tell.send(()).unwrap();
    calls.assert_processed(&[3, 5]);
    assert_eq!((provider.requests(), provider.connections()), (3, 2));
}

#[test]
fn calls_wait_in_a_full_pool_while_its_connection_ends() {
    let (tell, told) = mpsc::channel();
    let (tell_left, left) = mpsc::channel();
    let (told, tell_left) = (Mutex::new(told), Mutex::new(tell_left));
    let provider = Http2Provider::scripted(move |peer| {
        if peer.number == 0 {
            let call = request(peer).unwrap();
            peer.go_away(call.0);
            assert!(until_read(peer).is_empty());
            tell_left.lock().unwrap().send(()).unwrap();
            told.lock().unwrap().recv().unwrap();
            return respond(peer, &call);
        }
        serve(peer);
    });
    let egret = before(&provider, ONE);
    let mut calls = Calls::to(&egret);
    calls.send(&[1]);
    left.recv().unwrap();
    calls.send(&[3, 5]);
    calls.until_received();
    tell.send(()).unwrap();
    calls.assert_processed(&[1, 3, 5]);
    assert_eq!((provider.requests(), provider.connections()), (3, 2));
}

#[test]
fn a_call_that_finds_no_room_in_a_full_pool_fails_alone() {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let provider = Http2Provider::scripted(move |peer| {
        let calls = [(); 10].map(|()| request(peer).unwrap());
        told.lock().unwrap().recv().unwrap();
        for call in &calls {
            respond(peer, call);
        }
        serve(peer);
    });
    let keys = "pool: { connections: 1, streams_per_connection: 10 }, timeouts: { connect: 2s }";
    let egret = before(&provider, keys);
    let mut calls = Calls::to(&egret);
    let streams: Vec<_> = (0..10).map(|number| 2 * number + 1).collect();
    calls.send(&streams);
    wait::until_true("the calls have arrived", || provider.requests() == 10);
    egret.get("/").assert_generated(503, "pool-full");
    tell.send(()).unwrap();
    calls.assert_processed(&streams);
    assert_eq!((egret.get("/").status, provider.requests(), provider.connections()), (200, 11, 1));
}
