//! Tests of recorded entries.

use std::net::{IpAddr, Ipv6Addr};

use egret_tests::coded::coded;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::fixture::any_json;
use crate::har::HarEntry;
use crate::observed::{Captured, HttpVersion};
use crate::recording::RecordingConfig;
use crate::scan::scan;
use crate::validate::validate;
use crate::{Obfuscator, alf};

const KEY: [u8; 32] = [3; 32];

fn recorder(config: &RecordingConfig) -> Recorder {
    Recorder::new(Key::new(&KEY), &Recording::compile(config).unwrap())
}

fn plain() -> RecordingConfig {
    RecordingConfig { obfuscate: false, detect_secrets: false, ..RecordingConfig::default() }
}

/// Returns header fields from names and values.
fn fields<'a>(fields: &[(&'a str, &'a [u8])]) -> Vec<ObservedField<'a>> {
    fields.iter().map(|(name, value)| ObservedField { name: name.as_bytes(), value }).collect()
}

fn exchange<'a>() -> Observed<'a> {
    Observed {
        started_unix_us: 1_767_323_045_250_125,
        request: ObservedRequest {
            method: b"POST",
            tls: true,
            host: "api.example.com",
            port: 443,
            target: b"/v1/charges/ch_42?page=2&token=s3cr%20et",
            version: HttpVersion::Http11,
            fields: fields(&[
                ("Host", b"api.example.com"),
                ("Authorization", b"Bearer tok-987-654"),
                ("Cookie", b"session=abc123session; theme=dark"),
            ]),
            head_bytes: 210,
            body_bytes: 44,
            body: Captured::default(),
        },
        response: Some(ObservedResponse {
            status: 201,
            reason: b"Created",
            version: HttpVersion::Http10,
            fields: fields(&[
                ("Content-Type", b"application/json; charset=utf-8"),
                ("Set-Cookie", b"session=new; Path=/v1; Domain=example.com; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Secure; HttpOnly; SameSite=Lax"),
                ("set-cookie", b"b=c"),
                ("Location", b"/v1/charges/ch_42"),
            ]),
            head_bytes: 300,
            body_bytes: 60,
            body: Captured::default(),
        }),
        phases: Phases {
            blocked_us: Some(1_500),
            dns_us: None,
            connect_us: Some(20_000),
            tls_us: Some(12_250),
            send_us: 500,
            wait_us: 100_001,
            receive_us: 3_500,
        },
        server: Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        connection: Some(7),
        notes: Notes::default(),
    }
}

fn written(config: &RecordingConfig, exchange: &Observed<'_>) -> Value {
    let mut recorder = recorder(config);
    let (mut first, mut again) = (Vec::new(), Vec::new());
    recorder.write(exchange, &mut first);
    recorder.write(exchange, &mut again);
    assert_eq!(
        String::from_utf8_lossy(&first),
        String::from_utf8_lossy(&again),
        "what is remembered is right"
    );
    assert!(!first.contains(&b'\n'));
    let entry: Value = serde_json::from_slice(&first).unwrap();
    let har =
        json!({"log": {"version": "1.2", "creator": {"name": "a", "version": "b"}, "entries": [entry]}});
    assert_eq!(validate(&har), [], "{entry:#}");
    entry
}

