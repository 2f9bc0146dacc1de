//! Providers of HTTP/2 that refuse, reset and leave: no call is lost that they have not processed, and none
//! is made twice that they may have.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Response, WEBSOCKET};
use egret_tests::http2::{DATA, END_STREAM, HEADERS, Http2Provider, RST_STREAM, SETTINGS};
use egret_tests::wait;

/// Error codes (RFC 9113 §7).
const INTERNAL_ERROR: u32 = 2;
const REFUSED_STREAM: u32 = 7;
const CANCEL: u32 = 8;
const HTTP_1_1_REQUIRED: u32 = 13;

fn before(provider: &Http2Provider) -> Egret {
    before_with(provider, "http: 2", "")
}

fn before_with(provider: &Http2Provider, keys: &str, flows: &str) -> Egret {
    Config::default().provider_with("origin", provider.url(), keys).flows(flows).gateway("workers: 1").start()
}

fn post(egret: &Egret) -> Response {
    egret.ask("POST /origin/", "", "abc")
}

/// Makes calls at the same time, and returns their responses.
fn beside_each_other(egret: &Egret, count: usize) -> Vec<Response> {
    thread::scope(|scope| {
        let calls: Vec<_> = (0..count).map(|_| scope.spawn(|| post(egret))).collect();
        calls.into_iter().map(|call| call.join().unwrap()).collect()
    })
}

#[test]
fn calls_that_a_leaving_provider_has_not_processed_are_repeated() {
    let provider = Http2Provider::scripted(|peer| {
        // The first connection processes one call of three.
        let Some(first) = peer.request() else { return };
        if peer.number == 0 {
            let others = [peer.request(), peer.request()];
            assert!(others.iter().all(Option::is_some));
            peer.go_away(first);
            peer.respond(first, "processed");
        } else {
            peer.respond(first, "processed");
        }
        while let Some(stream) = peer.request() {
            peer.respond(stream, "processed");
        }
    });
    let egret = before(&provider);
    let responses = beside_each_other(&egret, 3);
    assert!(responses.iter().all(|response| response.text() == "processed"), "{responses:?}");
    assert_eq!((provider.requests(), provider.connections()), (5, 2));
    // The new connection stays.
    assert_eq!(post(&egret).text(), "processed");
    assert_eq!(provider.connections(), 2);
}

#[test]
fn calls_are_made_once_while_connections_end_under_load() {
    let made = Arc::new(AtomicUsize::new(0));
    let all = Arc::clone(&made);
    let provider = Http2Provider::scripted(move |peer| {
        // Each connection processes 20 calls, and leaves the others to the next one.
        let mut last = 0;
        for number in 1.. {
            let Some(stream) = peer.request() else { return };
            if number <= 20 {
                all.fetch_add(1, SeqCst);
                peer.respond(stream, "processed");
                last = stream;
            }
            if number == 20 {
                peer.go_away(last);
            }
        }
    });
    let egret = before(&provider);
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    assert_eq!(post(&egret).text(), "processed");
                }
            });
        }
    });
    assert_eq!(made.load(SeqCst), 200);
    assert!(provider.connections() >= 10);
}

#[test]
fn a_refused_call_is_repeated_at_most_twice() {
    for (refusals, status, requests) in [(1, 200, 2), (2, 200, 3), (3, 502, 3)] {
        let provider = Http2Provider::scripted(move |peer| {
            for number in 0.. {
                let Some(stream) = peer.request() else { return };
                if number < refusals {
                    peer.reset(stream, REFUSED_STREAM);
                } else {
                    peer.respond(stream, "processed");
                }
            }
        });
        let egret = before(&provider);
        assert_eq!(post(&egret).status, status);
        assert_eq!((provider.requests(), provider.connections()), (requests, 1));
    }
}

#[test]
fn a_refusal_costs_no_attempt_of_a_retry() {
    let provider = Http2Provider::scripted(|peer| {
        for number in 0.. {
            let Some(stream) = peer.request() else { return };
            match number {
                0 => peer.reset(stream, REFUSED_STREAM),
                1 => {
                    peer.inner.headers(stream, &[(":status", "503")], true);
                }
                _ => peer.respond(stream, "processed"),
            }
        }
    });
    let flows = "flows:
  - name: calls
    match: { provider: origin }
    remedies: [{ retry: { attempts: 2, on: [5xx], methods: [POST], backoff: { base: 1ms } } }]
";
    let egret = before_with(&provider, "http: 2", flows);
    assert_eq!(post(&egret).text(), "processed");
    assert_eq!(provider.requests(), 3);
}

