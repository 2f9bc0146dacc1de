//! Placeholders: a program without the key sends a word instead, in any part where the API expects the key.

use egret_tests::egret::{Config, Egret};
use egret_tests::peers::{Httpbin, curl};
use egret_tests::process::{Directory, run_checked};
use egret_tests::provider::Provider;
use serde_json::{Value, json};

const WORD: &str = "__EGRET_KEY__";
const SECRET: &str = "s3cr3t/\"0123456789+";

/// Starts Egret in front of `url`. The account's secret replaces [`WORD`] in these parts.
fn before(url: &str, directory: &Directory, parts: &str) -> Egret {
    let secret = directory.write_secret("secret", SECRET).display().to_string();
    Config::with_origin(url)
        .provider("other", url)
        .flows(format!(
            "accounts:\n  main:\n    provider: origin\n    bearer: {{ token: \"${{file:{secret}}}\" }}\n    placeholder: {{ text: {WORD}{parts} }}\n\
             flows: [{{ name: f, remedies: [{{ authenticate: {{ account: main }} }}] }}]\n"
        ))
        .start()
}

/// Returns httpbin's description of the request that curl sent.
fn curled(egret: &Egret, provider: &str, target: &str, arguments: &[&str]) -> Value {
    let url = format!("{}/{provider}/anything{target}", egret.url());
    let shown = run_checked(curl().args(["--globoff", &url]).args(arguments));
    serde_json::from_str(&shown).unwrap_or_else(|error| panic!("{error}: {shown}"))
}

#[test]
fn the_secret_stands_where_curl_has_put_the_word() {
    let (httpbin, directory) = (Httpbin::start(), Directory::default());
    let egret = before(&httpbin.url(), &directory, ", in: [header, query, body]");
    let bearer = format!("Authorization: Bearer {WORD}");
    let got = curled(
        &egret,
        "origin",
        "",
        &["--header", &bearer, "--header", &format!("X-Also: {WORD}"), "--cookie", &format!("a=1; b={WORD}")],
    );
    assert_eq!(got["headers"]["Authorization"][0], format!("Bearer {SECRET}"));
    assert_eq!(got["headers"]["X-Also"][0], SECRET);
    assert_eq!(got["headers"]["Cookie"][0], format!("a=1; b={SECRET}"));
    let got = curled(&egret, "origin", "", &["--user", &format!("me:{WORD}")]);
    assert_eq!(got["headers"]["Authorization"][0], "Basic bWU6czNjcjN0LyIwMTIzNDU2Nzg5Kw==");
    let got =
        curled(&egret, "origin", "", &["--get", "--data-urlencode", &format!("key={WORD}"), "--data", "a=1"]);
    assert_eq!((&got["args"]["key"][0], &got["args"]["a"][0]), (&json!(SECRET), &json!("1")));
    let json = format!("{{\"auth\":{{\"key\":\"{WORD}\"}},\"n\":1}}");
    let got = curled(&egret, "origin", "", &["--header", "Content-Type: application/json", "--data", &json]);
    assert_eq!(got["json"], json!({ "auth": { "key": SECRET }, "n": 1 }));
    let got = curled(&egret, "origin", "", &["--data-urlencode", &format!("key={WORD}"), "--data", "a=1"]);
    assert_eq!((&got["form"]["key"][0], &got["form"]["a"][0]), (&json!(SECRET), &json!("1")));
}

#[test]
fn it_stands_in_the_places_that_are_named_and_in_no_others() {
    let (httpbin, directory) = (Httpbin::start(), Directory::default());
    let places = ", in: [header, query, body], headers: [x-also], parameters: [key], pointers: [/auth]";
    let egret = before(&httpbin.url(), &directory, places);
    let bearer = format!("Authorization: Bearer {WORD}");
    let also = format!("X-Also: a {WORD}, b {WORD}");
    let json = format!("{{\"auth\":{{\"key\":\"x {WORD}\"}},\"n\":\"{WORD}\"}}");
    let arguments = ["-H", &bearer, "-H", &also, "-H", "Content-Type: application/json", "--data", &json];
    let got = curled(&egret, "origin", &format!("?key=a{WORD}&other={WORD}"), &arguments);
    assert_eq!(got["headers"]["Authorization"][0], format!("Bearer {WORD}"));
    assert_eq!(got["headers"]["X-Also"][0], format!("a {SECRET}, b {SECRET}"));
    assert_eq!(
        (&got["args"]["key"][0], &got["args"]["other"][0]),
        (&json!(format!("a{SECRET}")), &json!(WORD))
    );
    assert_eq!(got["json"], json!({ "auth": { "key": format!("x {SECRET}") }, "n": WORD }));
}

#[test]
fn only_the_accounts_provider_gets_the_secret() {
    let (httpbin, directory) = (Httpbin::start(), Directory::default());
    let egret = before(&httpbin.url(), &directory, "");
    let bearer = format!("Authorization: Bearer {WORD}");
    let got = curled(&egret, "other", &format!("?key={WORD}"), &["--header", &bearer]);
    assert_eq!(got["headers"]["Authorization"][0], format!("Bearer {WORD}"));
    assert_eq!(got["args"]["key"][0], WORD);
    assert!(!got.to_string().contains("s3cr3t"), "{got}");
    // It is not replaced in other parts: not in a body, and it does not appear if the client does not send
    // the word.
    let got = curled(&egret, "origin", "", &["--data", &format!("key={WORD}")]);
    assert_eq!(got["form"]["key"][0], WORD);
    assert!(got["headers"]["Authorization"].is_null() && !got.to_string().contains("s3cr3t"), "{got}");
}

#[test]
fn a_request_without_the_word_goes_on_byte_by_byte() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let egret = before(&origin.url(), &directory, ", in: [header, query, body]");
    let body = "{ \"key\" : \"__EGRET_KEY_\", \"n\": 1e3 }";
    let request = format!(
        "POST /origin/a%2fb/__EGRET_KEY__?c=%7e&d HTTP/1.1\r\nHost: {}\r\nauthorization:  Basic Og==\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        egret.address(),
        body.len()
    );
    egret.client().send(request).response().assert_forwarded(200);
    let seen = origin.only_request();
    assert_eq!(
        (seen.target(), seen.values("authorization")),
        ("/a%2fb/__EGRET_KEY__?c=%7e&d", vec!["Basic Og=="])
    );
    assert_eq!(String::from_utf8(seen.body).unwrap(), body);
}

#[test]
fn the_length_follows_and_the_next_request_is_found() {
    let (origin, directory) = (Provider::plain(), Directory::default());
    let egret = before(&origin.url(), &directory, ", in: [body]");
    let mut client = egret.client();
    for framing in ["Content-Length: 15", "Transfer-Encoding: chunked"] {
        let body = format!("\"{WORD}\"");
        let body = if framing.starts_with('C') {
            body
        } else {
            format!("5\r\n{}\r\na\r\n{}\r\n0\r\n\r\n", &body[..5], &body[5..])
        };
        client.send(format!(
            "POST /origin/a HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{framing}\r\n\r\n{body}",
            egret.address()
        ));
        client.response().assert_forwarded(200);
    }
    client.get(egret.address(), "/origin/b").response().assert_forwarded(200);
    let seen = origin.requests();
    let read: Vec<Value> =
        seen[..2].iter().map(|request| serde_json::from_slice(&request.body).unwrap()).collect();
    assert_eq!((read, seen[2].target()), (vec![json!(SECRET); 2], "/b"));
}