#[test]
fn everything_is_told_where_nothing_is_hidden() {
    let name_value = |name: &str, value: &str| json!({"name": name, "value": value});
    assert_eq!(
        written(&plain(), &exchange()),
        json!({
            "startedDateTime": "2026-01-02T03:04:05.250125Z", "time": 137.751,
            "request": {
                "method": "POST", "url": "https://api.example.com/v1/charges/ch_42?page=2&token=s3cr%20et",
                "queryString": [name_value("page", "2"), name_value("token", "s3cr et")],
                "httpVersion": "HTTP/1.1",
                "headers": [
                    name_value("Host", "api.example.com"),
                    name_value("Authorization", "Bearer tok-987-654"),
                    name_value("Cookie", "session=abc123session; theme=dark"),
                ],
                "cookies": [name_value("session", "abc123session"), name_value("theme", "dark")],
                "headersSize": 210, "bodySize": 44,
            },
            "response": {
                "status": 201, "statusText": "Created", "httpVersion": "HTTP/1.0",
                "headers": [
                    name_value("Content-Type", "application/json; charset=utf-8"),
                    name_value("Set-Cookie", "session=new; Path=/v1; Domain=example.com; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Secure; HttpOnly; SameSite=Lax"),
                    name_value("set-cookie", "b=c"),
                    name_value("Location", "/v1/charges/ch_42"),
                ],
                "cookies": [
                    {"name": "session", "value": "new", "path": "/v1", "domain": "example.com",
                        "expires": "2026-10-21T07:28:00.000Z", "httpOnly": true, "secure": true, "sameSite": "Lax"},
                    name_value("b", "c"),
                ],
                "content": {"size": 60, "mimeType": "application/json; charset=utf-8"},
                "redirectURL": "/v1/charges/ch_42", "headersSize": 300, "bodySize": 60,
            },
            "cache": {},
            "timings": {"blocked": 1.5, "dns": -1, "connect": 32.25, "ssl": 12.25, "send": 0.5, "wait": 100.001, "receive": 3.5},
            "serverIPAddress": "::1", "connection": "7",
        })
    );
}

/// Returns the result of [`Obfuscator`] for an entry that was recorded without redaction.
fn obfuscated(plain: &Value, config: &RecordingConfig) -> Value {
    let mut entry: HarEntry = serde_json::from_value(plain.clone()).unwrap();
    let recording = Recording::compile(config).unwrap();
    let attempts = entry.extra.get("_attempts").cloned();
    Obfuscator::new(Key::new(&KEY), recording.exclusions).entry(&mut entry);
    // The obfuscator replaces all custom fields, also the harmless ones.
    if let Some(attempts) = attempts {
        entry.extra.insert("_attempts".to_owned(), attempts);
    }
    serde_json::to_value(entry).unwrap()
}

/// Returns an entry with numbers in the types of HAR, and names in a fixed order.
fn normal(entry: &Value) -> Value {
    let entry: HarEntry = serde_json::from_value(entry.clone()).unwrap();
    serde_json::to_value(entry).unwrap()
}

#[test]
fn the_recorder_and_the_obfuscator_agree() {
    for exclude in [
        &[][..],
        &["request.headers.host", "request.path[0]", "request.query.page", "response.headers.location"],
    ] {
        let exclude: Vec<String> = exclude.iter().map(|path: &&str| (*path).to_owned()).collect();
        let expected = obfuscated(
            &written(&plain(), &exchange()),
            &RecordingConfig { exclude: exclude.clone(), ..plain() },
        );
        let config = RecordingConfig { exclude, ..RecordingConfig::default() };
        assert_eq!(normal(&written(&config, &exchange())), expected);
    }
}

#[test]
fn no_response_and_no_sizes_are_valid() {
    let none =
        Observed { response: None, phases: Phases::default(), server: None, connection: None, ..exchange() };
    let entry = written(&RecordingConfig { bodies: Bodies::None, ..plain() }, &none);
    assert_eq!(
        (&entry["response"]["status"], &entry["time"], &entry["request"]["bodySize"]),
        (&json!(0), &json!(0), &json!(-1))
    );
}

type OwnedFields = Vec<(Vec<u8>, Vec<u8>)>;

/// Header fields, a body, and `true` if the body is complete.
type OwnedMessage = (OwnedFields, Vec<u8>, bool);

/// An exchange that owns its bytes.
#[derive(Debug, Clone)]
struct Owned {
    tls: bool,
    host: String,
    port: u16,
    method: Vec<u8>,
    target: Vec<u8>,
    request: OwnedMessage,
    response: Option<(u16, Vec<u8>, OwnedMessage)>,
    phases: [Option<u64>; 7],
    consumer: Vec<u8>,
}

fn borrowed(fields: &OwnedFields) -> Vec<ObservedField<'_>> {
    fields.iter().map(|(name, value)| ObservedField { name, value }).collect()
}

