//! Tests of the places in which a placeholder is replaced, and of those in which it is not.

use egret_clock::Timestamp;
use egret_http1::{HeadLimits, Progress, RequestHead};
use egret_message::Changes;
use proptest::prelude::*;

use super::*;

const WORD: &str = "{{KEY/1}}";
const SECRET: &str = "s\"e/c&r\\et=é";
const ALL: [RequestPart; 3] = [RequestPart::Header, RequestPart::Query, RequestPart::Body];

fn config(text: &str, parts: &[RequestPart]) -> PlaceholderConfig {
    PlaceholderConfig {
        text: text.to_owned(),
        parts: parts.iter().copied().collect(),
        body: Size::from_kib(1024),
        headers: Vec::new(),
        parameters: Vec::new(),
        pointers: Vec::new(),
    }
}

/// Returns a placeholder for all parts of a request, limited to these places.
fn in_places(headers: &[&str], parameters: &[&str], pointers: &[&str]) -> Placeholder {
    let owned = |names: &[&str]| names.iter().copied().map(str::to_owned).collect();
    let (headers, parameters, pointers) = (owned(headers), owned(parameters), owned(pointers));
    Placeholder::compile(&PlaceholderConfig { headers, parameters, pointers, ..config(WORD, &ALL) }, "p")
        .unwrap()
}

fn placeholder(parts: &[RequestPart]) -> Placeholder {
    Placeholder::compile(&config(WORD, parts), "p").unwrap()
}

/// A request as it is sent: its target, its header lines except Host, its body.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Sent {
    target: String,
    lines: Vec<String>,
    body: String,
}

/// Sends a request with the header lines `lines` through `placeholder`.
fn swapped(placeholder: &Placeholder, target: &str, lines: &str, body: &str) -> Result<(bool, Sent), Fault> {
    let bytes = format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n").into_bytes();
    let mut head = RequestHead::new();
    assert_eq!(head.parse(&bytes, &HeadLimits::default()).unwrap(), Progress::Complete);
    let (path, query) = egret_message::request_target::split_target(target.as_bytes());
    let fields = Fields::received(&head.fields, &bytes);
    let outgoing = Outgoing {
        now: Timestamp::from_secs(0),
        tls: true,
        method: b"POST",
        host: b"h",
        base: b"",
        path,
        query,
        fields,
        body: Some(body.as_bytes()),
    };
    let mut applied = Applied::default();
    let is_there = placeholder.swap(SECRET, &outgoing, &mut applied)?;
    if !is_there {
        assert!(applied.fields.is_empty() && applied.target.is_none() && applied.body.is_none());
    }
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let Applied { fields: changes, target: new_target, body: new_body } = &applied;
    let line = |(name, value): (&[u8], &[u8])| format!("{}: {}", text(name), text(value));
    let sent = Sent {
        target: new_target.as_deref().map_or(target.to_owned(), text),
        lines: Fields::new(&head.fields, &bytes, changes).iter().skip(1).map(line).collect(),
        body: new_body.as_deref().map_or(body.to_owned(), text),
    };
    Ok((is_there, sent))
}

fn base64_of(text: &str) -> String {
    let mut out = Vec::new();
    base64::encode(text.as_bytes(), &mut out);
    String::from_utf8(out).unwrap()
}

#[test]
fn fields_get_the_secret_where_the_word_stands() {
    let lines = format!("X-A: 1\r\nCookie: a={WORD}; b={WORD}\r\nX-B: {WORD}\r\nCookie: c\r\nx-b: 2\r\n");
    let (is_there, sent) = swapped(&placeholder(&ALL), "/a?b", &lines, "").unwrap();
    assert!(is_there);
    let cookie = format!("Cookie: a={SECRET}; b={SECRET}");
    assert_eq!(sent.lines, ["X-A: 1", &*cookie, "Cookie: c", &*format!("X-B: {SECRET}"), "x-b: 2"]);
    assert_eq!((&*sent.target, &*sent.body), ("/a?b", ""));
}

