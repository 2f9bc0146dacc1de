//! `egret bench --http2`: streams instead of connections, by prior knowledge and over TLS.

use egret_tests::bench::{bench, count, summary};
use egret_tests::built_in::BuiltIn;
use egret_tests::closed_port::ClosedPort;
use egret_tests::http2::{Http2Peer, Http2Provider};
use egret_tests::intercepted::SecureProvider;
use egret_tests::process::Directory;
use egret_tests::provider::Provider;

/// The error code `REFUSED_STREAM` (RFC 9113 §7).
const REFUSED_STREAM: u32 = 7;

/// Responds to all further requests.
fn respond_to_all(peer: &mut Http2Peer) {
    while let Some(stream) = peer.request() {
        peer.respond(stream, "ok");
    }
}

#[test]
fn streams_of_few_connections_carry_all_requests() {
    let provider = BuiltIn::start(&[]);
    let url = format!("http://{}/bytes/3000?seed=1", provider.address());
    let result = summary(&["--http2", "-c", "2", "-m", "5", "-n", "200", "--check-status", "200", &url]);
    assert_eq!((count(&result, "/requests"), count(&result, "/failed")), (200, 0), "{result:#}");
    assert_eq!((count(&result, "/concurrency"), count(&result, "/streams")), (10, 5));
    assert_eq!((&result["protocol"], count(&result, "/bytes_body")), (&"HTTP/2".into(), 600_000));
    assert!(count(&result, "/bytes_received") > 600_000 && count(&result, "/bytes_sent") > 0);
    assert_eq!(provider.counters()["requests"], 200);
    let ran = bench(&["-q", "--http2", "-c", "2", "-m", "5", "-n", "20", &url]).well();
    assert_eq!((ran.value("Protocol:"), ran.value("Streams per Connection:")), ("HTTP/2", "5"));
    assert_eq!((ran.value("Concurrency Level:"), ran.value("Complete requests:")), ("10", "20"));
}

#[test]
fn each_connection_carries_as_many_streams_as_asked_for() {
    let provider = Http2Provider::scripted(|peer| {
        // Nothing is answered until all streams of the connection are open.
        let open: Vec<_> = (0..5).map_while(|_| peer.request()).collect();
        for stream in open {
            peer.respond(stream, "ok");
        }
        respond_to_all(peer);
    });
    let result = summary(&["--http2", "-c", "2", "-m", "5", "-n", "40", &provider.url()]);
    assert_eq!((count(&result, "/requests"), count(&result, "/failed")), (40, 0), "{result:#}");
    assert_eq!((provider.accepted(), provider.connections()), (2, 2));
}

#[test]
fn https_targets_negotiate_it() {
    let provider = BuiltIn::start(&["--tls"]);
    let ca = provider.directory().path().join("egret-data/provider-ca.pem").display().to_string();
    let url = format!("https://{}/status/200", provider.address());
    let result = summary(&["--http2", "-m", "3", "-c", "2", "-n", "30", "--cacert", &ca, &url]);
    assert_eq!((count(&result, "/failed"), count(&result, "/statuses/200")), (0, 30), "{result:#}");
}

#[test]
fn targets_of_another_protocol_fail_with_the_reason() {
    let plain = Provider::plain();
    let secure = SecureProvider::before(&plain.url());
    let directory = Directory::default();
    let ca = directory.write("ca.pem", secure.authority().certificate()).display().to_string();
    let url = format!("{}/", secure.url());
    let ran = bench(&["-q", "--http2", "-n", "3", "--cacert", &ca, &url]);
    assert_eq!((ran.code, ran.value("Failed requests:")), (1, "3"), "{}", ran.printed);
    // nginx ends the handshake. A server without ALPN completes it.
    assert!(ran.printed.contains("NoApplicationProtocol"), "{}", ran.printed);
    assert_eq!(plain.requests().len(), 0);
    let ran = bench(&["-q", "--http2", "-n", "3", &plain.url()]);
    assert_eq!((ran.code, ran.value("Failed requests:")), (1, "3"), "{}", ran.printed);
}

#[test]
fn the_open_model_counts_from_the_due_time() {
    let provider = BuiltIn::start(&["--delay", "20ms"]);
    let url = format!("http://{}/status/200", provider.address());
    // One stream takes at least 20 ms for each request, and ten are due in 100 ms: the last one waits.
    let result = summary(&["--http2", "-m", "1", "--rate", "100", "-n", "10", &url]);
    assert_eq!((count(&result, "/requests"), count(&result, "/failed")), (10, 0), "{result:#}");
    assert!(count(&result, "/latency_us/min") >= 20_000, "{result:#}");
    assert!(count(&result, "/latency_us/max") >= 10 * 20_000 - 90_000, "{result:#}");
}

