//! Persistent connections: to the client, to the provider, and when they die between exchanges.

use std::io::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::{Provider, ok};
use egret_tests::wait;

/// Starts Egret with one worker, so each connection finds what the previous one left in the pool.
fn before(origin: &Provider) -> Egret {
    Config::with_origin(origin.url()).gateway("workers: 1").start()
}

#[test]
fn http_1_1_keeps_the_connection_until_told_to_close() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let (mut client, own) = (egret.client(), egret.address());
    for _ in 0..3 {
        let response = client.get(own, "/origin/").response();
        assert_ne!(response.assert_forwarded(200).field("connection"), Some("close"));
    }
    client.send(format!("GET /origin/ HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n\r\n"));
    assert_eq!(client.response().field("connection"), Some("close"));
    client.assert_closed();
    assert_eq!(origin.connections(), 1, "the provider is not affected by the client's connection");
}

#[test]
fn http_1_0_closes_unless_it_asks_to_keep() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let mut client = egret.client();
    let response =
        client.send(format!("GET /origin/ HTTP/1.0\r\nHost: {}\r\n\r\n", egret.address())).response();
    assert_eq!(response.assert_forwarded(200).text(), "hello");
    client.assert_closed();
    let mut client = egret.client();
    for _ in 0..2 {
        client.send(format!(
            "GET /origin/ HTTP/1.0\r\nHost: {}\r\nConnection: Keep-Alive\r\n\r\n",
            egret.address()
        ));
        let response = client.response();
        assert!(
            response.assert_forwarded(200).field("connection").unwrap().eq_ignore_ascii_case("keep-alive")
        );
    }
    assert!(origin.requests().iter().all(|request| request.line.ends_with(" HTTP/1.1")));
}

#[test]
fn http_1_0_never_gets_chunks() {
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    let origin = Provider::responding(chunked);
    let egret = before(&origin);
    let mut client = egret.client();
    client.send(format!("GET http://{}/ HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", origin.address()));
    let response = client.response();
    assert_eq!((response.text(), response.field("transfer-encoding")), ("abcde", None));
}

#[test]
fn an_http_1_0_proxy_request_without_a_host_field_is_served() {
    let origin = Provider::plain();
    let egret = before(&origin);
    egret
        .client()
        .send(format!("GET http://{}/a HTTP/1.0\r\n\r\n", origin.address()))
        .response()
        .assert_forwarded(200);
    assert_eq!(origin.only_request().values("host"), [origin.address().to_string()]);
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let origin = Provider::with_responses(|request| ok(request.target()));
    let egret = before(&origin);
    let own = egret.address();
    let requests: String = (0..50)
        .map(|number| match number % 3 {
            0 => format!("GET /origin/{number} HTTP/1.1\r\nHost: {own}\r\n\r\n"),
            1 => format!("POST /origin/{number} HTTP/1.1\r\nHost: {own}\r\nContent-Length: 3\r\n\r\nabc"),
            _ => format!("PUT /origin/{number} HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nxy\r\n0\r\n\r\n"),
        })
        .collect();
    let mut client = egret.client();
    client.send(requests);
    for number in 0..50 {
        assert_eq!(client.response().assert_forwarded(200).text(), format!("/{number}"));
    }
    let bodies: Vec<Vec<u8>> = origin.requests().into_iter().map(|request| request.body).take(3).collect();
    assert_eq!(bodies, [&b""[..], b"abc", b"xy"]);
}

#[test]
fn a_client_that_keeps_the_pipeline_full_keeps_nobody_else_waiting() {
    // As large as the receive buffer, so each time there is exactly one whole request, and more seems to
    // follow.
    const BYTES: usize = 16 << 10;
    const CLIENTS: usize = 8;
    const REQUESTS: usize = 512;
    let origin = Provider::plain();
    let egret = before(&origin);
    let head = format!("GET /no-such-provider/ HTTP/1.1\r\nHost: {}\r\nX-Filler: ", egret.address());
    let requests = format!("{head}{}\r\n\r\n", "x".repeat(BYTES - head.len() - 4)).repeat(REQUESTS);
    for _ in 0..CLIENTS {
        let mut client = egret.client();
        let mut sender = client.stream().try_clone().unwrap();
        thread::scope(|scope| {
            scope.spawn(|| sender.write_all(requests.as_bytes()).unwrap());
            for _ in 0..REQUESTS {
                client.response().assert_generated(404, "unknown-provider");
            }
        });
    }
    egret.assert_well();
}