#[test]
fn credentials_of_basic_are_looked_into() {
    for (before, after) in [
        (format!("user:{WORD}"), format!("user:{SECRET}")),
        (format!("{WORD}:"), format!("{SECRET}:")),
        (format!("{WORD}:x{WORD}"), format!("{SECRET}:x{WORD}")),
    ] {
        for scheme in ["Basic", "basic"] {
            let lines = format!("Authorization: {scheme} {}\r\n", base64_of(&before));
            let (is_there, sent) = swapped(&placeholder(&ALL), "/", &lines, "").unwrap();
            assert!(is_there);
            assert_eq!(sent.lines, [format!("Authorization: Basic {}", base64_of(&after))]);
        }
    }
    let lines = format!("Authorization: Basic {}\r\n", base64_of(&format!("{WORD}:x{WORD}")));
    let (_, sent) = swapped(&in_places(&["authorization"], &[], &[]), "/", &lines, "").unwrap();
    assert_eq!(sent.lines, [format!("Authorization: Basic {}", base64_of(&format!("{SECRET}:x{SECRET}")))]);
    assert!(!swapped(&in_places(&["x-key"], &[], &[]), "/", &lines, "").unwrap().0);
    // No other field is decoded: that would be a guess.
    let lines = format!("X-Other: Basic {}\r\nAuthorization: Basic no-Base64!\r\n", base64_of(WORD));
    assert!(!swapped(&placeholder(&ALL), "/", &lines, "").unwrap().0);
}

#[test]
fn a_query_gets_it_encoded_however_the_word_is() {
    for word in ["{{KEY/1}}", "%7B%7BKEY%2F1%7D%7D", "%7b{KEY/1}%7d"] {
        let (_, sent) = swapped(&placeholder(&ALL), &format!("/{WORD}?a=1&key={word}&b"), "", "").unwrap();
        assert_eq!(sent.target, format!("/{WORD}?a=1&key=s%22e%2Fc%26r%5Cet%3D%C3%A9&b"), "{word}");
    }
}