impl Owned {
    fn observed(&self) -> Observed<'_> {
        let captured = |bytes| Captured { bytes, is_whole: true, is_wanted: true };
        let [blocked_us, dns_us, connect_us, tls_us, send_us, wait_us, receive_us] = self.phases;
        let (request_fields, request_body, request_is_whole) = &self.request;
        Observed {
            started_unix_us: send_us.unwrap_or(0),
            request: ObservedRequest {
                method: &self.method,
                tls: self.tls,
                host: &self.host,
                port: self.port,
                target: &self.target,
                version: HttpVersion::Http11,
                fields: borrowed(request_fields),
                head_bytes: 10,
                body_bytes: request_body.len() as u64,
                body: Captured { is_whole: *request_is_whole, ..captured(request_body) },
            },
            response: self.response.as_ref().map(|(status, reason, (response_fields, body, is_whole))| {
                ObservedResponse {
                    status: *status,
                    reason,
                    version: HttpVersion::Http11,
                    fields: borrowed(response_fields),
                    head_bytes: 10,
                    body_bytes: body.len() as u64 * 2,
                    body: Captured { is_whole: *is_whole, ..captured(body) },
                }
            }),
            phases: Phases {
                blocked_us,
                dns_us,
                connect_us,
                tls_us,
                send_us: send_us.unwrap_or(0),
                wait_us: wait_us.unwrap_or(0),
                receive_us: receive_us.unwrap_or(0),
            },
            server: None,
            connection: None,
            notes: Notes { consumer: &self.consumer, attempts: 2, is_cut_short: true, ..Notes::default() },
        }
    }
}

/// Generates bytes, some of which are values with a meaning.
fn any_value() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        "[ -~]{0,20}".prop_map(String::into_bytes),
        prop::collection::vec(any::<u8>(), 0..12),
        prop::sample::select(vec![
            "session=\"abc\"; theme=dark; bare; =x; ;",
            "id=1; Path=/a/b; Domain=x.example; Expires=Wed, 21 Oct 2026 07:28:00 GMT; Secure; SameSite=Odd; Own=c; HttpOnly=1",
            "Bearer tok-987-654",
            "https://ada:secret@x.example/a%20b/c?d=e&f#g",
            "/relative/../path?token=%FF&token=1",
            "ada@example.com",
            "text/html; charset=ISO-8859-1",
            "multipart/form-data; boundary=b",
            "Bearer my-team-token",
            "https://ada:hunter2@x.example/?access_token=ya%2029&a=b;c#id_token=x",
            "password=hunter2&user[pin]=1&page=2",
            "{\"password\": \"hunter2\", \"tokens\": [{\"session\": {\"id\": 5}}]}",
            "data: {\"apiKey\":\"a\"}\n\ndata: {\"name\":\"token\",\"value\":7}\n",
            "X-Api-Key: live\nCookie: a=b",
            "a=b; Path=/, sid=c; Foo=bar; Expires=Wed, 21 Oct 2026 07:28:00 GMT, d=e",
        ])
        .prop_map(|text| text.as_bytes().to_vec()),
    ]
}

fn any_field() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let names = [
        "Cookie",
        "set-cookie",
        "Set-Cookie",
        "Location",
        "Authorization",
        "Referer",
        "X-A",
        "X-Api-Key",
        "password",
        "X-Session-Id",
        ":path",
        "Host",
    ];
    let name = prop_oneof![
        4 => prop::sample::select(names.to_vec()).prop_map(|name| name.as_bytes().to_vec()),
        1 => any_value(),
    ];
    (name, any_value())
}