#[test]
fn bodies_are_sent_within_the_windows_of_the_target() {
    let (provider, directory) = (BuiltIn::start(&["--max-body-size", "8MiB"]), Directory::default());
    let body = directory.write("body", vec![b'x'; 3 << 20]).display().to_string();
    let url = format!("http://{}/upload", provider.address());
    let sent = ["--http2", "-m", "4", "-n", "8", "-p", &body, "--check-body", "3145728", "-l", &url];
    let result = summary(&sent);
    assert_eq!((count(&result, "/failed"), count(&result, "/statuses/200")), (0, 8), "{result:#}");
}

#[test]
fn streams_of_an_ended_connection_move_to_one_next_connection() {
    let provider = Http2Provider::scripted(|peer| {
        if peer.number < 3 {
            let open: Vec<_> = (0..4).map_while(|_| peer.request()).collect();
            let Some(first) = open.first() else { return };
            peer.go_away(*first);
            peer.respond(*first, "ok");
            // A socket that is closed with unread bytes would reset the connection.
            while peer.receive().is_some() {}
            return;
        }
        respond_to_all(peer);
    });
    let ran = bench(&["-q", "--http2", "-m", "4", "-n", "40", &provider.url()]).well();
    assert_eq!((ran.value("Complete requests:"), ran.value("Failed requests:")), ("40", "0"));
    let sent_again = "requests were sent again because the target had refused or not processed their streams";
    assert!(ran.printed.contains(sent_again), "{}", ran.printed);
    assert_eq!((provider.accepted(), provider.connections()), (4, 4));
}

#[test]
fn refused_streams_are_sent_again_on_the_same_connection() {
    let provider = Http2Provider::scripted(|peer| {
        for _ in 0..3 {
            let Some(stream) = peer.request() else { return };
            peer.reset(stream, REFUSED_STREAM);
        }
        respond_to_all(peer);
    });
    let ran = bench(&["-q", "--http2", "-m", "2", "-n", "10", &provider.url()]).well();
    assert_eq!((ran.value("Complete requests:"), ran.value("Failed requests:")), ("10", "0"));
    assert!(ran.printed.contains("3 requests were sent again because the target had"), "{}", ran.printed);
    assert_eq!((provider.requests(), provider.accepted()), (13, 1));
}

#[test]
fn streams_without_a_connection_are_one_failure_to_connect() {
    let closed = ClosedPort::take();
    let url = format!("http://{}/", closed.address());
    // A run ends after ten connections in a row that cannot be opened. These are one.
    let ran = bench(&["-q", "--http2", "-m", "50", "-n", "50", &url]);
    assert_eq!((ran.code, ran.value("Failed requests:")), (1, "50"), "{}", ran.printed);
}

#[test]
fn streams_that_are_cut_count_as_failed() {
    let provider = BuiltIn::start(&[]);
    let url = |fault: &str| format!("http://{}/fault/{fault}", provider.address());
    for fault in ["reset", "close", "truncate"] {
        let ran = bench(&["-q", "--http2", "-n", "3", &url(fault)]);
        assert_eq!((ran.code, ran.value("Failed requests:")), (1, "3"), "{fault}: {}", ran.printed);
    }
}

#[test]
fn options_that_do_not_fit_are_refused() {
    for (arguments, reason) in [
        (&["--http2", "-m", "0", "http://127.0.0.1:9/"][..], "1000 streams"),
        (&["--http2", "-m", "99999999999999999999999", "http://127.0.0.1:9/"], "1000 streams"),
        (&["--http2", "-H", "Connection: close", "http://127.0.0.1:9/"], "no fields about the connection"),
        (&["--http2", "-H", "te: gzip", "http://127.0.0.1:9/"], "no fields about the connection"),
        (&["--http2", "-c", "1000", "-n", "1000", "-m", "100", "http://127.0.0.1:9/"], "-c times -m"),
        (&["--http2", "-X", "127.0.0.1:9", "http://127.0.0.1:9/"], "tunnel"),
        (&["--http2", "--ab-compat", "http://127.0.0.1:9/"], "cannot be used with"),
        (&["-m", "5", "http://127.0.0.1:9/"], "not a method"),
    ] {
        let ran = bench(arguments);
        assert!(ran.code == 2 && ran.stderr.contains(reason), "{arguments:?}: {}", ran.stderr);
    }
}
