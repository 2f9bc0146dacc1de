//! Malformed requests: rejected with a matching status code, the connection closed, nothing forwarded, no raw
//! bytes logged.

use std::fmt::Write as _;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::{Client, find};
use egret_tests::provider::Provider;

/// Part of every request of the tables; it must not reach a provider or a log.
const MARK: &str = "m4rkedbytes";

/// Sends a request and asserts that it is rejected without being forwarded.
fn assert_refused(egret: &Egret, origin: &Provider, name: &str, request: &[u8], status: u16, slug: &str) {
    let mut client = egret.client();
    let response = client.offer(request).any_response_to("GET");
    assert_eq!(
        (response.status, response.field("x-egret-error")),
        (status, Some(slug)),
        "{name}: {response:?}"
    );
    response.assert_generated(status, slug);
    client.assert_closed();
    assert!(!response.text().contains(MARK), "{name}: the answer repeats what was sent: {}", response.text());
    let received = origin.received();
    assert!(received.is_empty(), "{name}: forwarded: {:?}", String::from_utf8_lossy(&received));
}

/// Asserts that the log contains no raw bytes and that the next connection works.
fn assert_unharmed(egret: &Egret, origin: &Provider) {
    assert!(!egret.log().contains(MARK), "raw bytes are in the log: {}", egret.log());
    egret.get("/after").assert_forwarded(200);
    assert_eq!(origin.only_request().target(), "/after");
    egret.assert_well();
}

fn gateway(origin: &Provider) -> Egret {
    Config::with_origin(origin.url()).gateway("access_log: { output: access.log }").start()
}