/// Generates a body with matching `Content-Type` and `Content-Encoding` fields.
fn any_body() -> impl Strategy<Value = (OwnedFields, Vec<u8>)> {
    let json = any_json().prop_map(|json| ("application/json", serde_json::to_vec_pretty(&json).unwrap()));
    let form = "([a-c%+ é]{0,3}(_token|%5Fpin)?(=[a-c%+=é]{0,4})?&?){0,4}"
        .prop_map(|form| ("application/x-www-form-urlencoded", form.into_bytes()));
    let parts = prop::collection::vec((r#"[a-c"\\; ]{0,4}|password|a\[pin\]"#, any_value()), 0..4).prop_map(|parts| {
        let mut body = Vec::new();
        for (name, content) in parts {
            body.extend_from_slice(format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"; filename=x\r\nContent-Type: application/json\r\n\r\n").as_bytes());
            body.extend_from_slice(&content);
            body.extend_from_slice(b"\r\n");
        }
        body.extend_from_slice(b"--b--\r\n");
        ("multipart/form-data; boundary=b", body)
    });
    let other = (
        prop::sample::select(vec![
            "text/plain",
            "image/png",
            "text/plain; charset=latin1",
            "x/y; charset=utf-16",
            "",
        ]),
        any_value(),
    );
    (prop_oneof![json, form, parts, other], prop::sample::select(vec!["", "gzip", "zstd", "br", "odd"]))
        .prop_map(|((media_type, body), coding)| {
            let body = match coding {
                "gzip" | "zstd" => coded(coding, &body),
                _ => body,
            };
            let fields = [("Content-Type", media_type), ("content-encoding", coding)];
            let fields = fields.into_iter().filter(|(_, value)| !value.is_empty());
            (
                fields.map(|(name, value)| (name.as_bytes().to_vec(), value.as_bytes().to_vec())).collect(),
                body,
            )
        })
}

fn any_exchange() -> impl Strategy<Value = Owned> {
    let target = prop_oneof![
        "(/[a-z%0-9.é]{0,4}(;token=[a-c]{0,2})?){0,4}(\\?([a-c%+ é\"]{0,3}(pin|p%69n|id_token)?(=[a-cA-F0-9%+=é]{0,4})?&?){0,4})?"
            .prop_map(String::into_bytes),
        any_value(),
        Just(b"*".to_vec()),
    ];
    let message = || {
        (prop::collection::vec(any_field(), 0..5), any_body(), prop::bool::weighted(0.8)).prop_map(
            |(mut fields, (own, body), is_whole)| {
                fields.extend(own);
                (fields, body, is_whole)
            },
        )
    };
    let response = prop::option::weighted(
        0.8,
        (any::<u16>(), prop_oneof![Just(b"OK".to_vec()), any_value()], message()),
    );
    let phases = prop::array::uniform7(prop::option::of(0_u64..1 << 50));
    let host = prop_oneof![Just("api.example.com".to_owned()), Just("::1".to_owned()), any::<String>()];
    let method = prop_oneof![Just(b"POST".to_vec()), any_value()];
    (
        any::<bool>(),
        host,
        prop_oneof![Just(443), any::<u16>()],
        method,
        target,
        message(),
        response,
        phases,
        any_value(),
    )
        .prop_map(|(tls, host, port, method, target, request, response, phases, consumer)| Owned {
            tls,
            host,
            port,
            method,
            target,
            request,
            response,
            phases,
            consumer,
        })
}

/// Returns a config that keeps all bodies.
fn with_bodies(config: RecordingConfig) -> RecordingConfig {
    RecordingConfig { bodies: "64KiB".parse().unwrap(), media_types: vec!["*/*".to_owned()], ..config }
}

const EXCLUDED: [&str; 8] = [
    "request.headers.x-a",
    "request.query.a",
    "request.path[1]",
    "request.cookies.theme",
    "request.body.$.a",
    "response.body.$.*",
    "response.headers.location",
    "response.cookies.id",
];

#[test]
fn a_url_keeps_its_host_and_port_whatever_is_found_behind_them() {
    let token = "Qm3kT9vXz2LpR8sWc5YdF1hJ7nBgA4eUo6iKqMtV";
    let guarded = RecordingConfig { obfuscate: false, ..RecordingConfig::default() };
    for target in ["/", "/v1/", "/v1/charges/", "/?a=", "?"].map(|start| format!("{start}{token}")) {
        let mut exchange = exchange();
        exchange.request.host = "127.0.0.1";
        exchange.request.port = 18_999;
        exchange.request.target = target.as_bytes();
        let entry = written(&guarded, &exchange);
        let url = entry["request"]["url"].as_str().unwrap();
        let rest = url.strip_prefix("https://127.0.0.1:18999").unwrap();
        assert!(rest.starts_with(['/', '?']) && rest.contains("egr_") && !rest.contains(token), "{url}");
    }
}

