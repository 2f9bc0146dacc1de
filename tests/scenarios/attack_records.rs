//! Recorded secrets without a recognizable form, if not everything is obfuscated: their names identify them.

use egret_tests::archiver::Archiver;
use egret_tests::egret::{Config, egret};
use egret_tests::peers::Collector;
use egret_tests::process::{Directory, run};
use egret_tests::provider::Provider;
use egret_tests::recorded::{assert_verified, entries, files, until_recorded};
use egret_tests::secrets::texts;
use egret_tests::traffic::LiveTraffic;
use serde_json::{Value, json};

/// None of these looks like a secret.
const SECRETS: [&str; 12] = [
    "my-team-token",
    "live-key-0042",
    "s3ss10n-in-cookie",
    "9f8a7b6c5d4e3f2a",
    "hunter2pass",
    "8xLOxBtZp8",
    "ya29short",
    "refresh-me",
    "4711-0815",
    "in-a-part",
    "in-an-event",
    "user-pass",
];

/// Harmless values, which are kept.
const PLAIN: [&str; 6] =
    ["next-page-please", "once-and-only", "max_tokens", "bearer-type", "text/plain", "Bearer"];

const JSON: &str = r#"{"user":{"p\u0061ssword":"hunter2pass","pin":4711,"recovery_codes":["4711-0815"]},
    "access_token":"ya29short","token_type":"bearer-type","max_tokens":4711,"env":[{"name":"DB_PASSWORD","value":"user-pass"}]}"#;

/// Returns requests with secrets in every named part: target, fields and body.
fn requests() -> Vec<(&'static str, String, String)> {
    let fields = "Authorization: Bearer my-team-token\r\nX-Api-Key: live-key-0042\r\nCookie: sid=s3ss10n-in-cookie; theme=9f8a7b6c5d4e3f2a\r\n\
        Idempotency-Key: once-and-only\r\n";
    let form =
        "grant_type=password&username=ada&passw%6Frd=hunter2pass&client_secret=8xLOxBtZp8&x=1".to_owned();
    let parts = "--b\r\nContent-Disposition: form-data; name=\"api_key\"\r\n\r\nin-a-part\r\n--b\r\n\
        Content-Disposition: form-data; name=\"note\"\r\n\r\ntext/plain\r\n--b--\r\n"
        .to_owned();
    let json = "Content-Type: application/json\r\n";
    let lines = "{\"a\":1}\n{\"refresh_token\":\"refresh-me\"}\n".to_owned();
    let events =
        "event: a\ndata: {\"session\": {\"id\": \"in-an-event\"}}\n\ndata: id_token=ya29short&a=b\n\n"
            .to_owned();
    vec![
        ("/a?access_token=ya29short&page_token=next-page-please", fields.to_owned(), String::new()),
        ("/a;jsessionid=s3ss10n-in-cookie?p%61ssword=hunter2pass", json.to_owned(), JSON.to_owned()),
        ("/b", "Content-Type: application/x-www-form-urlencoded\r\n".to_owned(), form),
        ("/c", "Content-Type: multipart/form-data; boundary=b\r\n".to_owned(), parts),
        ("/d", "Content-Type: application/x-ndjson\r\n".to_owned(), lines),
        ("/e", "Content-Type: text/event-stream\r\n".to_owned(), events),
        // Truncated JSON, and text that is not JSON.
        ("/f", json.to_owned(), "{\"client_secret\": \"8xLOxBtZp8".to_owned()),
        ("/g", json.to_owned(), "{'client_secret': '8xLOxBtZp8'}".to_owned()),
    ]
}

/// Starts a provider that responds with the request's body and a cookie.
fn provider() -> Provider {
    Provider::with_responses(|request| {
        let media_type = request.values("content-type").first().copied().unwrap_or("text/plain");
        let fields = format!(
            "Set-Cookie: session=9f8a7b6c5d4e3f2a; Path=/\r\nLocation: /z?token=ya29short\r\nContent-Type: {media_type}\r\n"
        );
        let head = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: {}\r\n\r\n", request.body.len());
        [head.into_bytes(), request.body.clone()].concat()
    })
}

/// Returns the requests as messages, with the Host field.
fn messages(host: &str, prefix: &str) -> Vec<String> {
    let message = |(target, fields, body): (&str, String, String)| {
        let length = body.len();
        format!("POST {prefix}{target} HTTP/1.1\r\n{host}{fields}Content-Length: {length}\r\n\r\n{body}")
    };
    requests().into_iter().map(message).collect()
}

