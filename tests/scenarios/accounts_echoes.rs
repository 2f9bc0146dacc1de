//! Echoes: if a provider sends a secret back, it is masked in every form and however it is split, and streams
//! still stream.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::{Httpbin, curl};
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::{Provider, ok};
use egret_tests::recorded::{files, until_recorded};

const SECRET: &str = "s3cr3t/0123456789+abc";
const MASK: &str = "*********************";
/// The secret in Base64. All its characters depend on the secret only, because the length is a multiple of
/// three.
const BASE64: &str = "czNjcjN0LzAxMjM0NTY3ODkrYWJj";

/// Starts Egret in front of `url` and masks the account's secret in responses; `remedies` surround the
/// masking remedy.
fn with(url: &str, directory: &Directory, outer: &str, rest: &str) -> Egret {
    let secret = directory.write_secret("secret", SECRET).display().to_string();
    Config::with_origin(url)
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{secret}}}\" }} }}\n\
             flows: [{{ name: f, remedies: [{outer}{{ authenticate: {{ account: main, mask_echoes: true }} }}]{rest} }}]\n"
        ))
        .start()
}

fn before(url: &str, directory: &Directory) -> Egret {
    with(url, directory, "", "")
}

#[test]
fn httpbin_shows_requests_without_their_secrets() {
    let (httpbin, directory) = (Httpbin::start(), Directory::default());
    let egret = before(&httpbin.url(), &directory);
    for path in ["/headers", "/anything?a=1", "/get"] {
        let shown = run_checked(curl().args(["--compressed", &format!("{}/origin{path}", egret.url())]));
        let echo: serde_json::Value = serde_json::from_str(&shown).unwrap();
        assert_eq!(echo["headers"]["Authorization"][0], format!("Bearer {MASK}"));
        assert_eq!(echo["headers"]["Accept-Encoding"][0], "identity");
    }
    // The request's own text is not a secret, and neither is similar text.
    let echo = egret.get_with("/origin/anything/s3cr3t/0123456789", "X-A: s3cr3t/0123456789+ab\r\n");
    assert_eq!(echo.assert_forwarded(200).json()["headers"]["X-A"][0], "s3cr3t/0123456789+ab");
    egret.get_with(&format!("/origin/response-headers?X-Key={SECRET}"), "").assert_forwarded(200);
    let encoded = SECRET.replace('/', "%2F").replace('+', "%2B");
    let echo = egret.get_with(&format!("/origin/response-headers?X-Key=a{encoded}"), "");
    assert_eq!(echo.assert_forwarded(200).field("x-key"), Some(&*format!("a{MASK}")));
    assert!(!echo.text().contains(SECRET), "{}", echo.text());
}

#[test]
fn every_form_of_it_is_masked_wherever_the_body_is_cut() {
    let forms = [
        SECRET.to_owned(),
        SECRET.replace('/', "%2F").replace('+', "%2b"),
        SECRET.replace('/', "\\/").replace('+', "\\u002b"),
        BASE64.to_owned(),
    ];
    let text = forms.iter().map(|form| format!("<{form}>")).collect::<Vec<_>>().concat();
    let masked = forms.iter().map(|form| format!("<{}>", "*".repeat(form.len())));
    let expected = masked.collect::<Vec<_>>().concat();
    let length = text.len();
    let origin = Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            let cut: usize = request.target()[1..].parse().unwrap();
            let (first, second) = text.split_at(cut % text.len());
            if cut < text.len() {
                peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{first}", text.len()));
                peer.send(second);
            } else {
                peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Key\r\n\r\n");
                for piece in [first, second].into_iter().filter(|piece| !piece.is_empty()) {
                    peer.send(format!("{:x}\r\n{piece}\r\n", piece.len()));
                }
                peer.send(format!("0\r\nX-Key: {SECRET}\r\n\r\n"));
            }
        }
    });
    let directory = Directory::default();
    let secret = directory.write_secret("secret", SECRET).display().to_string();
    let egret = Config::with_origin(origin.url())
        .gateway("trailers: [\"x-*\"]")
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{secret}}}\" }} }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main, mask_echoes: true }} }}] }}]\n"
        ))
        .start();
    let mut client = egret.client();
    for cut in 0..2 * length {
        let response = client.get(egret.address(), &format!("/origin/{cut}")).response();
        assert_eq!(response.assert_forwarded(200).text(), expected, "cut at {cut}");
        if cut >= length {
            assert_eq!(response.trailers, [("X-Key".to_owned(), MASK.to_owned())]);
        }
    }
}