proptest! {
    #[test]
    fn whatever_was_observed_is_valid_and_obfuscated_as_any_archive(exchange in any_exchange(), excludes: bool) {
        let exchange = exchange.observed();
        let plain = written(&with_bodies(plain()), &exchange);
        let guarded = written(&with_bodies(RecordingConfig { obfuscate: false, ..RecordingConfig::default() }), &exchange);
        prop_assert_eq!(scan(&guarded), [], "{:#}", guarded);
        let exclude: Vec<String> = EXCLUDED.iter().filter(|_| excludes).map(|path: &&str| (*path).to_owned()).collect();
        let config = with_bodies(RecordingConfig { exclude, ..RecordingConfig::default() });
        let expected = obfuscated(&plain, &config);
        let write_redacted = written(&config, &exchange);
        prop_assert_eq!(normal(&write_redacted), expected, "{:#}", plain);
        if !excludes {
            prop_assert_eq!(scan(&write_redacted), [], "{:#}", write_redacted);
        }
    }

    #[test]
    fn every_entry_is_a_document_of_alf(exchange in any_exchange()) {
        let mut entry = Vec::new();
        recorder(&with_bodies(plain())).write(&exchange.observed(), &mut entry);
        let envelope = alf::Envelope { service_token: "token", ..alf::Envelope::default() };
        for version in [alf::Version::V1_0_0, alf::Version::V1_1_0, alf::Version::V2_0_0] {
            let mut out = Vec::new();
            alf::write(version, &entry, &envelope, &mut out).unwrap();
            alf::tests::check(version, &serde_json::from_slice(&out).unwrap());
        }
    }
}

/// Returns the `content` recorded for a body with these header fields.
fn content(media_type: &str, coding: &str, sent: &[u8], is_whole: bool) -> Value {
    let mut exchange = exchange();
    let response = exchange.response.as_mut().unwrap();
    response.fields = [("Content-Type", media_type), ("Content-Encoding", coding)]
        .map(|(name, value)| ObservedField { name: name.as_bytes(), value: value.as_bytes() })
        .to_vec();
    response.body_bytes = sent.len() as u64;
    response.body = Captured { bytes: sent, is_whole, is_wanted: true };
    written(&with_bodies(plain()), &exchange)["response"]["content"].clone()
}

#[test]
fn bodies_are_told_as_what_they_are() {
    let json = b"{\"name\":\"\xc3\xa9\"}";
    let zipped = coded("gzip", &json.repeat(100));
    let saved = i64::try_from(100 * json.len()).unwrap() - i64::try_from(zipped.len()).unwrap();
    for (media_type, coding, sent, is_whole, expected) in [
        ("application/json", "identity", &json[..], true, json!({"size": 13, "text": "{\"name\":\"é\"}"})),
        (
            "application/json",
            "",
            &json[..10],
            false,
            json!({"size": 10, "text": "{\"name\":\"", "_truncated": true}),
        ),
        (
            "application/json",
            "gzip",
            &zipped,
            true,
            json!({"size": 1300, "compression": saved, "text": "{\"name\":\"é\"}".repeat(100), "_malformed": true}),
        ),
        ("text/plain", "br", &json[..], true, json!({"size": -1, "text": "", "_corrupt": true})),
        (
            "text/plain",
            "odd",
            b"abc",
            true,
            json!({"size": -1, "text": "YWJj", "encoding": "base64", "_coded": true}),
        ),
        ("text/plain; charset=Latin1", "", b"\xe9", true, json!({"size": 1, "text": "é"})),
        ("text/plain; charset=utf-16", "", b"\0a", true, json!({"size": 2, "text": "a"})),
        (
            "text/plain; charset=utf-16",
            "",
            b"\0a\0",
            true,
            json!({"size": 3, "text": "AGEA", "encoding": "base64"}),
        ),
        ("image/png", "", b"\x89PNG", true, json!({"size": 4, "text": "iVBORw==", "encoding": "base64"})),
    ] {
        let mut expected = expected;
        expected["mimeType"] = json!(media_type);
        assert_eq!(content(media_type, coding, sent, is_whole), expected, "{media_type}, {coding}");
    }
}