#[test]
fn a_call_that_may_have_been_processed_is_not_repeated() {
    let provider = Http2Provider::scripted(|peer| {
        while let Some(stream) = peer.request() {
            peer.reset(stream, INTERNAL_ERROR);
        }
    });
    let egret = before(&provider);
    post(&egret).assert_generated(502, "provider-closed");
    assert_eq!((provider.requests(), provider.connections()), (1, 1));
    // So is one whose connection is lost.
    let provider = Http2Provider::scripted(|peer| {
        peer.request();
    });
    let egret = before(&provider);
    post(&egret).assert_generated(502, "provider-closed");
    assert_eq!(provider.requests(), 1);
}

#[test]
fn a_safe_call_on_a_lost_connection_is_made_again() {
    let provider = Http2Provider::scripted(|peer| {
        let Some(stream) = peer.request() else { return };
        peer.respond(stream, "processed");
        if peer.number > 0 {
            peer.request();
        } else {
            peer.inner.until(HEADERS);
        }
    });
    let egret = before(&provider);
    for _ in 0..2 {
        assert_eq!(egret.get("/").text(), "processed");
    }
    assert_eq!(provider.connections(), 2);
}

#[test]
fn a_provider_that_requires_http_1_1_gets_it_from_then_on() {
    let provider = Http2Provider::scripted(|peer| {
        while let Some(stream) = peer.request() {
            peer.reset(stream, HTTP_1_1_REQUIRED);
        }
    });
    let egret = before(&provider);
    for _ in 0..3 {
        assert_eq!(post(&egret).status, 204);
    }
    assert_eq!((provider.requests(), provider.http1_requests()), (1, 3));
}

#[test]
fn a_connection_is_opened_once_for_all_calls_that_wait() {
    let provider = Http2Provider::scripted(|peer| {
        let streams: Vec<_> = (0..12).map(|_| peer.request().unwrap()).collect();
        for stream in streams {
            peer.respond(stream, "processed");
        }
        while peer.receive().is_some() {}
    });
    let egret = before(&provider);
    let responses = beside_each_other(&egret, 12);
    assert!(responses.iter().all(|response| response.text() == "processed"), "{responses:?}");
    assert_eq!((provider.connections(), provider.requests()), (1, 12));
}

#[test]
fn a_connection_carries_no_more_calls_than_the_provider_admits() {
    let provider = Http2Provider::scripted(|peer| {
        if peer.number == 0 {
            // MAX_CONCURRENT_STREAMS (RFC 9113 §6.5.2).
            peer.inner.frame(SETTINGS, 0, 0, &[0, 3, 0, 0, 0, 1]);
        }
        let mut first = None;
        while let Some(stream) = peer.request() {
            // The first call after the settings waits for another connection's.
            if peer.number == 0 && first.is_some() {
                while peer.receive().is_some() {}
                return;
            }
            first = Some(stream);
            peer.respond(stream, &peer.number.to_string());
        }
    });
    let egret = before(&provider);
    assert_eq!(post(&egret).text(), "0");
    let mut waiting = egret.client();
    waiting.get(egret.address(), "/origin/");
    wait::until_true("the second call has arrived", || provider.requests() == 2);
    assert_eq!(post(&egret).text(), "1");
    assert_eq!(provider.connections(), 2);
}

#[test]
fn a_call_of_a_client_that_leaves_is_cancelled_alone() {
    let (tell, told) = std::sync::mpsc::channel();
    let tell = std::sync::Mutex::new(tell);
    let provider = Http2Provider::scripted(move |peer| {
        let first = peer.request().unwrap();
        peer.inner.headers(first, &[(":status", "200")], false);
        peer.inner.frame(DATA, 0, first, b"begun");
        while let Some(frame) = peer.receive() {
            match frame.kind {
                RST_STREAM => tell.lock().unwrap().send((frame.stream == first, frame.error())).unwrap(),
                HEADERS if frame.flags & END_STREAM != 0 => peer.respond(frame.stream, "processed"),
                _ => {}
            }
        }
    });
    let egret = before(&provider);
    let mut leaving = egret.client();
    leaving.get(egret.address(), "/origin/");
    assert_eq!(leaving.head().status, 200);
    leaving.reset();
    assert_eq!(told.recv().unwrap(), (true, CANCEL));
    assert_eq!(egret.get("/").text(), "processed");
    assert_eq!(provider.connections(), 1);
}