/// Asserts that recordings contain no secret and all harmless values.
fn assert_hidden(entries: &[Value]) {
    let mut found = Vec::new();
    for entry in entries {
        texts(entry, &mut found);
    }
    let left: Vec<_> =
        SECRETS.iter().filter(|secret| found.iter().any(|text| text.contains(**secret))).collect();
    assert!(left.is_empty(), "{left:?} in {entries:#?}");
    for plain in PLAIN {
        assert!(found.iter().any(|text| text.contains(plain)), "{plain} is not in {entries:#?}");
    }
}

#[test]
fn the_archiver_hides_secrets_by_name() {
    let origin = provider();
    let mut archiver = Archiver::start(&["-replays"]);
    for message in messages(&format!("Host: {}\r\n", origin.address()), "") {
        archiver.client().send(message).response_to("POST").assert_forwarded(200);
    }
    archiver.until_written("files", requests().len() as u64);
    assert!(archiver.terminate().success());
    let mut archives = files(archiver.directory().path());
    archives.retain(|file| file.extension().is_some_and(|extension| extension == "har"));
    assert_hidden(&entries(&archives));
    assert_verified(&archives);
}

#[test]
fn the_archiver_keeps_what_a_name_makes_a_secret_from_its_collector() {
    let (collector, origin) = (Collector::start("pull.py", &["0"]), provider());
    let archiver = Archiver::start(&["a-token", "-replays", "-host", "127.0.0.1", "-port", collector.port()]);
    for message in messages(&format!("Host: {}\r\n", origin.address()), "") {
        archiver.client().send(message).response_to("POST").assert_forwarded(200);
    }
    let documents = collector.received("alf_1.0.0 ", requests().len());
    let entries = documents.iter().map(|document| {
        let document = document.strip_prefix("alf_1.0.0 ").unwrap_or(document);
        serde_json::from_str::<Value>(document).unwrap()["har"]["log"]["entries"][0].clone()
    });
    assert_hidden(&entries.collect::<Vec<_>>());
}

/// Returns the recorded entries of messages while only secrets are hidden. The messages lack their `Host`.
fn recorded(origin: &Provider, messages: &[Vec<u8>]) -> Vec<Value> {
    let flows = "exporters: { archive: { type: har, directory: ./har } }\n\
        flows: [{ name: all, diagnoses: [har: { export: archive, bodies: 64KiB, media_types: ['*/*'], obfuscate: false }] }]\n";
    let mut egret = Config::with_origin(origin.url()).flows(flows).start();
    for message in messages {
        let line = message.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let host = format!("Host: {}\r\n", egret.address());
        let message = [&message[..line], host.as_bytes(), &message[line..]].concat();
        egret.client().send(message).response_to("POST").assert_forwarded(200);
    }
    until_recorded(&egret, messages.len() as u64);
    egret.terminate();
    assert!(egret.until_ended().success());
    let entries = entries(&files(&egret.directory().join("har")));
    assert_eq!(entries.len(), messages.len());
    entries
}

#[test]
fn a_plain_recording_hides_secrets_by_name() {
    let messages: Vec<_> = messages("", "/origin").into_iter().map(String::into_bytes).collect();
    assert_hidden(&recorded(&provider(), &messages));
}

#[test]
fn secrets_are_looked_for_in_utf_16_whatever_it_is_called() {
    let origin = provider();
    let secret = "-----BEGIN PRIVATE KEY-----\nMIIEplanted\n-----END PRIVATE KEY-----";
    let units = |text: &str| text.encode_utf16().collect::<Vec<_>>();
    let little: Vec<u8> = units(secret).iter().flat_map(|unit| unit.to_le_bytes()).collect();
    let big: Vec<u8> = units(secret).iter().flat_map(|unit| unit.to_be_bytes()).collect();
    let bodies = [
        ("text/plain; charset=utf-16", [&b"\xff\xfe"[..], &little].concat()),
        ("text/plain; charset=utf-16be", big.clone()),
        ("text/plain; charset=utf-16", big.clone()),
        ("text/plain", [&b"\xfe\xff"[..], &big].concat()),
        ("application/octet-stream", [&b"\x01"[..], &little].concat()),
    ];
    let messages: Vec<Vec<u8>> = bodies
        .iter()
        .map(|(media_type, body)| {
            let length = body.len();
            let head = format!(
                "POST /origin/ HTTP/1.1\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\r\n"
            );
            [head.into_bytes(), body.clone()].concat()
        })
        .collect();
    for entry in recorded(&origin, &messages) {
        let content = &entry["response"]["content"];
        let text = content["text"].as_str().unwrap();
        let decoded = if content["encoding"] == "base64" { unpacked(text) } else { text.to_owned() };
        assert!(!decoded.contains("MIIEplanted") && decoded.contains("egr_"), "{decoded:?} in {content}");
    }
}