#[test]
fn the_completeness_of_bodies_is_counted() {
    let recording = Recording::compile(&with_bodies(plain())).unwrap();
    let mut recorder = Recorder::new(Key::new(&[7; 32]), &recording);
    for (coding, sent, is_whole) in [
        ("", &b"[1]"[..], true),
        ("", b"[1", false),
        ("gzip", b"[1]", true),
        ("odd", b"[1]", true),
        ("", b"[1", true),
    ] {
        let mut exchange = exchange();
        let response = exchange.response.as_mut().unwrap();
        let codings = coding.as_bytes();
        response.fields = fields(&[("Content-Type", b"application/json"), ("Content-Encoding", codings)]);
        response.body = Captured { bytes: sent, is_whole, is_wanted: true };
        response.body_bytes = 3;
        recorder.write(&exchange, &mut Vec::new());
    }
    assert_eq!(recorder.bodies(), &[1; 5]);
}

#[test]
fn a_bomb_is_told_as_far_as_it_is_decoded() {
    let content = content("text/plain", "gzip", &coded("gzip", &vec![b'a'; 5 << 20]), true);
    assert_eq!((&content["size"], &content["_truncated"]), (&json!(-1), &json!(true)));
    assert_eq!(content["text"].as_str().unwrap().len(), 1 << 20);
}

#[test]
fn bodies_that_nobody_wants_are_not_told() {
    let config = RecordingConfig { bodies: "8B".parse().unwrap(), ..plain() };
    let body = Captured { bytes: b"{\"name\":1}", is_whole: true, is_wanted: true };
    let mut exchange = exchange();
    let response = exchange.response.as_mut().unwrap();
    response.body = body;
    let content = &written(&config, &exchange)["response"]["content"];
    assert_eq!((&content["text"], &content["_truncated"]), (&json!("{\"name\":"), &json!(true)));
    let response = exchange.response.as_mut().unwrap();
    response.fields = fields(&[("Content-Type", b"image/png")]);
    assert_eq!(
        written(&config, &exchange)["response"]["content"],
        json!({"size": 60, "mimeType": "image/png"})
    );
    let response = exchange.response.as_mut().unwrap();
    response.body = Captured { is_wanted: false, ..body };
    response.fields = fields(&[("Content-Type", b"application/json"), ("Content-Encoding", b"gzip")]);
    assert_eq!(
        written(&config, &exchange)["response"]["content"],
        json!({"size": -1, "mimeType": "application/json"})
    );
}

#[test]
fn forms_have_params() {
    let form = b"a=x+y&b=%C3%A9&c";
    let parts = b"--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"me.txt\"\r\nContent-Type: text/plain\r\n\r\nhello\r\n--b--\r\n";
    for (media_type, body, expected) in [
        (
            "application/x-www-form-urlencoded",
            &form[..],
            json!([{"name": "a", "value": "x y"}, {"name": "b", "value": "é"}, {"name": "c", "value": ""}]),
        ),
        (
            "multipart/form-data; boundary=b",
            &parts[..],
            json!([{"name": "f", "value": "hello", "fileName": "me.txt", "contentType": "text/plain"}]),
        ),
    ] {
        let mut exchange = exchange();
        exchange.request.fields = fields(&[("content-type", media_type.as_bytes())]);
        exchange.request.body = Captured { bytes: body, is_whole: true, is_wanted: true };
        let post_data = &written(&with_bodies(plain()), &exchange)["request"]["postData"];
        assert_eq!((&post_data["params"], &post_data["mimeType"]), (&expected, &json!(media_type)));
        assert_eq!(post_data["text"], json!(String::from_utf8_lossy(body)));
    }
}

