//! Secrets of every kind, planted in every part of an exchange that can hold a value.
//!
//! They are assembled at run time, so repository scanners do not mistake them for real ones.

use serde_json::{Value, json};

use crate::coded::coded;

/// Returns text that a detector considers random, but that is the same in each run.
fn random(letters: &str, len: usize) -> String {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let letter = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        char::from(letters.as_bytes()[usize::try_from(state % letters.len() as u64).unwrap()])
    };
    (0..len).map(letter).collect()
}

const BASE62: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";
const UPPER: &str = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";
const HEX: &str = "0123456789abcdef";

/// Returns secrets of every detected kind, each with the part that must not be found anywhere.
pub fn secrets() -> Vec<(String, String)> {
    let token = |prefix: &str, letters: &str, len: usize| {
        let random = random(letters, len);
        (format!("{prefix}{random}"), random)
    };
    let whole = |text: &str| (text.to_owned(), text.to_owned());
    vec![
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln-_x12345".to_owned(), "c2ln-_x12345".to_owned()),
        token("AKIA", UPPER, 16),
        token("AIza", BASE62, 35),
        token("GOCSPX-", BASE62, 28),
        token("abc8Q~", BASE62, 34),
        token("ghp_", BASE62, 36),
        token("sk_live_", BASE62, 24),
        token("xoxb-", BASE62, 40),
        token("sk-", BASE62, 48),
        token("hf_", BASE62, 34),
        (
            "-----BEGIN PRIVATE KEY-----\nMIIEplanted\nabc=\n-----END PRIVATE KEY-----".to_owned(),
            "MIIEplanted".to_owned(),
        ),
        whole("4111111111111111"),
        whole("5555 5555 5555 4444"),
        whole("ada.lovelace+tag@mail.example.co.uk"),
        ("Bearer tok-987-654".to_owned(), "tok-987-654".to_owned()),
        ("Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==".to_owned(), "QWxhZGRpbjpvcGVuIHNlc2FtZQ".to_owned()),
        token("", BASE62, 40),
        token("", HEX, 40),
    ]
}

/// Percent-encodes a text.
pub fn encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}

/// Writes every letter as an escape.
fn escaped(text: &str) -> String {
    text.bytes().fold(String::new(), |escaped, byte| escaped + &format!("\\u{byte:04x}"))
}

/// A message with a secret in it.
#[derive(Debug, Clone, Default)]
pub struct PlantedSecret {
    /// Its position.
    pub position: &'static str,
    /// The request target, which may contain it.
    pub target: String,
    /// Header fields, for the request and the response.
    pub fields: Vec<(&'static str, String)>,
    /// The body of the request and the response.
    pub body: Vec<u8>,
    /// `true` if the body is truncated.
    pub is_cut: bool,
}

/// Returns one message for every part of an exchange that can hold a value.
pub fn planted(secret: &str) -> Vec<PlantedSecret> {
    let one_line = secret.replace('\n', " ");
    let (in_url, quoted) = (encoded(secret), json!(secret).to_string());
    let field = |name, value: String| PlantedSecret {
        position: name,
        fields: vec![(name, value)],
        ..PlantedSecret::default()
    };
    let url = |position, target: String| PlantedSecret { position, target, ..PlantedSecret::default() };
    let body = |position, media_type: &str, body: Vec<u8>| PlantedSecret {
        position,
        fields: vec![("Content-Type", media_type.to_owned())],
        body,
        ..PlantedSecret::default()
    };
    let deep = format!("{}{quoted}{}", "{\"a\":[1,".repeat(40), "]}".repeat(40));
    let zipped = body("gzip body", "application/json", coded("gzip", deep.as_bytes()));
    let parts = format!(
        "--b\r\nContent-Disposition: form-data; name=\"a\"; filename={quoted}\r\n\r\n{secret}\r\n--b\r\n\
         Content-Type: application/json\r\nContent-Disposition: form-data; name=\"c\"\r\n\r\n{deep}\r\n--b--\r\n"
    );
    let json = "application/json";
    vec![
        field("X-Custom", one_line.clone()),
        field("Authorization", one_line.clone()),
        field("Cookie", format!("theme=dark; session={one_line}")),
        field("Set-Cookie", format!("session={one_line}; Path=/{one_line}; Secure")),
        field("Location", format!("https://x.example/{in_url}?a={in_url}#{in_url}")),
        field("Content-Type", format!("text/plain; x=\"{one_line}\"")),
        url("path", format!("/v1/{in_url}/items")),
        url("query", format!("/v1?page=2&token={in_url}&x=y")),
        url("bare query", format!("/v1?{in_url}")),
        body("JSON", json, deep.clone().into_bytes()),
        body("JSON key", json, format!("{{\"a\":{{{quoted}:1}}}}").into_bytes()),
        body("JSON escapes", json, format!("{{\"a\":\"{}\"}}", escaped(secret)).into_bytes()),
        PlantedSecret {
            is_cut: true,
            ..body("JSON cut off", json, deep.as_bytes()[..deep.len() - 60].to_vec())
        },
        body("no JSON", json, format!("{{'a': '{secret}'}}").into_bytes()),
        body("form", "application/x-www-form-urlencoded", format!("a=b&c={in_url}").into_bytes()),
        body("multipart", "multipart/form-data; boundary=b", parts.into_bytes()),
        body("text", "text/html; charset=utf-8", format!("<p>{secret}</p>").into_bytes()),
        body("Latin-1", "text/plain; charset=latin1", [b"\xe9 ", secret.as_bytes()].concat()),
        body(
            "UTF-16",
            "text/plain; charset=utf-16",
            one_line.encode_utf16().flat_map(u16::to_be_bytes).collect(),
        ),
        field("Set-Cookie", format!("a=b; SameSite={one_line}; {one_line}")),
        body("binary", "image/png", [&b"\x89PNG\xff\xfe "[..], secret.as_bytes(), b" \xff"].concat()),
        PlantedSecret {
            fields: [zipped.fields.clone(), vec![("Content-Encoding", "gzip".to_owned())]].concat(),
            ..zipped
        },
    ]
}

/// Collects every text in a value, including names, as it is and decoded from percent-encoding and base64.
pub fn texts(value: &Value, found: &mut Vec<String>) {
    let mut add = |text: &str| {
        found.push(text.to_owned());
        let decoded = text.split('%').enumerate().map(|(index, part)| {
            match part.get(..2).map(|hex| u8::from_str_radix(hex, 16)) {
                Some(Ok(byte)) if index > 0 => format!("{}{}", char::from(byte), &part[2..]),
                _ => part.to_owned(),
            }
        });
        found.push(decoded.collect());
    };
    match value {
        Value::String(text) => add(text),
        Value::Number(number) => add(&number.to_string()),
        Value::Array(elements) => elements.iter().for_each(|element| texts(element, found)),
        Value::Object(members) => {
            for (name, value) in members {
                add(name);
                // JSON bodies are parsed and searched as well.
                let inner = value.as_str().and_then(|text| serde_json::from_str::<Value>(text).ok());
                if let Some(inner) = inner.filter(|inner| inner.is_object() || inner.is_array()) {
                    let mut within = Vec::new();
                    texts(&inner, &mut within);
                    for text in &within {
                        add(text);
                    }
                }
            }
            for value in members.values() {
                texts(value, found);
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
}