#[test]
fn events_pass_as_they_come() {
    const EVENTS: [&str; 4] =
        ["data: one\n\n", "data: s3cr3t/0123\n\n", "data: s3cr3t/0123456789+abc\n\n", "data: [DONE]\n\n"];
    let (seen, received) = channel::<()>();
    let received = Mutex::new(received);
    let origin = Provider::scripted(move |peer| {
        if peer.request().is_none() {
            return;
        }
        peer.send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n");
        for event in EVENTS {
            peer.send(format!("{:x}\r\n{event}\r\n", event.len()));
            // The next piece is sent after the client has received this one.
            if received.lock().unwrap().recv().is_err() {
                return;
            }
        }
        peer.send("0\r\n\r\n");
    });
    let directory = Directory::default();
    let egret = before(&origin.url(), &directory);
    let mut client = egret.client();
    assert_eq!(client.get(egret.address(), "/origin/events").head().status, 200);
    for event in EVENTS {
        let event = event.replace(SECRET, MASK);
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        assert_eq!(String::from_utf8(client.bytes(chunk.len())).unwrap(), chunk);
        seen.send(()).unwrap();
    }
    assert_eq!(client.bytes(5), b"0\r\n\r\n");
}

#[test]
fn heads_are_masked_those_that_come_first_too() {
    let origin = Provider::scripted(|peer| {
        while peer.request().is_some() {
            peer.send(format!("HTTP/1.1 103 Early Hints\r\nLink: </{SECRET}>; rel=preload\r\n\r\n"));
            peer.send(format!(
                "HTTP/1.1 401 No {SECRET}\r\nWWW-Authenticate: Bearer error=\"{SECRET}\"\r\nX-Two: {SECRET}{SECRET}\r\nContent-Length: 0\r\n\r\n"
            ));
        }
    });
    let directory = Directory::default();
    let egret = before(&origin.url(), &directory);
    let mut client = egret.client();
    let hints = client.get(egret.address(), "/origin/a").response();
    assert_eq!((hints.status, hints.field("link")), (103, Some(&*format!("</{MASK}>; rel=preload"))));
    let response = client.response();
    response.assert_forwarded(401);
    assert_eq!(response.status_line, format!("HTTP/1.1 401 No {MASK}"));
    assert_eq!(response.field("www-authenticate"), Some(&*format!("Bearer error=\"{MASK}\"")));
    assert_eq!(response.field("x-two"), Some(&*format!("{MASK}{MASK}")));
}

#[test]
fn a_response_that_cannot_be_masked_is_refused() {
    let origin = Provider::scripted(|peer| {
        while let Some(request) = peer.request() {
            assert_eq!(request.values("accept-encoding"), ["identity"]);
            assert_eq!(request.values("range").len() + request.values("if-range").len(), 0);
            peer.send(unreadable(request.target(), request.line.starts_with("HEAD")));
        }
    });
    let directory = Directory::default();
    let egret = before(&origin.url(), &directory);
    let fields = "Accept-Encoding: gzip, br\r\nRange: bytes=0-9\r\nIf-Range: \"1\"\r\n";
    for (target, why) in
        [("/gzip", "content coding"), ("/part", "partial content"), ("/upgrade", "switches protocols")]
    {
        let upgrade = if target == "/upgrade" { "Connection: upgrade\r\nUpgrade: websocket\r\n" } else { "" };
        let refused = egret.get_with(&format!("/origin{target}"), &format!("{fields}{upgrade}"));
        refused.assert_generated(502, "echo-unreadable");
        assert!(refused.text().contains(why), "{}", refused.text());
    }
    // A response without a body needs no reading.
    let mut client = egret.client();
    client.send(format!("HEAD /origin/gzip HTTP/1.1\r\nHost: {}\r\n{fields}\r\n", egret.address()));
    client.response_to("HEAD").assert_forwarded(200);
    egret.get_with("/origin/plain", fields).assert_forwarded(200);
}

