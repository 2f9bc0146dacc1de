//! Secrets of accounts that a provider repeats: recordings show none of them, whatever they look like, under
//! whatever name, in every usual coding, and also without `mask_echoes`.

use egret_tests::coded::coded;
use egret_tests::egret::{Config, Egret};
use egret_tests::process::Directory;
use egret_tests::provider::{Provider, Request, ok};
use egret_tests::recorded::{entries, files, until_recorded};
use egret_tests::secrets::{encoded, texts};
use egret_tests::traffic::LiveTraffic;
use serde_json::{Value, json};

/// Looks like nothing, and is repeated under names that mean nothing.
const SECRET: &str = "blauwal1723";

/// `me:blauwal1723` in Base64, without what the user shares with the secret.
const BASE64: &str = "bWU6YmxhdXdhbDE3MjM=";

/// Returns a response that repeats the secret in the way that the target names.
fn repeating(request: &Request, secret: &str) -> Vec<u8> {
    let respond = |fields: &str, body: &[u8]| {
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
        [head.as_bytes(), body].concat()
    };
    let json = "Content-Type: application/json\r\n";
    match request.target() {
        "/json" => respond(json, json!({ "greeting": secret, "list": [secret] }).to_string().as_bytes()),
        "/field" => respond(&format!("X-Greeting: hello {secret}\r\nLocation: /x?g={secret}\r\n"), b""),
        "/base64" => respond(json, json!({ "greeting": BASE64 }).to_string().as_bytes()),
        "/percent" => respond("Content-Type: text/plain\r\n", secret.replace('a', "%61").as_bytes()),
        "/gzip" => respond(
            &format!("{json}Content-Encoding: gzip\r\n"),
            &coded("gzip", json!({ "greeting": secret }).to_string().as_bytes()),
        ),
        "/wide" => {
            let wide: Vec<u8> = secret.encode_utf16().flat_map(u16::to_le_bytes).collect();
            respond("Content-Type: text/plain; charset=utf-16le\r\n", &wide)
        }
        _ => respond("", b""),
    }
}

const WAYS: [&str; 6] = ["/json", "/field", "/base64", "/percent", "/gzip", "/wide"];

/// Returns the credential of a user whose password is in this file.
fn basic(file: &str) -> String {
    format!("basic: {{ user: me, password: '${{file:{file}}}' }}")
}

/// Returns a config whose account has this credential. It records everything but secrets that are found by
/// their look or their name.
fn config(url: &str, credential: &str) -> Config {
    Config::with_origin(url).gateway("workers: 1").flows(format!(
        "accounts:\n  main: {{ provider: origin, {credential} }}\n\
         exporters: {{ archive: {{ type: har, directory: ./har }}, lines: {{ type: lines, directory: ./lines }} }}\n\
         flows:\n- name: f\n  match: {{ provider: origin }}\n  remedies: [authenticate: {{ account: main }}]\n  diagnoses:\n\
         \x20 - har: {{ export: archive, bodies: 64KiB, media_types: ['*/*'], obfuscate: false }}\n\
         \x20 - access-log: {{ export: lines, obfuscate: false, fields: [target, response.headers.x-greeting] }}\n"
    ))
}

/// Returns the texts of a value, and of the Base64 in it, that show a secret.
fn showing(value: &Value, secret: &str) -> Vec<String> {
    let mut found = Vec::new();
    texts(value, &mut found);
    let spelled = [
        secret.to_owned(),
        BASE64.trim_end_matches('=')[4..].to_owned(),
        secret.replace('a', "%61"),
        encoded(secret),
    ];
    found.retain(|text| spelled.iter().any(|secret| text.replace('\0', "").contains(secret.as_str())));
    found
}

fn get(egret: &Egret, ways: &[&str]) {
    for way in ways {
        egret.get(way).assert_forwarded(200);
    }
}