#[test]
fn odd_exchanges_are_told_as_valid_urls() {
    for (tls, host, port, target, expected) in [
        (false, "a.example", 80, "/", "http://a.example/"),
        (false, "a.example", 443, "/", "http://a.example:443/"),
        (true, "2001:db8::1", 8443, "/a b#c?d=\"e\"", "https://[2001:db8::1]:8443/a%20b%23c?d=\"e\""),
        (true, "[2001:db8::1]", 443, "/", "https://[2001:db8::1]/"),
        (true, "a.example", 443, "*", "https://a.example"),
        (true, "a.example", 443, "?q", "https://a.example?q"),
        (true, "a.example", 443, "é", "https://a.example/%C3%A9"),
        (true, "a/b@c", 443, "", "https://a%2Fb%40c"),
    ] {
        let mut exchange = exchange();
        let request = &mut exchange.request;
        (request.tls, request.host, request.port, request.target) = (tls, host, port, target.as_bytes());
        assert_eq!(written(&plain(), &exchange)["request"]["url"], expected);
    }
}

#[test]
fn field_values_other_than_utf_8_are_latin_1() {
    let mut exchange = exchange();
    exchange.request.fields = fields(&[("X-A", b"caf\xe9 \x01"), ("X-B", "café".as_bytes())]);
    let entry = written(&plain(), &exchange);
    let values: Vec<&Value> =
        entry["request"]["headers"].as_array().unwrap().iter().map(|field| &field["value"]).collect();
    assert_eq!(values, ["café \u{1}", "café"]);
}

#[test]
fn names_that_a_config_gives_are_of_secrets_too() {
    let config = RecordingConfig { obfuscate: false, ..RecordingConfig::default() };
    let names = [Box::from("X-Team"), Box::from("k")];
    let recording = Recording::compile(&with_bodies(config)).unwrap().with_secret_names(&names);
    let mut exchange = exchange();
    exchange.request.target = b"/a?k=hunter&page=2";
    exchange.request.fields =
        fields(&[("x-team", b"hunter"), ("x-teams", b"plain"), ("Content-Type", b"application/json")]);
    exchange.request.body = Captured { bytes: b"{\"K\":\"hunter\"}", is_whole: true, is_wanted: true };
    let mut out = Vec::new();
    Recorder::new(Key::new(&KEY), &recording).write(&exchange, &mut out);
    let entry: Value = serde_json::from_slice(&out).unwrap();
    let write_redacted = entry.to_string();
    assert!(
        !write_redacted.contains("hunter")
            && write_redacted.contains("plain")
            && write_redacted.contains("page=2"),
        "{entry:#}"
    );
    assert_eq!(entry["request"]["headers"][0]["value"], Key::new(&KEY).text(b"hunter").as_str());
}

fn masked<const N: usize>(mask: [&str; N]) -> RecordingConfig {
    let mask = mask.map(str::to_owned).into();
    RecordingConfig { obfuscate: false, mask, ..RecordingConfig::default() }
}

