//! Tests of the provider embedded in another program, for behaviour that a separate process cannot show.
#![expect(clippy::unwrap_used, reason = "a test that cannot talk to the provider has failed")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use egret_provider::{Options, Provider, StartError};

fn start(options: Options) -> Provider {
    Provider::start(SocketAddr::from(([127, 0, 0, 1], 0)), options).unwrap()
}

fn connect(provider: &Provider) -> TcpStream {
    let stream = TcpStream::connect(provider.address()).unwrap();
    stream.set_read_timeout(Some(Duration::from_mins(4))).unwrap();
    stream
}

/// Sends requests and returns everything received until the provider closes.
fn exchange(provider: &Provider, requests: &str) -> String {
    let mut stream = connect(provider);
    stream.write_all(requests.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn one_connection_carries_many_exchanges() {
    let provider = start(Options::default());
    let last = "GET /status/404 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let text = exchange(&provider, &format!("GET /status/204 HTTP/1.1\r\nhost: a\r\n\r\n{last}"));
    assert_eq!(text.matches("HTTP/1.1 ").count(), 2, "{text}");
}

#[test]
fn pipelined_requests_survive_a_taken_over_response() {
    let provider = start(Options::default());
    let spoiled = "GET /fault/informational HTTP/1.1\r\nhost: a\r\n\r\n";
    let last = "GET /status/204 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
    let text = exchange(&provider, &format!("{spoiled}{spoiled}{last}"));
    let statuses: Vec<&str> = text.split("HTTP/1.1 ").skip(1).map(|response| &response[..3]).collect();
    assert_eq!(statuses, ["103", "200", "103", "200", "204"], "{text}");
}

#[test]
fn a_client_of_http_1_0_gets_neither_chunks_nor_informational_responses() {
    let provider = start(Options::default());
    for (target, end) in
        [("/sse?count=2&duration=1ms", "}\n\n"), ("/status/103", "\r\n\r\n"), ("/trailers?a=1", "}\n")]
    {
        let text = exchange(&provider, &format!("GET {target} HTTP/1.0\r\nhost: a\r\n\r\n"));
        assert!(text.starts_with("HTTP/1.0 200") && text.ends_with(end), "{text}");
        assert!(!text.contains("chunked") && text.matches("HTTP/1.").count() == 1, "{text}");
    }
}

#[test]
fn a_stopped_provider_frees_its_port_though_responses_are_under_way() {
    for threads in [1, 3] {
        let duration_max = Duration::from_hours(1);
        // No other test listens at this address, and so gets the port that is freed.
        let own = SocketAddr::from(([127, 0, 0, 3], 0));
        let provider = Provider::start(own, Options { threads, duration_max, ..Options::default() }).unwrap();
        let address = provider.address();
        let mut streams: Vec<TcpStream> = (0..4).map(|_| connect(&provider)).collect();
        for stream in &mut streams {
            stream.write_all(b"GET /delay/3600 HTTP/1.1\r\nhost: a\r\n\r\n").unwrap();
        }
        // A response on another connection shows that the earlier connections have been accepted.
        let request = "GET /status/200 HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n";
        assert!(exchange(&provider, request).starts_with("HTTP/1.1 200"));
        let (tell, stopped) = mpsc::channel();
        thread::spawn(move || {
            provider.stop();
            tell.send(())
        });
        assert!(stopped.recv_timeout(Duration::from_mins(1)).is_ok(), "it waits for responses");
        assert!(TcpStream::connect(address).is_err());
    }
}

#[test]
fn a_response_that_is_soon_done_is_let_end() {
    // On a busy machine the provider may get no time within its second of grace. Such a run shows nothing.
    let is_let_end = || {
        let provider = start(Options::default());
        let mut stream = connect(&provider);
        let drip = b"GET /drip?duration=300ms&delay=0&numbytes=3 HTTP/1.1\r\nhost: a\r\n\r\n";
        stream.write_all(drip).unwrap();
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        let stopping = Instant::now();
        provider.stop();
        let took = stopping.elapsed();
        let mut rest = String::new();
        stream.read_to_string(&mut rest).unwrap();
        let is_whole = rest.ends_with("***");
        assert!(is_whole || took >= Duration::from_secs(1), "after {took:?}: {rest}");
        is_whole
    };
    assert!((0..5).any(|_| is_let_end()), "it is cut");
}

#[test]
fn a_failed_start_says_why() {
    let provider = start(Options::default());
    let taken = Provider::start(provider.address(), Options::default());
    assert!(matches!(taken, Err(StartError::Listen(_))), "{taken:?}");
    let options = Options { tls: Some("/dev/null/ca.pem".into()), ..Options::default() };
    let unwritable = Provider::start(SocketAddr::from(([127, 0, 0, 1], 0)), options);
    assert!(matches!(unwritable, Err(StartError::Tls { .. })), "{unwritable:?}");
}