#[test]
fn a_response_without_a_form_in_http_1_1_is_refused() {
    for fields in [
        &[(":status", "101")][..],
        &[(":status", "099")],
        &[(":status", "200"), ("transfer-encoding", "chunked")],
        &[(":status", "200"), ("connection", "close")],
        &[(":status", "200"), ("x-a", " 1")],
        &[(":status", "200"), ("x-a", "1\r\nx-b: 2")],
        &[(":status", "200"), ("content-length", "+5")],
        &[("x-a", "1")],
    ] {
        let provider = Http2Provider::scripted(|peer| {
            while let Some(stream) = peer.request() {
                peer.inner.headers(stream, fields, false);
            }
        });
        let egret = before(&provider);
        let response = post(&egret);
        response.assert_generated(502, "bad-response");
        assert_eq!(provider.requests(), 1, "{fields:?}");
    }
}

#[test]
fn a_response_cut_short_is_incomplete_for_its_client() {
    let provider = Http2Provider::scripted(|peer| {
        while let Some(stream) = peer.request() {
            peer.inner.headers(stream, &[(":status", "200")], false);
            peer.inner.frame(DATA, 0, stream, b"abc");
            peer.reset(stream, INTERNAL_ERROR);
        }
    });
    let egret = before(&provider);
    let mut client = egret.client();
    client.get(egret.address(), "/origin/");
    assert_eq!(client.head().status, 200);
    assert!(!client.rest().ends_with(b"0\r\n\r\n"));
    assert_eq!(provider.requests(), 1);
}

#[test]
fn a_provider_that_floods_loses_its_connection() {
    let provider = Http2Provider::scripted(|peer| {
        let stream = peer.request();
        if peer.number == 0 {
            while peer.inner.frame(SETTINGS, 0, 0, &[]) {}
        } else if let Some(stream) = stream {
            peer.respond(stream, "processed");
            peer.request();
        }
    });
    let egret = before(&provider);
    post(&egret).assert_generated(502, "bad-response");
    egret.until_logged("it sends too many settings (SETTINGS)");
    assert_eq!(post(&egret).text(), "processed");
}

#[test]
fn a_provider_that_does_not_speak_http2_is_named_so() {
    let origin = egret_tests::provider::Provider::plain();
    let egret = Config::default().provider_with("origin", origin.url(), "http: 2").start();
    let response = egret.get("/");
    response.assert_generated(502, "bad-response");
    assert!(response.text().contains("HTTP/2"), "{}", response.text());
}

#[test]
fn a_provider_that_says_nothing_is_waited_for_within_the_timeout() {
    // It accepts, and does not even send its settings.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let accepting = thread::spawn(move || silent.incoming().take(2).collect::<Vec<_>>());
    let keys = "http: 2, timeouts: { connect: 3s, first_byte: 300ms }";
    let egret = Config::default().provider_with("origin", url, keys).gateway("workers: 1").start();
    post(&egret).assert_generated(504, "first-byte-timeout");
    let mut client = egret.client();
    client.request(egret.address(), "GET /origin/", WEBSOCKET, "");
    client.response().assert_generated(504, "first-byte-timeout");
    drop(accepting);
}

#[test]
fn connections_are_limited_over_both_versions() {
    let provider = Http2Provider::scripted(|peer| {
        while let Some(stream) = peer.request() {
            peer.respond(stream, "processed");
        }
    });
    let egret = before_with(&provider, "pool: { connections: 1 }", "");
    let grpc = format!(
        "POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Type: application/grpc\r\nContent-Length: 0\r\n\r\n",
        egret.address()
    );
    // Each call needs the only connection in another version.
    for _ in 0..2 {
        assert_eq!(egret.client().send(&grpc).response().text(), "processed");
        assert_eq!(egret.get("/").status, 204);
    }
    assert_eq!((provider.connections(), provider.http1_requests()), (2, 2));
}