fn unreadable(target: &str, is_head: bool) -> Vec<u8> {
    match target {
        "/gzip" => {
            let body = if is_head { "" } else { "gzip" };
            format!("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\n{body}")
                .into_bytes()
        }
        "/part" => format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-9/21\r\nContent-Length: 10\r\n\r\n{}",
            &SECRET[..10]
        )
        .into_bytes(),
        "/upgrade" => {
            b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n".to_vec()
        }
        _ => ok("plain"),
    }
}

#[test]
fn neither_remedies_nor_caches_nor_recordings_see_it() {
    let origin = Provider::with_responses(|request| {
        let body = format!("{{\"key\":\"{}\"}}", request.values("authorization").concat());
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nCache-Control: public, max-age=600\r\nX-Key: {SECRET}\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        )
        .into_bytes()
    });
    let directory = Directory::default();
    let copy = "\"${response.headers.x-key}\"";
    let transform = format!(
        "{{ transform: {{ response: {{ json: {{ set: {{ /copy: {copy} }} }}, headers: {{ set: {{ x-copy: {copy} }} }} }} }} }}, "
    );
    let har = directory.join("har");
    let secret = directory.write_secret("secret", SECRET).display().to_string();
    let start = |remedies: &str| {
        Config::with_origin(origin.url())
            .flows(format!(
                "accounts:\n  main: {{ provider: origin, bearer: {{ token: \"${{file:{secret}}}\" }} }}\n\
                 exporters: {{ archive: {{ type: har, directory: \"{}\" }} }}\n\
                 flows: [{{ name: f, remedies: [{remedies}], diagnoses: [{{ har: {{ export: archive, obfuscate: false, bodies: 64KiB }} }}] }}]\n",
                har.display()
            ))
            .start()
    };
    let authenticate = "{ authenticate: { account: main, mask_echoes: true } }";
    let mut egret = start(&format!("{transform}{authenticate}"));
    let response = egret.get_with("/origin/a", "");
    let masked = format!("Bearer {MASK}");
    assert_eq!(response.assert_forwarded(200).json(), serde_json::json!({ "key": masked, "copy": MASK }));
    assert_eq!((response.field("x-key"), response.field("x-copy")), (Some(MASK), Some(MASK)));
    until_recorded(&egret, 1);
    egret.terminate();
    assert!(egret.until_ended().success());
    let recorded: String = files(&har).iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert!(recorded.contains(MASK) && !recorded.contains(SECRET), "{recorded}");
    assert!(!egret.log().contains(SECRET));

    let egret = start(&format!("{authenticate}, {{ cache: {{}} }}"));
    for _ in 0..2 {
        let response = egret.get_with("/origin/cached", "");
        assert_eq!(response.assert_forwarded(200).json(), serde_json::json!({ "key": masked }));
        assert_eq!(response.field("x-key"), Some(MASK));
    }
    assert_eq!(origin.requests().len(), 2, "the last came from the cache");
}

#[test]
fn a_long_body_is_masked_as_it_passes() {
    const PIECES: usize = 4_000;
    let piece = format!("{}{SECRET}", "x".repeat(1_000));
    let origin = Provider::with_responses(move |_| {
        let mut answer =
            format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", PIECES * piece.len()).into_bytes();
        answer.write_all(piece.repeat(PIECES).as_bytes()).unwrap();
        answer
    });
    let directory = Directory::default();
    let egret = before(&origin.url(), &directory);
    let response = egret.get_with("/origin/long", "");
    let expected = format!("{}{MASK}", "x".repeat(1_000)).repeat(PIECES);
    assert!(response.assert_forwarded(200).text() == expected);
}

#[test]
fn a_config_that_could_mask_nothing_is_refused() {
    let directory = Directory::default();
    let short = directory.write_secret("short", "1234567").display().to_string();
    let config = directory.write(
        "egret.yaml",
        format!(
            "providers: {{ origin: {{ url: \"http://127.0.0.1:9\" }} }}\n\
             accounts: {{ main: {{ provider: origin, bearer: {{ token: \"${{file:{short}}}\" }} }} }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main, mask_echoes: true }} }}] }}]\n"
        ),
    );
    let checked = egret_tests::process::run(egret_tests::egret::egret(["check"]).arg(config));
    let stderr =
        String::from_utf8_lossy(&checked.stderr).into_owned() + &String::from_utf8_lossy(&checked.stdout);
    assert_eq!(checked.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("mask_echoes") && stderr.contains("8 to 16384 bytes"), "{stderr}");
}