#[test]
fn the_gateways_own_responses_do_not_disturb_a_pipeline() {
    let origin = Provider::plain();
    let egret = before(&origin);
    let own = egret.address();
    let mut client = egret.client();
    client.send(format!("POST /nobody/ HTTP/1.1\r\nHost: {own}\r\nContent-Length: 5\r\n\r\nGET /GET /origin/ HTTP/1.1\r\nHost: {own}\r\n\r\n"));
    client.response().assert_generated(404, "unknown-provider");
    assert_eq!(client.response().assert_forwarded(200).text(), "hello");
}

#[test]
fn informational_responses_pass_before_the_final_one() {
    let origin = Provider::responding(
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    );
    let egret = before(&origin);
    let mut client = egret.client();
    let hints = client.get(egret.address(), "/origin/").response();
    assert_eq!((hints.status, hints.field("link")), (103, Some("</a>")));
    assert_eq!(client.response().status, 102);
    assert_eq!(client.response().text(), "hi");
    assert_eq!(client.get(egret.address(), "/origin/").response().status, 103, "the connection is kept");
}

#[test]
fn an_http_1_0_client_sees_no_informational_responses() {
    let origin = Provider::responding(
        "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
    );
    let egret = before(&origin);
    let request = format!("GET /origin/ HTTP/1.0\r\nHost: {}\r\n\r\n", egret.address());
    assert_eq!(egret.client().send(request).response().text(), "hi");
}

#[test]
fn expect_100_continue_is_between_client_and_provider() {
    let origin = Provider::scripted(|peer| {
        while let Some(head) = peer.request_head() {
            assert_eq!(head.values("expect"), ["100-continue"]);
            peer.send("HTTP/1.1 100 Continue\r\n\r\n");
            let body = peer.take(4).unwrap();
            peer.send(ok(&String::from_utf8(body).unwrap()));
        }
    });
    let egret = before(&origin);
    let mut client = egret.client();
    for _ in 0..2 {
        let own = egret.address();
        client.request(own, "POST /origin/", "Expect: 100-continue\r\nContent-Length: 4\r\n", "");
        assert_eq!(client.response().status, 100);
        assert_eq!(client.send("body").response().text(), "body");
    }
    assert_eq!(origin.connections(), 1, "100 is not final, so the connection is good for another exchange");
}

#[test]
fn a_refused_expectation_leaves_no_waiting_connection() {
    let origin = Provider::scripted(|peer| {
        while peer.request_head().is_some() {
            peer.send("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let egret = before(&origin);
    let mut client = egret.client();
    let own = egret.address();
    client.request(own, "POST /origin/", "Expect: 100-continue\r\nContent-Length: 4\r\n", "");
    client.response().assert_forwarded(417);
    // The client may still send the body, so neither connection can carry another exchange.
    client.assert_closed();
    origin.until_ended(1);
    egret.get("/").assert_forwarded(417);
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_early_response_ends_both_connections() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request_head();
        peer.send("HTTP/1.1 413 Content Too Large\r\nContent-Length: 3\r\n\r\nno!");
        peer.stall();
    });
    let egret = before(&origin);
    let mut client = egret.client();
    client.send(format!(
        "POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: 1000000\r\n\r\nstart",
        egret.address()
    ));
    assert_eq!(client.response().assert_forwarded(413).text(), "no!");
    client.assert_closed();
    origin.until_ended(1);
}

#[test]
fn an_idle_connection_is_used_again_and_counted() {
    let origin = Provider::plain();
    let egret = before(&origin);
    for _ in 0..5 {
        egret.get("/").assert_forwarded(200);
    }
    assert_eq!(origin.connections(), 1);
    assert_eq!(
        (egret.provider_stat("origin", "connects"), egret.provider_stat("origin", "pool_hits")),
        (1, 4)
    );
    wait::until_true("it is idle again", || egret.provider_stat("origin", "connections_idle") == 1);
    let metrics = egret.control_get("/metrics");
    assert!(
        metrics.text().contains("egret_provider_pool_hits_total{provider=\"origin\"} 4\n"),
        "{}",
        metrics.text()
    );
}

#[test]
fn a_worker_takes_over_the_idle_connection_of_another() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("workers: 4").start();
    let mut clients: Vec<_> = (0..4).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/").response().assert_forwarded(200);
        wait::until_true("the connection is idle", || egret.provider_stat("origin", "connections_idle") == 1);
    }
    assert_eq!(origin.connections(), 1, "one after the other, one connection is enough for all workers");
    assert!(egret.provider_stat("origin", "pool_steals") > 0);
}