/// Decodes Base64 to text, without the zeros between its letters.
fn unpacked(base64: &str) -> String {
    let value = |digit: u8| match digit {
        b'A'..=b'Z' => digit - b'A',
        b'a'..=b'z' => digit - b'a' + 26,
        b'0'..=b'9' => digit - b'0' + 52,
        b'+' => 62,
        _ => 63,
    };
    let digits: Vec<u32> =
        base64.bytes().filter(|digit| *digit != b'=').map(|digit| u32::from(value(digit))).collect();
    let groups = digits.chunks(4).flat_map(|group| {
        let bits = group.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - group.len()));
        bits.to_be_bytes()[1..group.len()].to_vec()
    });
    groups.filter(|byte| *byte != 0).map(char::from).collect()
}

#[test]
fn same_site_tells_nothing_but_what_it_may_say() {
    let origin = Provider::responding(
        "HTTP/1.1 200 OK\r\nSet-Cookie: a=b; SameSite=ada@example.com\r\nSet-Cookie: c=d; SameSite=lax\r\nContent-Length: 0\r\n\r\n",
    );
    let message = b"POST /origin/ HTTP/1.1\r\nContent-Length: 0\r\n\r\n".to_vec();
    let entry = &recorded(&origin, &[message])[0];
    assert!(!entry.to_string().contains("ada@example.com"), "{entry:#}");
    assert_eq!(entry["response"]["cookies"][1]["sameSite"], "lax");
}

/// Names of secrets that are rare, in other languages, or have a meaning by what is beside them. The values
/// look like nothing.
const RARE: [&str; 24] = [
    "v-authentication",
    "v-authorisation",
    "v-key",
    "v-x-key",
    "v-dpop",
    "v-x-access",
    "v-x-login",
    "v-x-user",
    "v-x-api-user",
    "v-code",
    "v-redirect-code",
    "v-iban",
    "v-credit-card",
    "v-database",
    "v-french",
    "v-spanish",
    "v-element",
    "v-prefix",
    "v-attribute",
    "v-pair",
    "v-reversed",
    "v-literal",
    "v-variable",
    "v-nested",
];

/// Returns messages with these secrets, without their `Host`.
fn rare_messages() -> Vec<Vec<u8>> {
    let message = |target: &str, fields: &str, body: &str| {
        format!("POST /origin{target} HTTP/1.1\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
            .into_bytes()
    };
    let json = |body: &Value| message("/b", "Content-Type: application/json\r\n", &body.to_string());
    let fields = "Authentication: v-authentication\r\nAuthorisation: v-authorisation\r\nKey: v-key\r\nX-Key: v-x-key\r\n\
        DPoP: v-dpop\r\nX-Access: v-x-access\r\nX-Login: v-x-login\r\nX-User: v-x-user\r\nX-Api-User: v-x-api-user\r\n";
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let xml = "Content-Type: text/xml\r\n";
    vec![
        message("/a?state=xyz&code=v-redirect-code", fields, ""),
        message("/token", form, "grant_type=authorization_code&code=v-code"),
        json(&json!({ "iban": "v-iban", "credit_card": "v-credit-card", "database_url": "v-database",
            "mot_de_passe": "v-french", "contraseña": "v-spanish" })),
        message(
            "/soap",
            xml,
            "<a><password>v-element</password><wsse:Password>v-prefix</wsse:Password>\
            <user pwd='v-attribute'/></a>",
        ),
        json(
            &json!({ "headers": [["authorization", "v-pair"]], "env": [{ "value": "v-reversed", "name": "DB_PASSWORD" }] }),
        ),
        json(
            &json!({ "query": "mutation { login(password: \"v-literal\") { id } }", "variables": { "password": "v-variable" },
            "body": json!({ "list": [{ "key": "a", "secrets": ["v-nested"] }] }).to_string() }),
        ),
    ]
}

/// Returns the secrets that these entries show.
fn shown(entries: &[Value]) -> Vec<&'static str> {
    let mut found = Vec::new();
    for entry in entries {
        texts(entry, &mut found);
    }
    RARE.into_iter().filter(|secret| found.iter().any(|text| text.contains(secret))).collect()
}