#[test]
fn a_body_gets_it_as_its_media_type_has_it() {
    for (media_type, body, expected) in [
        (
            "application/json",
            r#"{"a":["{{KEY/1}}","\u007b{KEY\/1}}"]}"#,
            r#"{"a":["s\"e/c&r\\et=é","s\"e/c&r\\et=é"]}"#,
        ),
        ("application/vnd.api+json; charset=utf-8", r#""{{KEY/1}}""#, r#""s\"e/c&r\\et=é""#),
        (
            "application/x-www-form-urlencoded",
            "a={{KEY/1}}&b=%7B%7BKEY%2F1}}",
            "a=s%22e%2Fc%26r%5Cet%3D%C3%A9&b=s%22e%2Fc%26r%5Cet%3D%C3%A9",
        ),
        ("Text/Plain", "a {{KEY/1}}", "a s\"e/c&r\\et=é"),
    ] {
        let lines = format!("Content-Type: {media_type}\r\nContent-MD5: x\r\n");
        let (is_there, sent) = swapped(&placeholder(&ALL), "/", &lines, body).unwrap();
        assert_eq!((is_there, &*sent.body), (true, expected));
        // The digest of the old body is removed.
        assert_eq!(sent.lines, [format!("Content-Type: {media_type}")]);
        let (is_there, sent) = swapped(&placeholder(&ALL[..2]), "/", &lines, body).unwrap();
        assert_eq!((is_there, &*sent.body), (false, body));
    }
}

#[test]
fn unreadable_bodies_and_reserved_fields_stay() {
    for lines in [
        "Content-Type: application/octet-stream\r\n",
        "Content-Type: application/json\r\nContent-Encoding: gzip\r\n",
        "",
    ] {
        assert!(!swapped(&placeholder(&ALL), "/", lines, WORD).unwrap().0, "{lines}");
    }
    for name in [
        "Connection",
        "Keep-Alive",
        "Proxy-Authorization",
        "Via",
        "X-Forwarded-For",
        "Trailer",
        "TE",
        "Expect",
    ] {
        assert!(is_left_alone(name.as_bytes()), "{name}");
    }
    let lines = format!("Connection: x-once\r\nX-Once: {WORD}\r\nX-Forwarded-For: {WORD}\r\n");
    assert!(!swapped(&placeholder(&ALL), &format!("/{WORD}"), &lines, "").unwrap().0);
}

#[test]
fn a_placeholder_is_a_whole_value_outside_urls() {
    let json = "Content-Type: application/json\r\n";
    let text = "Content-Type: text/xml\r\n";
    for (target, lines, body) in [
        ("/", "Referer: {{KEY/1}}\r\nOrigin: {{KEY/1}}\r\nForwarded: for={{KEY/1}}\r\n", ""),
        ("/", "X-Forwarded-Host: {{KEY/1}}\r\nX-Original-URL: {{KEY/1}}\r\n", ""),
        ("/", "X-Callback: https://evil.example/?k={{KEY/1}}\r\n", ""),
        ("/", "X-Callback: evil.example?k={{KEY/1}}\r\nX-A: {{KEY/1}}.evil.example\r\n", ""),
        ("/", "Cookie: u=https://evil.example/?k={{KEY/1}}\r\n", ""),
        ("/", "Authorization: Custom realm=\"https://evil.example/?k={{KEY/1}}\"\r\n", ""),
        ("/?callback=https://evil.example/?k={{KEY/1}}&b", "", ""),
        ("/?callback=https%3A%2F%2Fevil.example%2F%3Fk%3D%7B%7BKEY%2F1%7D%7D", "", ""),
        ("/?{{KEY/1}}=1&a={{KEY/1}}x", "", ""),
        ("/", json, r#"{"callback":"https://evil.example/?k={{KEY/1}}","a":"\"{{KEY/1}}","{{KEY/1}}":1}"#),
        ("/", text, "<callback>https://evil.example/?k={{KEY/1}}</callback>"),
    ] {
        let (is_there, sent) = swapped(&placeholder(&ALL), target, lines, body).unwrap();
        assert!(!is_there, "{target} {lines} {body} -> {sent:?}");
    }
    for line in [
        "Authorization: Bearer {{KEY/1}}",
        "Authorization: Token token=\"{{KEY/1}}\", n=\"1\"",
        "Authorization: Custom id=1,key={{KEY/1}}",
        "Cookie: a=1; sid=\"{{KEY/1}}\"; b=2",
        "X-Auth: Key {{KEY/1}}",
    ] {
        let (_, sent) = swapped(&placeholder(&ALL), "/", &format!("{line}\r\n"), "").unwrap();
        assert_eq!(sent.lines, [line.replace(WORD, SECRET)]);
    }
    let body = "<a key=\"{{KEY/1}}\">{{KEY/1}}</a>";
    let (_, sent) = swapped(&placeholder(&ALL), "/", text, body).unwrap();
    assert_eq!(sent.body, body.replace(WORD, SECRET));
}

#[test]
fn where_places_are_named_it_stands_there_alone_and_anywhere() {
    let named = in_places(&["X-Key"], &["key"], &["/auth"]);
    let lines =
        "x-key: a {{KEY/1}}, b {{KEY/1}}\r\nAuthorization: {{KEY/1}}\r\nContent-Type: application/json\r\n";
    let body = r#"{"auth":{"a":["x {{KEY/1}}"]},"b":"{{KEY/1}}"}"#;
    let (_, sent) = swapped(&named, "/?k%65y=a{{KEY/1}}&keys={{KEY/1}}&key", lines, body).unwrap();
    assert_eq!(sent.target, "/?k%65y=as%22e%2Fc%26r%5Cet%3D%C3%A9&keys={{KEY/1}}&key");
    assert_eq!(sent.lines[2], format!("x-key: a {SECRET}, b {SECRET}"));
    assert_eq!(sent.lines[0], "Authorization: {{KEY/1}}");
    assert_eq!(sent.body, r#"{"auth":{"a":["x s\"e/c&r\\et=é"]},"b":"{{KEY/1}}"}"#);
    // A body that parsers may read differently has no such place.
    let twice = r#"{"auth":"{{KEY/1}}","auth":1}"#;
    assert_eq!(swapped(&named, "/", "Content-Type: application/json\r\n", twice).unwrap().1.body, twice);
    let form = "Content-Type: application/x-www-form-urlencoded\r\n";
    let (_, sent) = swapped(&named, "/", form, "a={{KEY/1}}&key={{KEY/1}}").unwrap();
    assert_eq!(sent.body, "a={{KEY/1}}&key=s%22e%2Fc%26r%5Cet%3D%C3%A9");
}

#[test]
fn a_removed_field_does_not_come_back() {
    let bytes = format!("GET / HTTP/1.1\r\nHost: h\r\nX-A: {WORD}\r\n\r\n").into_bytes();
    let mut head = RequestHead::new();
    head.parse(&bytes, &HeadLimits::default()).unwrap();
    let mut changes = Changes::default();
    changes.remove(b"x-a");
    changes.add(b"x-b", WORD.as_bytes());
    let fields = Fields::new(&head.fields, &bytes, &changes);
    let mut applied = Applied::default();
    let placeholder = placeholder(&ALL);
    let Placeholder { word, scope, .. } = &placeholder;
    let mut swap = Swap { word, scope, secret: SECRET, left: OCCURRENCES_MAX };
    assert!(swap.fields(fields, &mut applied).unwrap());
    assert_eq!(applied.fields.added().collect::<Vec<_>>(), [(&b"x-b"[..], SECRET.as_bytes())]);
}

#[test]
fn a_request_that_would_grow_without_bounds_is_refused() {
    let often = |times: usize| {
        let lines = format!("X-A: {WORD}\r\nContent-Type: text/plain\r\n");
        swapped(&placeholder(&ALL), "/", &lines, &format!("{WORD} ").repeat(times))
    };
    assert!(often(OCCURRENCES_MAX - 1).unwrap().0);
    assert!(often(OCCURRENCES_MAX).unwrap_err().0.contains("more than 64 times"));
}

#[test]
fn configs_and_secrets_that_cannot_be_are_refused() {
    let wrong = |config: PlaceholderConfig| {
        Placeholder::compile(&config, "p").unwrap_err().path.replacen("p.", "", 1)
    };
    for text in ["", "1234567", "with space", "12345678\n", "12345678é", &"x".repeat(257)] {
        assert_eq!(wrong(config(text, &ALL)), "text", "{text}");
    }
    assert_eq!(wrong(config(WORD, &[])), "in");
    assert_eq!(wrong(PlaceholderConfig { body: Size::from_kib(16 << 11), ..config(WORD, &ALL) }), "body");
    let names = |names: &[&str]| names.iter().copied().map(str::to_owned).collect::<Vec<_>>();
    for name in ["referer", "Host", "x-forwarded-proto", "Content-Length", "a b", ""] {
        assert_eq!(
            wrong(PlaceholderConfig { headers: names(&[name]), ..config(WORD, &ALL) }),
            "headers",
            "{name}"
        );
    }
    for pointer in ["auth", "/a~2"] {
        assert_eq!(
            wrong(PlaceholderConfig { pointers: names(&[pointer]), ..config(WORD, &ALL) }),
            "pointers"
        );
    }
    let (header, body) = ([RequestPart::Header], [RequestPart::Body]);
    assert_eq!(wrong(PlaceholderConfig { headers: names(&["a"]), ..config(WORD, &body) }), "headers");
    assert_eq!(wrong(PlaceholderConfig { parameters: names(&["a"]), ..config(WORD, &header) }), "parameters");
    assert_eq!(wrong(PlaceholderConfig { pointers: names(&["/a"]), ..config(WORD, &header) }), "pointers");
    for secret in ["a\r\nX-Evil: 1", "a\nb", "a\tb", "a\0b", "a\u{85}b"] {
        assert!(secret_problem(secret).is_some(), "{secret:?}");
    }
    assert_eq!(secret_problem(SECRET), None);
}

/// Pieces of real requests, some of which combine to the word.
fn text(parts: &'static [&'static str]) -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(parts), 0..20).prop_map(|parts| parts.concat())
}