#[test]
fn malformed_heads() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let own = egret.address();
    let get = format!("GET /origin/{MARK} HTTP/1.1\r\n");
    let host = format!("Host: {own}\r\n");
    // Returns a head with these lines after Host, and one with these lines only.
    let with = |lines: &str| format!("{get}{host}{lines}\r\n\r\n").into_bytes();
    let raw = |text: &str| text.replace("HOST", &own.to_string()).replace("MARK", MARK).into_bytes();
    let bad: Vec<(&str, Vec<u8>)> = vec![
        ("bare LF after the request line", raw("GET /origin/MARK HTTP/1.1\nHost: HOST\r\n\r\n")),
        ("bare LF after a field", raw("GET /origin/MARK HTTP/1.1\r\nHost: HOST\nA: b\r\n\r\n")),
        ("bare LF as the end of the head", raw("GET /origin/MARK HTTP/1.1\r\nHost: HOST\r\n\n")),
        ("bare LF throughout", raw("GET /origin/MARK HTTP/1.1\nHost: HOST\n\n")),
        ("bare LF before the request line", raw("\nGET /origin/MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        (
            "two empty lines before the request line",
            raw("\r\n\r\nGET /origin/MARK HTTP/1.1\r\nHost: HOST\r\n\r\n"),
        ),
        ("bare CR in a value", with(&format!("A: b\r{MARK}"))),
        ("bare CR as line end", raw("GET /origin/MARK HTTP/1.1\rHost: HOST\r\r")),
        ("CR CR LF", raw("GET /origin/MARK HTTP/1.1\r\r\nHost: HOST\r\n\r\n")),
        ("NUL in a value", with(&format!("A: {MARK}\0"))),
        ("a control byte in a value", with(&format!("A: {MARK}\x01"))),
        ("DEL in a value", with(&format!("A: {MARK}\x7f"))),
        ("NUL in a name", with(&format!("A\0{MARK}: b"))),
        ("NUL in the target", raw("GET /origin/\0MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("white space before the first field", format!("{get} {host}\r\n").into_bytes()),
        ("a tab before the first field", format!("{get}\t{host}\r\n").into_bytes()),
        ("space between name and colon", with(&format!("A : {MARK}"))),
        ("a tab between name and colon", with(&format!("A\t: {MARK}"))),
        ("a folded field", with(&format!("A: b\r\n {MARK}"))),
        ("a field folded by a tab", with(&format!("A: b\r\n\t{MARK}"))),
        ("an empty field name", with(&format!(": {MARK}"))),
        ("a line without colon", with(MARK)),
        ("a name that is no token", with(&format!("A({MARK}): b"))),
        ("a name beyond ASCII", with(&format!("\u{c4}{MARK}: b"))),
        ("no Host", format!("{get}\r\n").into_bytes()),
        ("two Hosts", format!("{get}{host}{host}\r\n").into_bytes()),
        ("two Hosts that differ", format!("{get}{host}Host: {MARK}\r\n\r\n").into_bytes()),
        ("an empty Host", format!("{get}Host:\r\n\r\n").into_bytes()),
        ("a Host with a path", format!("{get}Host: a/{MARK}\r\n\r\n").into_bytes()),
        ("a Host with user information", format!("{get}Host: {MARK}@a\r\n\r\n").into_bytes()),
        ("a Host with a space", format!("{get}Host: a {MARK}\r\n\r\n").into_bytes()),
        ("a Host list", format!("{get}Host: a, {MARK}\r\n\r\n").into_bytes()),
        ("a Host with a port that is none", format!("{get}Host: a:8o\r\n\r\n").into_bytes()),
        ("two spaces after the method", raw("GET  /origin/MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("two spaces before the version", raw("GET /origin/MARK  HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("a tab in the request line", raw("GET\t/origin/MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("a space at the end of the request line", raw("GET /origin/MARK HTTP/1.1 \r\nHost: HOST\r\n\r\n")),
        ("a space in the target", raw("GET /origin/MARK x HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("a space before the method", raw(" GET /origin/MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("quotes in the target", raw("GET /origin/\"MARK\" HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("angle brackets in the target", raw("GET /origin/<MARK> HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("a pipe in the target", raw("GET /origin/|MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("a backslash in the target", raw("GET /origin/\\MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("a fragment in the target", raw("GET /origin/#MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("a target beyond ASCII", raw("GET /origin/\u{e4}MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("a target without a slash", raw("GET origin/MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("an empty target", raw("GET  HTTP/1.1\r\nHost: HOST\r\nA: MARK\r\n\r\n")),
        ("an asterisk for another method", raw("GET * HTTP/1.1\r\nHost: HOST\r\nA: MARK\r\n\r\n")),
        (
            "user information in the target",
            raw("GET http://MARK@HOST/origin/ HTTP/1.1\r\nHost: HOST\r\n\r\n"),
        ),
        (
            "an absolute-form target without host",
            raw("GET http:///origin/MARK HTTP/1.1\r\nHost: HOST\r\n\r\n"),
        ),
        ("a method that is no token", raw("G(T /origin/MARK HTTP/1.1\r\nHost: HOST\r\n\r\n")),
        ("HTTP/0.9", raw("GET /origin/MARK\r\n\r\n")),
        ("a version in lower case", raw("GET /origin/MARK http/1.1\r\nHost: HOST\r\n\r\n")),
        ("TLS on the plain port", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03m4rkedbytes\r\n\r\n".to_vec()),
    ];
    for (name, request) in bad {
        assert_refused(&egret, &origin, name, &request, 400, "bad-request");
    }
    let unsupported = raw("GET /origin/MARK HTTP/1.2\r\nHost: HOST\r\n\r\n");
    assert_refused(&egret, &origin, "HTTP/1.2", &unsupported, 505, "version-not-supported");
    let in_place = raw("GET /origin/MARK HTTP/2.0\r\nHost: HOST\r\n\r\n");
    assert_refused(&egret, &origin, "HTTP/2 without its preface", &in_place, 505, "version-not-supported");
    assert_unharmed(&egret, &origin);
}

#[test]
fn ambiguous_framing() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let own = egret.address();
    let post = |version: &str, fields: &str, body: &str| {
        format!("POST /origin/{MARK} HTTP/{version}\r\nHost: {own}\r\n{fields}\r\n{body}").into_bytes()
    };
    let chunks = "5\r\nm4rke\r\n0\r\n\r\n";
    let smuggled = "0\r\n\r\nGET /origin/m4rkedbytes HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut bad: Vec<(String, Vec<u8>)> = Vec::new();
    for length in [
        "",
        "+5",
        "-5",
        "5 5",
        "5,5",
        "5, 5",
        "0x5",
        "5_0",
        "5.0",
        "5e0",
        "\u{665}",
        "1\u{a0}",
        "five",
        ",5",
        "18446744073709551616",
        "99999999999999999999",
        "00000000000000000000005",
    ] {
        bad.push((
            format!("Content-Length: {length:?}"),
            post("1.1", &format!("Content-Length: {length}\r\n"), "m4rke"),
        ));
    }
    for fields in [
        "Content-Length: 5\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length:\r\nContent-Length: 5\r\n",
    ] {
        bad.push((format!("{fields:?}"), post("1.1", fields, "m4rke")));
    }
    for fields in [
        "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 50\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: ,chunked\r\n",
        "Transfer-Encoding: chunked,\r\n",
        "Transfer-Encoding: chunked;a=b\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: \"chunked\"\r\n",
        "Transfer-Encoding:\r\n",
        "Transfer-Encoding: chunked\0\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding : chunked\r\n",
    ] {
        bad.push((format!("{fields:?}"), post("1.1", fields, smuggled)));
    }
    bad.push(("chunked in HTTP/1.0".to_owned(), post("1.0", "Transfer-Encoding: chunked\r\n", chunks)));
    for (name, request) in bad {
        assert_refused(&egret, &origin, &name, &request, 400, "bad-request");
    }
    // Well-formed codings that are not supported: 501 if nothing else is wrong with them, 400 otherwise.
    for coding in ["gzip, chunked", "xchunked", "identity", "gzip"] {
        let mut client = egret.client();
        let response =
            client.offer(post("1.1", &format!("Transfer-Encoding: {coding}\r\n"), smuggled)).response();
        assert!(matches!(response.status, 400 | 501), "{coding}: {response:?}");
        response.assert_generated(
            response.status,
            if response.status == 400 { "bad-request" } else { "not-implemented" },
        );
        client.assert_closed();
    }
    assert_unharmed(&egret, &origin);
}

#[test]
fn malformed_chunks_never_become_a_whole_request() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let own = egret.address();
    let bad = [
        "\r\nm4rkedbytes",
        "\n0\r\n\r\n",
        "5\nm4rke\r\n0\r\n\r\n",
        "5\r\nm4rke\n0\r\n\r\n",
        "5\r\nm4rkeX\r\n0\r\n\r\n",
        "5\r\nm4rkedbytes\r\n0\r\n\r\n",
        "0x5\r\nm4rke\r\n0\r\n\r\n",
        "+5\r\nm4rke\r\n0\r\n\r\n",
        "-5\r\nm4rke\r\n0\r\n\r\n",
        " 5\r\nm4rke\r\n0\r\n\r\n",
        "5 \r\nm4rke\r\n0\r\n\r\n",
        "5\t;a\r\nm4rke\r\n0\r\n\r\n",
        "g\r\nm4rke\r\n0\r\n\r\n",
        "5;a\nb\r\nm4rke\r\n0\r\n\r\n",
        "5;a\rb\r\nm4rke\r\n0\r\n\r\n",
        "5;a\0\r\nm4rke\r\n0\r\n\r\n",
        "ffffffffffffffff\r\nm4rke",
        "10000000000000000\r\nm4rke",
        "00000000000000005\r\nm4rke\r\n0\r\n\r\n",
        "5\r\r\nm4rke\r\n0\r\n\r\n",
        "0\r\n\n",
        "0\n\r\n",
        "0\r\nbad trailer m4rkedbytes\r\n\r\n",
        "0\r\n folded: m4rke\r\n\r\n",
        "0\r\nA : m4rke\r\n\r\n",
        "0\r\nA: m4rke\rx\r\n\r\n",
        "0\r\n: m4rke\r\n\r\n",
        "5_\r\nm4rke\r\n0\r\n\r\n",
    ];
    let long_extension = format!("5;{}\r\nm4rke\r\n0\r\n\r\n", "a".repeat(4096));
    let many_extensions = format!("{}0\r\n\r\n", format!("1;{}\r\na\r\n", "b".repeat(200)).repeat(50));
    let many_trailers = format!("0\r\n{}\r\n", "X-A: m4rkedbytes\r\n".repeat(10_000));
    for body in bad.into_iter().chain([&*long_extension, &many_extensions, &many_trailers]) {
        let start = &body[..body.len().min(40)];
        let mut client = egret.client();
        let head = format!("POST /origin/ HTTP/1.1\r\nHost: {own}\r\nTransfer-Encoding: chunked\r\n\r\n");
        client.offer(format!("{head}{body}"));
        let response = client.any_response_to("GET");
        assert_eq!(
            (response.status, response.field("x-egret-error")),
            (400, Some("bad-request")),
            "{start:?}: {response:?}"
        );
        response.assert_generated(400, "bad-request");
        client.assert_closed();
        assert!(origin.requests().is_empty(), "{start:?} became {:?}", origin.requests());
    }
    assert!(!egret.log().contains(MARK), "raw bytes are in the log: {}", egret.log());
    egret.get("/after").assert_forwarded(200);
    assert_eq!(origin.only_request().target(), "/after");
}

#[test]
fn heads_without_end_and_heads_too_large() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let start = format!("GET /origin/{MARK} HTTP/1.1\r\nHost: {}\r\n", egret.address());
    let before = egret.process().resident_bytes();
    let mut many = start.clone();
    for number in 0..100_000 {
        write!(many, "X-{number}: {MARK}\r\n").unwrap();
    }
    let long = "a".repeat(1 << 20);
    let rows: [(&str, String, u16, &str); 6] = [
        ("100,000 fields", format!("{many}\r\n"), 431, "head-too-large"),
        ("100,000 fields and no end", many, 431, "head-too-large"),
        ("a line of 1 MiB", format!("{start}X: {long}\r\n\r\n"), 431, "head-too-large"),
        ("a line of 1 MiB and no end", format!("{start}X: {long}"), 431, "head-too-large"),
        (
            "a target of 1 MiB",
            format!("GET /origin/{MARK}{long} HTTP/1.1\r\nHost: a\r\n\r\n"),
            414,
            "uri-too-long",
        ),
        ("129 fields", format!("{start}{}\r\n", "A: b\r\n".repeat(128)), 431, "head-too-large"),
    ];
    for (name, request, status, slug) in rows {
        assert_refused(&egret, &origin, name, request.as_bytes(), status, slug);
    }
    let growth = egret.process().resident_bytes_max().saturating_sub(before);
    assert!(growth < 8 << 20, "{} KiB", growth >> 10);
    assert_unharmed(&egret, &origin);
}

#[test]
fn a_method_of_a_megabyte_is_refused_without_waiting_for_its_end() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let mut client = egret.client();
    let response = client.offer("M".repeat(1 << 20)).any_response_to("GET");
    assert!(matches!(response.status, 400 | 414 | 501), "{response:?}");
    assert_eq!(response.field("x-egret-generated"), Some("true"));
    client.assert_closed();
    assert_unharmed(&egret, &origin);
}

#[test]
fn requests_after_a_refused_one_are_not_served() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let own = egret.address();
    let mut client = egret.client();
    client.offer(format!(
        "GET /origin/ HTTP/1.1\r\nHost: {own}\r\nA : {MARK}\r\n\r\nGET /origin/second HTTP/1.1\r\nHost: {own}\r\n\r\n"
    ));
    client.response().assert_generated(400, "bad-request");
    client.assert_closed();
    assert_unharmed(&egret, &origin);
}

#[test]
fn a_good_request_before_a_bad_one_is_answered() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let own = egret.address();
    let mut client = egret.client();
    client.offer(format!(
        "GET /origin/ HTTP/1.1\r\nHost: {own}\r\n\r\nGET /origin/ HTTP/1.1\r\nHost: {own}\nA: b\r\n\r\n"
    ));
    client.response().assert_forwarded(200);
    client.response().assert_generated(400, "bad-request");
    client.assert_closed();
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn a_head_that_arrives_byte_by_byte_is_one_head() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let mut client = egret.client();
    client.stream().set_nodelay(true).unwrap();
    for byte in format!("\r\nGET /origin/slow HTTP/1.1\r\nHost: {}\r\n\r\n", egret.address()).bytes() {
        client.send([byte]);
    }
    client.response().assert_forwarded(200);
    assert_eq!(origin.only_request().line, "GET /slow HTTP/1.1");
}

#[test]
fn a_content_length_body_of_a_get_stays_with_it() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let own = egret.address();
    let mut client = egret.client();
    let inner = format!("GET /origin/inner HTTP/1.1\r\nHost: {own}\r\n\r\n");
    client.send(format!(
        "GET /origin/outer HTTP/1.1\r\nHost: {own}\r\nContent-Length: {}\r\n\r\n{inner}",
        inner.len()
    ));
    client.response().assert_forwarded(200);
    let request = origin.only_request();
    assert_eq!((request.target(), request.body.as_slice()), ("/outer", inner.as_bytes()));
}

#[test]
fn an_http_1_0_request_body_needs_a_length() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    let mut client = egret.client();
    // Without a length there is no body, so the following bytes are not part of the request; nor are they a
    // valid request.
    client
        .send(format!("POST /origin/ HTTP/1.0\r\nHost: {}\r\n\r\n{MARK} body until close", egret.address()));
    client.response().assert_forwarded(200);
    assert!(origin.only_request().body.is_empty());
    assert!(find(&origin.received(), MARK.as_bytes()).is_none());
    let _ = client.rest();
}

#[test]
fn garbage_of_every_size_is_survived() {
    let origin = Provider::plain();
    let egret = gateway(&origin);
    // A linear congruential generator: the same garbage every time.
    let mut state = 0x2545_f491_u32;
    let mut garbage = Vec::new();
    for size in 1..200_usize {
        garbage.clear();
        garbage.extend((0..size * 7).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            state.to_be_bytes()[0]
        }));
        garbage.extend(b"\r\n\r\n");
        let mut client = Client::connect(egret.address());
        client.offer(&garbage).half_close();
        let response = client.rest();
        assert!(
            response.is_empty() || response.starts_with(b"HTTP/1.1 4") || response.starts_with(b"HTTP/1.1 5")
        );
    }
    assert!(origin.received().is_empty());
    egret.assert_well();
}