#[test]
fn a_providers_keep_alive_timeout_is_learned() {
    let origin =
        Provider::responding("HTTP/1.1 200 OK\r\nKeep-Alive: timeout=1\r\nContent-Length: 0\r\n\r\n");
    let egret = before(&origin);
    egret.get("/").assert_forwarded(200);
    origin.until_ended(1);
    egret.get("/").assert_forwarded(200);
    assert_eq!(origin.connections(), 2);
    assert_eq!(egret.provider_stat("origin", "repeats"), 0, "it was closed before the provider could");
}

#[test]
fn a_provider_that_says_close_is_not_asked_again_on_that_connection() {
    let origin = Provider::responding("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
    let egret = before(&origin);
    let mut client = egret.client();
    for _ in 0..3 {
        let response = client.get(egret.address(), "/origin/").response();
        assert_eq!(
            response.assert_forwarded(200).field("connection"),
            None,
            "it is between gateway and provider"
        );
    }
    assert_eq!(origin.connections(), 3);
}

/// Starts a provider that responds to the first request on every connection, and closes silently at the
/// second one.
fn one_response_a_connection() -> Provider {
    Provider::scripted(|peer| {
        if peer.request().is_some() && peer.send(ok("once")) {
            let _ = peer.request();
        }
    })
}

#[test]
fn a_repeatable_request_survives_a_dead_connection() {
    let origin = one_response_a_connection();
    let egret = before(&origin);
    for method in ["GET", "PUT", "DELETE"] {
        let mut client = egret.client();
        client.get(egret.address(), "/origin/").response().assert_forwarded(200);
        let request = format!(
            "{method} /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\n\r\nbody",
            egret.address()
        );
        client.send(request).response().assert_forwarded(200);
    }
    assert!(egret.provider_stat("origin", "repeats") >= 3);
}

#[test]
fn an_unrepeatable_request_on_a_dead_connection_is_502() {
    let origin = one_response_a_connection();
    let egret = before(&origin);
    let mut client = egret.client();
    client.get(egret.address(), "/origin/").response().assert_forwarded(200);
    client.send(format!(
        "POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: 4\r\n\r\nbody",
        egret.address()
    ));
    client.response().assert_generated(502, "provider-closed");
    assert_eq!(egret.provider_stat("origin", "repeats"), 0);
    assert_eq!(origin.requests().iter().filter(|request| request.line.starts_with("POST")).count(), 1);
}

#[test]
fn a_request_is_not_repeated_when_a_fresh_connection_dies() {
    static TRIES: AtomicUsize = AtomicUsize::new(0);
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        TRIES.fetch_add(1, SeqCst);
    });
    let egret = before(&origin);
    egret.get("/").assert_generated(502, "provider-closed");
    assert_eq!(TRIES.load(SeqCst), 1);
}

#[test]
fn a_request_on_which_its_provider_dies_is_sent_twice_at_most() {
    const IDLE: usize = 5;
    let together = Barrier::new(IDLE);
    let origin = Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            if request.target() == "/fatal" {
                return;
            }
            together.wait();
            peer.send(ok("well"));
        }
    });
    let egret = before(&origin);
    let mut clients: Vec<_> = (0..IDLE).map(|_| egret.client()).collect();
    for client in &mut clients {
        client.get(egret.address(), "/origin/");
    }
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    wait::until_true("all are idle", || egret.provider_stat("origin", "connections_idle") == IDLE as u64);
    egret.get("/fatal").assert_generated(502, "provider-closed");
    let fatal = origin.requests().iter().filter(|request| request.target() == "/fatal").count();
    assert_eq!((fatal, egret.provider_stat("origin", "repeats")), (2, 1));
}

#[test]
fn a_connection_that_the_provider_closed_while_idle_is_not_used() {
    let origin = Provider::scripted(|peer| {
        if peer.request().is_some() {
            peer.send(ok("bye"));
        }
    });
    let egret = before(&origin);
    for count in 1..=3 {
        let request =
            format!("POST /origin/ HTTP/1.1\r\nHost: {}\r\nContent-Length: 0\r\n\r\n", egret.address());
        egret.client().send(request).response().assert_forwarded(200);
        origin.until_ended(count);
    }
    assert_eq!((origin.connections(), egret.provider_stat("origin", "repeats")), (3, 0));
}

