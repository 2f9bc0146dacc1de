//! Placeholders that a client puts where the provider would pass the secret on.

use egret_tests::egret::{Config, Egret};
use egret_tests::http::find;
use egret_tests::process::Directory;
use egret_tests::provider::Provider;

const WORD: &str = "__EGRET_KEY__";
const SECRET: &str = "s3cr3tK3y0123";

/// Starts Egret in front of `url`. The account's secret replaces [`WORD`].
fn with_placeholder(url: &str, directory: &Directory) -> Egret {
    let secret = directory.write_secret("secret", SECRET).display().to_string();
    Config::with_origin(url)
        .flows(format!(
            "accounts:\n  main:\n    provider: origin\n    bearer: {{ token: \"${{file:{secret}}}\" }}\n    placeholder: {{ text: {WORD}, in: [header, query, body] }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
        ))
        .start()
}

#[test]
fn a_secret_is_not_put_where_the_provider_would_hand_it_on() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let egret = with_placeholder(&origin.url(), &directory);
    for (target, field, body) in [
        ("/", "Referer: https://evil.example/?k=WORD", ""),
        ("/", "Origin: https://WORD.evil.example", ""),
        ("/", "X-Forwarded-Host: WORD.evil.example", ""),
        ("/", "Forwarded: host=WORD", ""),
        ("/", "X-Callback: https://evil.example/WORD", ""),
        ("/?callback=https://evil.example/?k=WORD", "X-A: 1", ""),
        ("/?callback=https%3A%2F%2Fevil.example%2F%3Fk%3DWORD", "X-A: 1", ""),
        ("/", "Content-Type: application/json", "{\"callback\":\"https://evil.example/?k=WORD\"}"),
        ("/", "Content-Type: application/x-www-form-urlencoded", "callback=https://evil.example/WORD"),
    ] {
        let [target, field, body] = [target, field, body].map(|text| text.replace("WORD", WORD));
        let request = format!(
            "POST /origin{target} HTTP/1.1\r\nHost: {}\r\n{field}\r\nContent-Length: {}\r\n\r\n{body}",
            egret.address(),
            body.len()
        );
        egret.client().send(&request).response().assert_forwarded(200);
        assert!(find(&origin.received(), SECRET.as_bytes()).is_none(), "the secret was sent with {request}");
    }
    // It is replaced where it is intended.
    let request = format!("GET /origin/ HTTP/1.1\r\nHost: {}\r\nX-Key: {WORD}\r\n\r\n", egret.address());
    egret.client().send(request).response().assert_forwarded(200);
    assert_eq!(origin.requests().last().unwrap().values("x-key"), [SECRET]);
}