#[test]
fn masked_kinds_are_hidden_in_every_part() {
    let json = br#"{"note":"DE89 3704 0044 0532 0130 00, (202) 555-0143","192.0.2.7":["123-45-6789",5]}"#;
    let mut exchange = exchange();
    exchange.request.target = b"/pay/DE89370400440532013000?to=%2B49%2030%20901820&page=2";
    exchange.request.fields =
        fields(&[("X-Note", b"from 2001:db8::7, call +49 30 901820"), ("Content-Type", b"application/json")]);
    exchange.request.body = Captured { bytes: json, is_whole: true, is_wanted: true };
    exchange.notes = Notes { consumer: b"+4930901820", request_id: "192.0.2.7", ..Notes::default() };
    let config = with_bodies(masked(["iban", "phone", "ip", "ssn"]));
    let entry = written(&config, &exchange);
    let text = entry.to_string();
    for hidden in ["DE89", "901820", "555-0143", "192.0.2.7", "2001:db8", "45-6789", "30%20", "+49", "%2B"] {
        assert!(!text.contains(hidden), "{hidden}: {text}");
    }
    for shown in ["/pay/", "page=2", "from egr_", ", call egr_", "\\\"note\\\":\\\"egr_", ",5]"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    assert_eq!(scan(&entry), []);
    let unmasked = written(&with_bodies(masked([])), &exchange).to_string();
    assert!(unmasked.contains("DE89370400440532013000") && unmasked.contains("+49 30 901820"), "{unmasked}");
}

/// Any JSON with masked and other names, and with values that look like no secret.
fn any_named_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (0_u16..1_000).prop_map(Value::from),
        "[b-d]{0,8}".prop_map(Value::from),
    ];
    let name = prop::sample::select(vec!["a", "b", "phone", "first_name", "firstName", "first-names"]);
    leaf.prop_recursive(5, 48, 5, move |inner| {
        let member = (name.clone(), inner.clone()).prop_map(|(name, value)| (name.to_owned(), value));
        prop_oneof![
            prop::collection::vec(inner, 0..5).prop_map(Value::from),
            prop::collection::vec(member, 0..5)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

/// Replaces the values under masked names, and all values if `is_masked`.
fn with_masks(value: &Value, is_masked: bool) -> Value {
    let key = Key::new(&KEY);
    match value {
        Value::Array(elements) => elements.iter().map(|element| with_masks(element, is_masked)).collect(),
        Value::Object(members) => {
            let is_mask = |name: &str| ["phone", "first_name", "firstName"].contains(&name);
            let member = |(name, value): (&String, &Value)| {
                (name.clone(), with_masks(value, is_masked || is_mask(name)))
            };
            members.iter().map(member).collect()
        }
        Value::String(text) if is_masked && !text.is_empty() => key.text(text.as_bytes()).as_str().into(),
        Value::Number(number) if is_masked => key.number(number.to_string().as_bytes()).into(),
        other => other.clone(),
    }
}

proptest! {
    #[test]
    fn masked_names_hide_what_they_hold_and_nothing_else(value in any_named_json()) {
        let body = value.to_string();
        let mut exchange = exchange();
        exchange.request.fields = fields(&[("Content-Type", b"application/json")]);
        exchange.request.body = Captured { bytes: body.as_bytes(), is_whole: true, is_wanted: true };
        let entry = written(&with_bodies(masked(["Phone", "first-name"])), &exchange);
        let expected = with_masks(&value, false).to_string();
        prop_assert_eq!(&entry["request"]["postData"]["text"], &Value::from(expected));
    }
}

#[test]
fn notes_are_written_as_custom_members() {
    let notes = Notes {
        provider: "stripe",
        flow: "record",
        remedies: "retry=2",
        attempts: 2,
        account: "main",
        request_id: "018bcfe5-6800-7a2b-8c3d-0123456789ab",
        consumer: b"ada@example.com",
        error: "timeout",
        grpc_status: "unavailable",
        client_closed_us: Some(302_500),
        is_cut_short: true,
        is_generated: true,
        is_intercepted: true,
    };
    let exchange = Observed { notes, ..exchange() };
    let consumer = Key::new(&KEY).text(b"ada@example.com").to_string();
    for (config, consumer) in [
        (plain(), "ada@example.com"),
        (RecordingConfig::default(), &*consumer),
        (RecordingConfig { obfuscate: false, ..RecordingConfig::default() }, &*consumer),
    ] {
        let entry = written(&config, &exchange);
        for (name, value) in [
            ("_provider", json!("stripe")),
            ("_flow", json!("record")),
            ("_remedies", json!("retry=2")),
            ("_attempts", json!(2)),
            ("_account", json!("main")),
            ("comment", json!("request_id=018bcfe5-6800-7a2b-8c3d-0123456789ab")),
            ("_consumer", json!(consumer)),
            ("_error", json!("timeout")),
            ("_grpcStatus", json!("unavailable")),
            ("_generated", json!(true)),
            ("_cutShort", json!(true)),
            ("_clientClosed", json!(302.5)),
            ("_intercepted", json!(true)),
        ] {
            assert_eq!(entry[name], value, "{name}");
        }
        assert_eq!(entry.get(MARK).is_some(), config.obfuscate);
    }
}
