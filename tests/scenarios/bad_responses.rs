//! Providers are not trusted either: an invalid response becomes a 502 and never reaches the client.

use std::fmt::Write as _;
use std::sync::Arc;

use egret_tests::egret::{Config, Egret};
use egret_tests::provider::Provider;
use egret_tests::wait::Watched;

/// Marks bytes that must not reach the client or the log.
const MARK: &str = "m4rkedbytes";

/// Starts a provider that sends these bytes in response to every request, and closes.
fn responding_once(response: String) -> Provider {
    Provider::scripted(move |peer| {
        let _ = peer.request();
        peer.send(&response);
    })
}

fn assert_bad(name: &str, response: String, egret: &Egret) {
    let origin = responding_once(response);
    let mut client = egret.client();
    client.send(format!("GET http://{}/ HTTP/1.1\r\nHost: a\r\n\r\n", origin.address()));
    let response = client.any_response_to("GET");
    assert_eq!(
        (response.status, response.field("x-egret-error")),
        (502, Some("bad-response")),
        "{name}: {response:?}"
    );
    response.assert_generated(502, "bad-response");
    assert!(!format!("{response:?}{}", response.text()).contains(MARK), "{name}: {response:?}");
    origin.until_ended(1);
}

#[test]
fn malformed_heads() {
    let egret = Config::default().start();
    let with = |field: &str| format!("HTTP/1.1 200 OK\r\n{field}\r\nContent-Length: 11\r\n\r\n{MARK}");
    let rows: Vec<(&str, String)> = vec![
        ("not HTTP", format!("SSH-2.0-{MARK}\r\n\r\n")),
        ("HTTP/0.9", format!("<html>{MARK}</html>\r\n\r\n")),
        ("another version", format!("HTTP/2.0 200 OK\r\nContent-Length: 11\r\n\r\n{MARK}")),
        ("a status below 100", format!("HTTP/1.1 099 OK\r\nContent-Length: 11\r\n\r\n{MARK}")),
        ("a status of two digits", format!("HTTP/1.1 20 OK\r\nContent-Length: 11\r\n\r\n{MARK}")),
        ("a status of four digits", format!("HTTP/1.1 2000 OK\r\nContent-Length: 11\r\n\r\n{MARK}")),
        ("a status that is no number", format!("HTTP/1.1 2x0 OK\r\nContent-Length: 11\r\n\r\n{MARK}")),
        ("NUL in a value", with(&format!("A: \0{MARK}"))),
        ("bare CR in a value", with(&format!("A: b\r{MARK}"))),
        ("bare CR that would split the response", with(&format!("A: b\rSet-Cookie: {MARK}"))),
        ("bare LF", format!("HTTP/1.1 200 OK\nContent-Length: 11\n\n{MARK}")),
        ("an empty field name", with(&format!(": {MARK}"))),
        ("space before the colon", with(&format!("A : {MARK}"))),
        ("a line without colon", with(MARK)),
        ("NUL in the reason", format!("HTTP/1.1 200 O\0{MARK}\r\nContent-Length: 0\r\n\r\n")),
        ("an invalid length", format!("HTTP/1.1 200 OK\r\nContent-Length: 11x\r\n\r\n{MARK}")),
        ("a negative length", format!("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n{MARK}")),
        ("an empty length", format!("HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n{MARK}")),
        (
            "lengths that differ",
            format!("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 11\r\n\r\n{MARK}"),
        ),
        (
            "a length and chunks",
            format!(
                "HTTP/1.1 200 OK\r\nContent-Length: 11\r\nTransfer-Encoding: chunked\r\n\r\nb\r\n{MARK}\r\n0\r\n\r\n"
            ),
        ),
        ("an unknown coding", format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: xchunked\r\n\r\n{MARK}")),
        (
            "chunked twice",
            format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, chunked\r\n\r\nb\r\n{MARK}\r\n0\r\n\r\n"),
        ),
    ];
    for (name, response) in rows {
        assert_bad(name, response, &egret);
    }
    assert!(!egret.log().contains(MARK), "raw bytes are in the log: {}", egret.log());
    egret.assert_well();
}

#[test]
fn a_folded_field_is_unfolded_and_never_forwarded_raw() {
    let origin = responding_once("HTTP/1.1 200 OK\r\nA: b\r\n c\r\nContent-Length: 2\r\n\r\nhi".to_owned());
    let egret = Config::with_origin(origin.url()).start();
    let response = egret.get("/");
    if response.status == 200 {
        assert_eq!(response.field("a").unwrap().split_whitespace().collect::<Vec<_>>(), ["b", "c"]);
    } else {
        response.assert_generated(502, "bad-response");
    }
}

#[test]
fn heads_too_large_and_heads_without_end() {
    let egret = Config::default().start();
    let before = egret.process().resident_bytes();
    let long = "a".repeat(1 << 20);
    let mut many = "HTTP/1.1 200 OK\r\n".to_owned();
    for number in 0..100_000 {
        write!(many, "X-{number}: {MARK}\r\n").unwrap();
    }
    for (name, response) in [
        ("100,000 fields", format!("{many}\r\n")),
        ("100,000 fields and no end", many),
        ("a line of 1 MiB", format!("HTTP/1.1 200 OK\r\nX: {long}\r\n\r\n")),
        ("a reason of 1 MiB", format!("HTTP/1.1 200 {long}\r\nContent-Length: 0\r\n\r\n")),
        ("a line of 1 MiB and no end", format!("HTTP/1.1 200 OK\r\nX: {long}")),
        ("no line at all", long),
    ] {
        assert_bad(name, response, &egret);
    }
    let growth = egret.process().resident_bytes_max().saturating_sub(before);
    assert!(growth < 8 << 20, "{} KiB", growth >> 10);
    egret.assert_well();
}

#[test]
fn informational_responses_without_end_are_a_502() {
    let origin = Provider::scripted(|peer| {
        let _ = peer.request();
        while peer.send("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n") {}
    });
    let egret = Config::with_origin(origin.url()).start();
    let mut client = egret.client();
    client.get(egret.address(), "/origin/");
    let mut informational = 0;
    let last = loop {
        match client.any_response_to("GET") {
            response if response.status == 103 => informational += 1,
            response => break response,
        }
    };
    last.assert_generated(502, "bad-response");
    assert!(informational <= 16, "{informational} informational responses passed");
    origin.until_ended(1);
}

#[test]
fn a_provider_that_closes_or_resets_before_a_response_is_a_502() {
    let silent = Provider::scripted(|peer| {
        let _ = peer.request();
    });
    let resetting = Provider::scripted(|peer| {
        let _ = peer.request();
        peer.reset();
    });
    let midway = responding_once("HTTP/1.1 200 OK\r\nContent-Le".to_owned());
    let config = Config::with_origin(silent.url())
        .provider("resetting", resetting.url())
        .provider("midway", midway.url());
    let egret = config.start();
    for provider in ["origin", "resetting", "midway"] {
        let response = egret.client().get(egret.address(), &format!("/{provider}/")).response();
        response.assert_generated(502, "provider-closed");
    }
    egret.assert_well();
}

#[test]
fn stray_bytes_after_a_response_are_never_a_response() {
    let origin = Provider::responding(
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngoodHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    );
    let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
    let mut client = egret.client();
    for count in 1..=3 {
        assert_eq!(client.get(egret.address(), "/origin/").response().text(), "good");
        origin.until_ended(count);
    }
    assert_eq!(origin.connections(), 3, "the connection is not reused");
}

#[test]
fn a_premature_response_is_never_used() {
    let unasked = Arc::new(Watched::<usize>::default());
    let counted = Arc::clone(&unasked);
    let origin = Provider::scripted(move |peer| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil");
            counted.change(|count| *count += 1);
            peer.stall();
        }
    });
    let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
    for number in 1..=3 {
        assert_eq!(egret.get("/").text(), "good");
        // Bytes that arrive after the request was sent look like its response; these arrive before.
        unasked.until("the unsolicited response is sent", |count| (*count == number).then_some(()));
    }
    assert_eq!(origin.connections(), 3);
}

#[test]
fn a_bodiless_response_with_a_body_is_not_followed_by_it() {
    let origin = Provider::responding(
        "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
    );
    let egret = Config::with_origin(origin.url()).gateway("workers: 1").start();
    let mut client = egret.client();
    for _ in 0..2 {
        client.get(egret.address(), "/origin/").response().assert_forwarded(204);
    }
    assert_eq!(origin.connections(), 2);
}

#[test]
fn a_provider_cannot_pass_off_its_response_as_the_gateways() {
    let origin = Provider::responding(
        "HTTP/1.1 200 OK\r\nx-egret-generated: true\r\nX-Egret-Error: made-up\r\nProxy-Status: egret; error=x\r\n\
         X-Other: 1\r\nContent-Length: 0\r\n\r\n",
    );
    let egret = Config::with_origin(origin.url()).start();
    let response = egret.get("/");
    for name in ["x-egret-generated", "x-egret-error", "proxy-status"] {
        assert_eq!(response.field(name), None, "{response:?}");
    }
    assert_eq!(response.field("x-other"), Some("1"));
}