#[test]
fn a_recording_hides_secrets_with_rare_names() {
    let origin = provider();
    assert_eq!(shown(&recorded(&origin, &rare_messages())), [""; 0]);
}

#[test]
fn live_traffic_hides_secrets_with_rare_names() {
    let origin = provider();
    let egret = Config::with_origin(origin.url()).start();
    let traffic = LiveTraffic::open(&egret);
    let messages = rare_messages();
    for message in &messages {
        let line = message.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let host = format!("Host: {}\r\n", egret.address());
        let message = [&message[..line], host.as_bytes(), &message[line..]].concat();
        egret.client().send(message).response_to("POST").assert_forwarded(200);
    }
    let lines = traffic.until("provider=origin", messages.len());
    let details: Vec<_> = lines.iter().map(|line| traffic.details(line)).collect();
    assert_eq!(shown(&details), [""; 0]);
}

/// Returns an archive of one exchange, modified by `change`.
fn archive(change: impl FnOnce(&mut Value)) -> String {
    let mut entry = json!({
        "startedDateTime": "2026-01-02T03:04:05.250Z", "time": 3.5,
        "request": {"method": "GET", "url": "https://api.example.com/a", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [],
            "queryString": [], "headersSize": 90, "bodySize": 0},
        "response": {"status": 200, "statusText": "OK", "httpVersion": "HTTP/1.1", "cookies": [], "headers": [],
            "content": {"size": 0, "mimeType": "text/plain"}, "redirectURL": "", "headersSize": 60, "bodySize": 0},
        "cache": {}, "timings": {"send": 0.5, "wait": 2.0, "receive": 1.0}
    });
    change(&mut entry);
    json!({"log": {"version": "1.2", "creator": {"name": "r", "version": "1"}, "entries": [entry]}})
        .to_string()
}

/// Returns exit code and output of `egret har verify`.
fn verify(archive: String) -> (Option<i32>, String) {
    let directory = Directory::default();
    let file = directory.write("a.har", archive).display().to_string();
    let verified = run(&mut egret(["har", "verify", &file]));
    let stderr = [verified.stdout, verified.stderr].concat();
    (verified.status.code(), String::from_utf8_lossy(&stderr).into_owned())
}

#[test]
fn an_archive_with_a_secret_by_its_name_is_not_verified() {
    assert_eq!(verify(archive(|_| {})).0, Some(0), "a clean archive is");
    let pair = |name: &str, value: &str| json!([{"name": name, "value": value}]);
    for (place, secret, value) in [
        ("/request/headers", "my-team-token", pair("Authorization", "Bearer my-team-token")),
        ("/request/headers", "live-key-0042", pair("X-Api-Key", "live-key-0042")),
        ("/request/headers", "abc123", pair("cookie", "sessionid=abc123")),
        ("/response/headers", "9f8a7b", pair("Set-Cookie", "session=9f8a7b; Path=/")),
        ("/request/cookies", "abc123", pair("sessionid", "abc123")),
        ("/request/queryString", "hunter2pass", pair("password", "hunter2pass")),
        ("/request/url", "hunter2pass", json!("https://api.example.com/a?page=2&password=hunter2pass")),
        ("/request/url", "hunter2pass", json!("https://ada:hunter2pass@localhost/")),
        ("/response/redirectURL", "ya29short", json!("/a#access_token=ya29short")),
        ("/response/content/text", "ya29short", json!("{\"access_token\": \"ya29short\"}")),
        ("/response/content/text", "hunter2pass", json!("user=ada&password=hunter2pass")),
        (
            "/request/postData",
            "8xLOxBtZp8",
            json!({"mimeType": "application/json", "text": "{\"clientSecret\":\"8xLOxBtZp8\"}"}),
        ),
    ] {
        let (code, stderr) = verify(archive(|entry| {
            if let Some(old) = entry.pointer_mut(place) {
                *old = value;
            } else {
                let (parent, name) = place.rsplit_once('/').unwrap();
                entry.pointer_mut(parent).unwrap()[name] = value;
            }
        }));
        let path = format!("log.entries[0]{}", place.replace('/', "."));
        assert_eq!(code, Some(1), "{place} with {secret}: {stderr}");
        assert!(
            stderr.contains(&path) && stderr.contains("violations of HAR 1.2: 0") && !stderr.contains(secret),
            "{stderr}"
        );
    }
}