const PLAIN: &[&str] = &["{{KEY/1}}", "{{KEY", "/1}}", "{{", "a", "=", ";", "%7B", "\\", "\"", " a"];
const PERCENT: &[&str] =
    &["{{KEY/1}}", "%7B%7BKEY%2F1%7D%7D", "{{KEY", "/1}}", "%7b", "{", "%4B", "a", "=", "%25"];
const JSON: &[&str] = &[
    "{{KEY/1}}",
    "\\u007B{KEY\\/1}}",
    "{{KEY",
    "/1}}",
    "\\/1}}",
    "{",
    "\\\\",
    "\\\"",
    "\\n",
    "\\u00e9",
    "a",
];

proptest! {
    #[test]
    fn whatever_the_request_the_word_is_replaced_and_nothing_else(
        values in prop::collection::vec(text(PLAIN), 1..5),
        query in text(PERCENT),
        json in text(JSON),
    ) {
        let names = ["X-A", "X-B", "x-a", "X-C", "x-b"];
        let trimmed: Vec<_> = values.iter().map(|value| value.trim()).collect();
        let line = |(name, value): (&&str, &&str)| format!("{name}: {value}\r\n");
        let lines: String = names.iter().zip(&trimmed).map(line).collect();
        let lines = lines + "Content-Type: application/json\r\n";
        let target = format!("/p?k={query}");
        let body = format!("[\"{json}\"]");
        let named = in_places(&["x-a", "x-b", "x-c"], &["k"], &[""]);
        let (_, sent) = swapped(&named, &target, &lines, &body).unwrap();
        // Fields of one name stay in order; between different names, the order has no meaning (RFC 9110
        // §5.3).
        let mut expected: Vec<_> = names.iter().zip(&trimmed).map(|(name, value)| format!("{name}: {}", value.replace(WORD, SECRET))).collect();
        expected.push("Content-Type: application/json".to_owned());
        let of = |lines: &[String], name: &str| -> Vec<String> {
            lines.iter().filter(|line| line.to_ascii_lowercase().starts_with(name)).cloned().collect()
        };
        for name in ["x-a:", "x-b:", "x-c:", "content-type:"] {
            prop_assert_eq!(of(&sent.lines, name), of(&expected, name));
        }
        prop_assert_eq!(sent.lines.len(), expected.len());
        let decoded = |query: &str| {
            let mut bytes = Vec::new();
            egret_match::matching::decode(query.as_bytes(), |piece| bytes.extend_from_slice(piece));
            String::from_utf8_lossy(&bytes).into_owned()
        };
        let is_there = decoded(&query).contains(WORD);
        prop_assert_eq!(decoded(&sent.target), format!("/p?k={}", decoded(&query).replace(WORD, SECRET)));
        prop_assert_eq!(is_there, sent.target != target);
        let read = |body: &str| serde_json::from_str::<Vec<String>>(body).unwrap().concat();
        prop_assert_eq!(read(&sent.body), read(&body).replace(WORD, SECRET));
        prop_assert_eq!(read(&body).contains(WORD), sent.body != body);
    }

    #[test]
    fn unless_told_otherwise_what_is_replaced_is_a_whole_value(
        queries in prop::collection::vec(text(PERCENT), 1..4),
        json in text(JSON),
    ) {
        let decoded = |text: &str| String::from_utf8_lossy(&decode_form(text.as_bytes())).into_owned();
        let body = format!("{{\"a\":\"{json}\"}}");
        let target = format!("/p?{}", queries.join("&"));
        let (_, sent) = swapped(&placeholder(&ALL), &target, "Content-Type: application/json\r\n", &body).unwrap();
        for (before, after) in queries.iter().zip(sent.target[3..].split('&')) {
            let value = before.split_once('=').map_or(&**before, |(_, value)| value);
            prop_assert_eq!(decoded(value) == WORD, before != after, "{} {}", before, after);
        }
        let read = |body: &str| serde_json::from_str::<serde_json::Value>(body).unwrap()["a"].as_str().unwrap().to_owned();
        let expected = if read(&body) == WORD { SECRET.to_owned() } else { read(&body) };
        prop_assert_eq!(read(&sent.body), expected);
    }
}