#[test]
fn bodiless_responses_end_where_they_should() {
    let origin = Provider::with_responses(|request| match request.target() {
        "/204" => b"HTTP/1.1 204 No Content\r\n\r\n".to_vec(),
        "/304" => b"HTTP/1.1 304 Not Modified\r\nContent-Length: 100\r\nETag: \"a\"\r\n\r\n".to_vec(),
        _ => b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n".to_vec(),
    });
    let egret = before(&origin);
    let (mut client, own) = (egret.client(), egret.address());
    client.send(format!("HEAD /origin/head HTTP/1.1\r\nHost: {own}\r\n\r\n"));
    assert_eq!(client.response_to("HEAD").assert_forwarded(200).field("content-length"), Some("100"));
    client.get(own, "/origin/204").response().assert_forwarded(204);
    assert_eq!(client.get(own, "/origin/304").response().assert_forwarded(304).field("etag"), Some("\"a\""));
    client.send(format!("HEAD /origin/head HTTP/1.1\r\nHost: {own}\r\n\r\n"));
    client.response_to("HEAD").assert_forwarded(200);
    assert_eq!(origin.connections(), 1);
}

#[test]
fn trailers_on_the_list_pass_both_ways_and_others_do_not() {
    let origin = Provider::responding(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Server-Timing, Set-Cookie\r\n\r\n2;ext=1\r\nhi\r\n0\r\n\
         Server-Timing: a\r\nSet-Cookie: stolen\r\nX-Sum: 1\r\nContent-Length: 5\r\n\r\n",
    );
    let egret = before(&origin);
    let request = format!(
        "POST /origin/ HTTP/1.1\r\nHost: {}\r\nTransfer-Encoding: chunked\r\nTE: trailers\r\n\r\n1;name=\"v\"\r\na\r\n0\r\n\
         X-Checksum: 2\r\nAuthorization: stolen\r\nHost: other\r\n\r\n",
        egret.address()
    );
    let response = egret.client().send(request).response();
    let names = |fields: &[(String, String)]| fields.iter().map(|field| field.0.clone()).collect::<Vec<_>>();
    assert_eq!(response.text(), "hi");
    assert_eq!(names(&response.trailers), ["Server-Timing", "X-Sum"]);
    let received = origin.only_request();
    assert_eq!(
        (received.body.as_slice(), names(&received.trailers)),
        (&b"a"[..], vec!["X-Checksum".to_owned()])
    );
    let raw = String::from_utf8_lossy(&origin.received()).into_owned();
    assert!(!raw.contains("name=") && !raw.contains("stolen"), "{raw}");
}

#[test]
fn a_response_without_length_ends_with_its_connection() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send("HTTP/1.1 200 OK\r\n\r\nuntil the end");
    });
    let egret = before(&origin);
    let mut client = egret.client();
    for _ in 0..2 {
        let response = client.get(egret.address(), "/origin/").response();
        assert_eq!(response.text(), "until the end");
    }
}

#[test]
fn an_http_1_0_provider_is_understood() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.send("HTTP/1.0 200 OK\r\nContent-Length: 3\r\n\r\nold");
    });
    let egret = before(&origin);
    let mut client = egret.client();
    for _ in 0..2 {
        let response = client.get(egret.address(), "/origin/").response();
        assert_eq!((response.text(), response.status_line.as_str()), ("old", "HTTP/1.1 200 OK"));
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn an_empty_line_after_a_body_does_no_harm() {
    let origin = Provider::plain();
    let egret = Config::with_origin(origin.url()).gateway("timeouts: { head: 300ms }").start();
    let (mut client, own) = (egret.client(), egret.address());
    for _ in 0..2 {
        let request = format!("POST /origin/ HTTP/1.1\r\nHost: {own}\r\nContent-Length: 2\r\n\r\nab\r\n");
        client.send(request).response().assert_forwarded(200);
        client.assert_silent(Duration::from_millis(600));
    }
    client.get(own, "/origin/").response().assert_forwarded(200);
    assert_eq!(egret.generated("request-timeout"), 0);
}

#[test]
fn idle_connections_to_a_forgotten_host_are_closed() {
    let together = Arc::new(Barrier::new(2));
    // Both calls are made before either is answered, so each uses memory of its own for what flows decide.
    let hosts = [(); 2].map(|()| {
        let together = Arc::clone(&together);
        Provider::scripted(move |peer| {
            while peer.request().is_some() {
                together.wait();
                peer.send(ok("well"));
            }
        })
    });
    let egret = Config::default()
        .gateway("workers: 1")
        .gateway("limits: { dynamic_upstreams: 1 }")
        .flows("flows: [{ name: all, remedies: [timeout: { total: 1m }] }]\n")
        .start();
    let mut clients = [egret.client(), egret.client()];
    for (client, host) in clients.iter_mut().zip(&hosts) {
        let address = host.address();
        client.send(format!("GET http://{address}/ HTTP/1.1\r\nHost: {address}\r\n\r\n"));
    }
    for client in &mut clients {
        client.response().assert_forwarded(200);
    }
    wait::until_true("one host is left", || egret.provider_stat("-", "connections_open") == 1);
}