/// Asserts that neither live traffic nor the archive of a stopped Egret shows the secrets.
fn assert_hidden(live: &[Value], mut egret: Egret, secrets: &[&str]) {
    egret.terminate();
    assert!(egret.until_ended().success());
    let archived = entries(&files(&egret.directory().join("har")));
    assert!(!archived.is_empty() && !live.is_empty());
    let lines = files(&egret.directory().join("lines"));
    let lines: String = lines.iter().map(|file| std::fs::read_to_string(file).unwrap()).collect();
    assert!(lines.contains("/json"), "{lines}");
    for secret in secrets {
        for (place, exchanges) in [("live traffic", live), ("the archive", &archived)] {
            for exchange in exchanges {
                assert_eq!(showing(exchange, secret), [""; 0], "{place} shows {secret}");
            }
        }
        assert!(!lines.contains(secret), "the access log shows {secret}: {lines}");
    }
}

fn details(traffic: &LiveTraffic<'_>, count: usize) -> Vec<Value> {
    traffic.until("provider=origin", count).iter().map(|line| traffic.details(line)).collect()
}

#[test]
fn no_recording_shows_a_secret_that_a_provider_repeats() {
    let origin = Provider::with_responses(|request| repeating(request, SECRET));
    let directory = Directory::default();
    let file = directory.write_secret("secret", SECRET).display().to_string();
    let egret = config(&origin.url(), &basic(&file)).start();
    let traffic = LiveTraffic::open(&egret);
    get(&egret, &WAYS);
    let live = details(&traffic, WAYS.len());
    until_recorded(&egret, WAYS.len() as u64);
    // The rest of the response stays.
    assert!(live.iter().any(|exchange| exchange.to_string().contains("hello ***********")), "{live:#?}");
    assert!(
        live.iter().any(|exchange| exchange.to_string().contains("greeting\\\":\\\"***********")),
        "{live:#?}"
    );
    assert_hidden(&live, egret, &[SECRET]);
}

#[test]
fn no_recording_shows_a_secret_before_or_after_it_is_replaced() {
    const NEXT: &str = "pottwal1724";
    let origin = Provider::with_responses(|request| {
        repeating(request, if request.values("x-old").is_empty() { NEXT } else { SECRET })
    });
    let directory = Directory::default();
    let file = directory.write_secret("secret", SECRET).display().to_string();
    let config = config(&origin.url(), &basic(&file));
    let egret = config.start();
    let old = |egret: &Egret| {
        let request = format!("GET /origin/json HTTP/1.1\r\nHost: {}\r\nX-Old: 1\r\n\r\n", egret.address());
        egret.client().send(request).response().assert_forwarded(200);
    };
    old(&egret);
    directory.write_secret("secret", NEXT);
    egret.hang_up();
    egret.until_logged("config reloaded");
    let traffic = LiveTraffic::open(&egret);
    // A provider may still repeat the secret of before.
    old(&egret);
    get(&egret, &["/json", "/field"]);
    let live = details(&traffic, 3);
    assert_hidden(&live, egret, &[SECRET, NEXT]);
}

#[test]
fn no_recording_shows_a_token_that_egret_fetched() {
    const TOKEN: &str = "finnwal-token-x";
    let origin = Provider::with_responses(|request| match request.target() {
        "/token" => {
            ok_json(&json!({ "access_token": TOKEN, "token_type": "Bearer", "expires_in": 3600 }).to_string())
        }
        _ => repeating(request, TOKEN),
    });
    let directory = Directory::default();
    let file = directory.write_secret("secret", SECRET).display().to_string();
    let oauth2 = format!(
        "oauth2: {{ token_url: '{}/token', client_id: me, client_secret: '${{file:{file}}}' }}",
        origin.url()
    );
    let egret = config(&origin.url(), &oauth2).start();
    let traffic = LiveTraffic::open(&egret);
    get(&egret, &["/json", "/field", "/gzip"]);
    let live = details(&traffic, 3);
    until_recorded(&egret, 3);
    assert_hidden(&live, egret, &[TOKEN, SECRET]);
}

fn ok_json(text: &str) -> Vec<u8> {
    let response = String::from_utf8(ok(text)).unwrap();
    response.replacen("\r\n", "\r\nContent-Type: application/json\r\n", 1).into_bytes()
}
