//! The built-in provider injects faults on request: each one as a client sees it on the wire.

use std::time::{Duration, Instant};

use egret_tests::built_in::BuiltIn;
use egret_tests::http::Client;

fn fault(provider: &BuiltIn, kind: &str) -> Client {
    let mut client = provider.client();
    client.get("a", &format!("/fault/{kind}"));
    client
}

#[test]
fn a_reset_comes_instead_of_a_response_or_in_its_midst() {
    let provider = BuiltIn::start(&[]);
    let end = |kind: &str| {
        let client = fault(&provider, kind);
        let mut received = Vec::new();
        let end = std::io::Read::read_to_end(&mut client.stream(), &mut received);
        (received.len(), end.map_err(|error| error.kind()).map(drop))
    };
    assert_eq!(end("reset"), (0, Err(std::io::ErrorKind::ConnectionReset)));
    assert_eq!(end("close"), (0, Ok(())));
    assert_eq!(end("close?after=20"), (20, Ok(())));
    let (received, end) = end("reset?after=20");
    assert!(received <= 20 && end == Err(std::io::ErrorKind::ConnectionReset), "{received} {end:?}");
}

#[test]
fn half_a_connection_is_closed_and_the_other_half_read() {
    let provider = BuiltIn::start(&[]);
    let mut client = fault(&provider, "half-close?duration=10s");
    let response = client.response();
    assert_eq!(response.status, 200);
    client.assert_closed();
    client.send("what is sent now is read, and so nothing is reset");
    client.assert_closed();
}

#[test]
fn content_ends_early_or_rests_before_it_does() {
    let provider = BuiltIn::start(&[]);
    let cut = fault(&provider, "truncate").any_response_to("GET");
    let length: usize = cut.field("content-length").unwrap().parse().unwrap();
    assert!(cut.cut && cut.body.len() == length / 2, "{cut:?}");
    let started = Instant::now();
    let stalled = fault(&provider, "stall?duration=100ms").any_response_to("GET");
    assert!(stalled.cut && started.elapsed() >= Duration::from_millis(100));
}

#[test]
fn a_wrong_length_leaves_bytes_like_a_response() {
    let provider = BuiltIn::start(&[]);
    let mut client = fault(&provider, "wrong-length");
    let first = client.response();
    let surplus = client.bytes(first.body.len());
    assert!(surplus.ends_with(b"}\n"), "{surplus:?}");
    assert_eq!(client.get("a", "/get").response().status, 200, "the connection lives on");
}

#[test]
fn a_chunk_has_no_size() {
    let provider = BuiltIn::start(&[]);
    let mut client = fault(&provider, "bad-chunk");
    let head = client.head();
    assert_eq!((head.field("transfer-encoding"), head.field("content-length")), (Some("chunked"), None));
    let rest = String::from_utf8(client.rest()).unwrap();
    assert!(rest.contains("\r\nsize\r\n"), "{rest}");
}

#[test]
fn informational_responses_come_before_the_real_one() {
    let provider = BuiltIn::start(&[]);
    let mut client = fault(&provider, "informational?count=3&status=102");
    let statuses: Vec<u16> = (0..4).map(|_| client.response().status).collect();
    assert_eq!(statuses, [102, 102, 102, 200]);
    assert_eq!(client.get("a", "/get").response().status, 200, "the connection lives on");
}

#[test]
fn a_field_comes_twice() {
    let provider = BuiltIn::start(&[]);
    let twice = fault(&provider, "duplicate-field").response();
    assert_eq!(twice.values("x-duplicate"), ["1", "2"]);
    let mut client = fault(&provider, "duplicate-field?field=content-length&value=1");
    let head = client.head();
    assert_eq!(head.values("content-length").len(), 2);
    assert_eq!(head.values("content-length")[1], "1");
}

#[test]
fn a_head_comes_byte_by_byte() {
    let provider = BuiltIn::start(&["--max-duration", "1h"]);
    // The next byte is minutes away.
    assert_eq!(fault(&provider, "slow-head?duration=1h").bytes(1), b"H");
    let started = Instant::now();
    let whole = fault(&provider, "slow-head?duration=100ms").response();
    assert!(whole.status == 200 && started.elapsed() >= Duration::from_millis(100));
}

#[test]
fn the_garbage_fault_sends_no_http() {
    let provider = BuiltIn::start(&[]);
    let garbage = fault(&provider, "garbage").rest();
    assert!(!garbage.is_empty() && !garbage.starts_with(b"HTTP/"));
}

#[test]
fn an_unknown_fault_is_refused_with_the_known_names() {
    let provider = BuiltIn::start(&[]);
    for target in [
        "/fault/resett",
        "/fault/reset?after=x",
        "/fault/informational?status=101",
        "/fault/informational?count=0",
        "/fault/stall?duration=11",
        "/fault/duplicate-field?field=%20",
    ] {
        let refused = provider.get(target);
        assert_eq!((refused.status, refused.json()["status_code"].as_u64()), (400, Some(400)), "{target}");
    }
    assert!(provider.get("/fault/x").text().contains("half-close"));
    assert_eq!(provider.counters()["faults"], serde_json::json!({}), "a refusal is no fault");
}

#[test]
fn faults_strike_any_response_with_their_probability() {
    let provider = BuiltIn::start(&["--seed", "1", "--fault", "close=0.2", "--fault", "informational=0.3"]);
    let mut seen = [0; 3];
    for _ in 0..200 {
        let mut client = provider.client();
        client.send("GET /get HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let received = client.rest();
        let kind = match &received[..] {
            [] => 0,
            bytes if bytes.starts_with(b"HTTP/1.1 103") => 1,
            _ => 2,
        };
        seen[kind] += 1;
    }
    assert!((20..60).contains(&seen[0]) && (40..80).contains(&seen[1]), "{seen:?}");
    let counted = provider.counters();
    assert_eq!((&counted["faults"]["close"], &counted["requests"]), (&seen[0].into(), &200.into()));
}

#[test]
fn the_command_line_says_what_is_wrong_with_it() {
    for (arguments, received) in [
        (["--fault", "resett=1"], "half-close"),
        (["--fault", "reset=2"], "from 0 to 1"),
        (["--fault", "reset"], "KIND=PROBABILITY"),
        (["--delay", "gamma:1s"], "lognormal"),
        (["--rate-limit", "5"], "100/1s"),
        (["--prefix", "v1/"], "slash"),
        (["--har", "/no/such.har"], "/no/such.har"),
        (["--bandwidth", "0B"], "at least"),
    ] {
        let mut command = egret_tests::egret::egret(["provider", "--listen", "127.0.0.1:0"]);
        let output = egret_tests::process::run(command.args(arguments));
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(stderr.contains(received), "{arguments:?}: {stderr}");
    }
}
