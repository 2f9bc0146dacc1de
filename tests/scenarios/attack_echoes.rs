//! Echoes that masking could miss, and masking that could reveal parts of the secret.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use egret_tests::egret::{Config, Egret};
use egret_tests::http::Client;
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, ok};

/// Starts Egret in front of `url` and masks the account's secret in responses. With one worker, the order of
/// its actions is known.
fn before(url: &str, directory: &Directory, secret: &str) -> Egret {
    let secret = directory.write_secret("secret", secret).display().to_string();
    Config::with_origin(url)
        .gateway("workers: 1")
        .flows(format!(
            "accounts:\n  main: {{ provider: origin, basic: {{ user: me, password: \"${{file:{secret}}}\" }} }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main, mask_echoes: true }} }}] }}]\n"
        ))
        .start()
}

/// Number of bytes that can be read without waiting.
fn arrived(client: &Client) -> usize {
    client.stream().set_nonblocking(true).unwrap();
    let more = client.stream().peek(&mut [0; 4096]).unwrap_or(0);
    client.stream().set_nonblocking(false).unwrap();
    client.pending().len() + more
}

#[test]
fn stream_timing_does_not_reveal_the_secret() {
    const SECRET: &str = "s3cr3tK3y0123";
    const BASE64: &str = "czNjcjN0SzN5MDEyMw";
    let (go_on, received) = channel::<()>();
    let received = Mutex::new(received);
    let origin = Provider::scripted(move |peer| {
        while let Some(request) = peer.request() {
            let Some(guess) = request.target().strip_prefix("/guess/") else {
                peer.send(ok("still there"));
                continue;
            };
            // At once: a head that came alone would let the client look before the guess is there.
            let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
            peer.send(format!("{head}{:x}\r\n{guess}\r\n", guess.len()));
            // Nothing more is sent until the client has looked.
            if received.lock().unwrap().recv().is_err() {
                return;
            }
            peer.send("0\r\n\r\n");
        }
    });
    let directory = Directory::default();
    let egret = before(&origin.url(), &directory, SECRET);
    let passed = |guess: &str| {
        let mut client = egret.client();
        assert_eq!(client.get(egret.address(), &format!("/origin/guess/{guess}")).head().status, 200);
        // The worker handles these after the bytes that it received before.
        for _ in 0..2 {
            egret.get("/still").assert_forwarded(200);
        }
        let arrived = arrived(&client);
        go_on.send(()).unwrap();
        client.rest_of_chunks();
        arrived
    };
    for whole in [SECRET, BASE64] {
        for end in 1..whole.len() {
            let (right, next) = whole.split_at(end);
            let wrong = format!("{}~", &right[..end - 1]);
            assert_eq!(
                passed(right),
                passed(&wrong),
                "{right} and {wrong} differ in their timing, which helps to guess {next}"
            );
        }
    }
}

#[test]
fn a_secret_in_base64_in_lines_is_masked() {
    let secret = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    // The output of Python's `base64.encodebytes` for forty other bytes and the secret.
    let lines = [
        "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eDAxMjM0NTY3ODlhYmNkZWZn",
        "aGlqa2xtbm9wcXJzdHV2d3h5ekFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFla",
    ];
    for end in ["\n", "\r\n"] {
        let text = lines.map(|line| format!("{line}{end}")).concat();
        let origin = Provider::responding(ok(&text));
        let directory = Directory::default();
        let egret = before(&origin.url(), &directory, secret);
        let response = egret.get("/mail");
        let shown = response.assert_forwarded(200).text();
        assert_eq!(shown.lines().map(str::len).collect::<Vec<_>>(), lines.map(str::len), "{shown}");
        assert!(!shown.contains("MTIzNDU2Nzg5") && !shown.contains("aGlqa2xtbm9w"), "{shown}");
        assert!(shown.starts_with("eHh4eHh4eHh4"), "{shown}");
    }
}

#[test]
fn a_secret_with_a_plus_for_a_space_is_masked() {
    let origin = Provider::responding(ok("user=me&password=correct+horse+battery&b=1"));
    let directory = Directory::default();
    let egret = before(&origin.url(), &directory, "correct horse battery");
    assert_eq!(
        egret.get("/form").assert_forwarded(200).text(),
        format!("user=me&password={}&b=1", "*".repeat(21))
    );
}

#[test]
fn a_response_whose_charset_writes_a_secret_in_other_bytes_is_refused() {
    const SECRET: &str = "s3cr3tK3y0123";
    let origin = Provider::with_responses(|_| {
        let body: Vec<u8> = SECRET.bytes().flat_map(|byte| [byte, 0]).collect();
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=UTF-16LE\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body].concat()
    });
    let directory = Directory::default();
    let egret = before(&origin.url(), &directory, SECRET);
    egret.get("/wide").assert_generated(502, "echo-unreadable");
}
