//! Finds secrets in the HAR file of any recorder: the values that Egret would replace if it recorded the file
//! without secrets.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::base64;
use crate::detect::{self, DetectedSecret, SecretKind};
use crate::har::{Cookie, NameValue};
use crate::key::Key;
use crate::named::{Beside, Meaning, meaning_beside, meaning_within, reveals_nothing};
use crate::redact::{MessageKind, Redact as _};
use crate::secret_remover::SecretRemover;

/// The location of a secret in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// Path of the value, or of the member whose name has the secret: `log.entries[3].request.url`.
    pub path: String,
    /// The secret within the value, after Base64 decoding.
    pub finding: DetectedSecret,
    /// Name of the header field, cookie or parameter, if the value is a secret because of this name.
    pub name: Option<String>,
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.finding.span;
        write!(f, "{}: {} at bytes {start} to {end}", self.path, self.finding.kind)?;
        match &self.name {
            Some(name) => write!(f, ", of `{}`", name.escape_debug()),
            None => Ok(()),
        }
    }
}

/// Returns the possible secrets in all values and names of a file, by content or by name. Bodies in Base64
/// are decoded.
pub fn scan(har: &Value) -> Vec<Location> {
    // Pseudonyms are compared with the original and then discarded, so any key will do.
    let mut scan = HarScan {
        remover: SecretRemover::new(Key::new(&[0; 32]), Arc::default()),
        path: String::new(),
        locations: Vec::new(),
        beside: Beside::Nothing,
    };
    scan.value(har, Meaning::Plain, "");
    scan.locations
}

struct HarScan {
    remover: SecretRemover,
    path: String,
    locations: Vec<Location>,
    /// The neighbours of the name-value pairs in the list that is read.
    beside: Beside,
}

impl HarScan {
    /// Scans a value. `meaning` is that of the names around it; `list` is the name of the list it is in, if
    /// any. The depth is bounded by the recursion limit of `serde_json`.
    fn value(&mut self, value: &Value, meaning: Meaning, list: &str) {
        match value {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => self.leaf(&number.to_string(), meaning),
            Value::String(text) => self.leaf(text, meaning),
            Value::Array(elements) => {
                let names = elements.iter().filter_map(|element| element.get("name")?.as_str());
                let outer = std::mem::replace(&mut self.beside, Beside::of_names(names));
                for (index, element) in elements.iter().enumerate() {
                    self.within(&format!("[{index}]"), |scan| scan.value(element, meaning, list));
                }
                self.beside = outer;
            }
            Value::Object(members) => self.object(members, meaning, list),
        }
    }

    fn within(&mut self, part: &str, inspect: impl FnOnce(&mut Self)) {
        let len = self.path.len();
        self.path.push_str(part);
        inspect(self);
        self.path.truncate(len);
    }

    fn leaf(&mut self, text: &str, meaning: Meaning) {
        if meaning == Meaning::Plain {
            self.inspect(text, None, SecretRemover::text);
        } else if !reveals_nothing(text) {
            self.add(DetectedSecret { kind: SecretKind::Named, span: 0..text.len() }, None);
        }
    }

    fn object(&mut self, members: &Map<String, Value>, meaning: Meaning, list: &str) {
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let media_type = text("mimeType");
        let is_base64 = ["encoding", "_encoding"].iter().any(|name| text(name) == Some("base64"));
        for (name, value) in members {
            // A name with a secret in it is not repeated.
            let is_secret = detect::holds_secret(name);
            let shown = if is_secret { "(name)" } else { name };
            let part = if self.path.is_empty() { shown.to_owned() } else { format!(".{shown}") };
            self.within(&part, |scan| {
                if is_secret {
                    scan.inspect(name, None, SecretRemover::text);
                }
                match (value, &**name) {
                    (Value::String(value), "value") if text("name").is_some() => {
                        scan.named(text("name").unwrap_or_default(), value, meaning, list);
                    }
                    (Value::String(value), "url" | "redirectURL") if meaning == Meaning::Plain => {
                        scan.inspect(value, None, SecretRemover::reference);
                    }
                    (Value::String(value), "text") if media_type.is_some() => {
                        scan.body(media_type.unwrap_or_default(), value, is_base64);
                    }
                    // The cookie list of HAR, whose values have their names beside them.
                    (Value::Array(_), "cookies") => scan.value(value, meaning, name),
                    _ => scan.value(value, meaning_within(meaning, name), name),
                }
            });
        }
    }

    /// Scans the value of a name-value pair in a list such as `headers`.
    fn named(&mut self, name: &str, value: &str, around: Meaning, list: &str) {
        let shown = Some(name).filter(|name| !detect::holds_secret(name));
        match list {
            "headers" => self.inspect(value, shown, |remover, value| {
                let mut field = NameValue::new(name.to_owned(), std::mem::take(value));
                remover.field(MessageKind::Request, &mut field);
                *value = field.value;
            }),
            "cookies" => self.inspect(value, shown, |remover, value| {
                let mut cookie = Cookie { value: std::mem::take(value), ..Cookie::default() };
                remover.cookie(MessageKind::Request, &mut cookie);
                *value = cookie.value;
            }),
            _ if self.is_plain(around, name) => {
                self.inspect(value, shown, SecretRemover::text);
            }
            _ => {
                let beside = self.beside;
                self.inspect(value, shown, |remover, value| {
                    remover.pair(beside, &mut name.to_owned(), value);
                });
            }
        }
    }

    fn is_plain(&self, around: Meaning, name: &str) -> bool {
        meaning_within(around, name) == Meaning::Plain
            && meaning_beside(|| self.beside, name) == Meaning::Plain
    }

    fn body(&mut self, media_type: &str, text: &str, is_base64: bool) {
        match base64::decode(text.as_bytes()).filter(|_| is_base64) {
            None => self.inspect(text, None, |remover, text| {
                remover.body(media_type, text);
            }),
            Some(bytes) => {
                let mut redacted = bytes.clone();
                self.remover.bytes(media_type, &mut redacted);
                if redacted != bytes {
                    self.found(&String::from_utf8_lossy(&bytes), 0..bytes.len(), None);
                }
            }
        }
    }

    /// Scans a text by removing its secrets: if the result differs, the text contained one.
    fn inspect(&mut self, text: &str, name: Option<&str>, redact: impl FnOnce(&SecretRemover, &mut String)) {
        let mut redacted = text.to_owned();
        redact(&self.remover, &mut redacted);
        if redacted != text {
            self.found(text, changed(text, &redacted), name);
        }
    }

    /// Adds the secrets of a text that was changed within this span: the detected ones, or else the span
    /// itself, if the reason is a name or an encoding.
    fn found(&mut self, text: &str, span: Range<usize>, name: Option<&str>) {
        let findings = detect::detect(text);
        let seen = findings.first().zip(findings.last());
        let is_all =
            seen.is_some_and(|(first, last)| first.span.start <= span.start && last.span.end >= span.end);
        if findings.is_empty() || name.is_some() && !is_all {
            return self.add(DetectedSecret { kind: SecretKind::Named, span }, name);
        }
        for finding in findings {
            self.add(finding, None);
        }
    }

    fn add(&mut self, finding: DetectedSecret, name: Option<&str>) {
        self.locations.push(Location { path: self.path.clone(), finding, name: name.map(str::to_owned) });
    }
}

/// Returns the byte range of `text` that differs from `other`.
fn changed(text: &str, other: &str) -> Range<usize> {
    let same = |pair: &(u8, u8)| pair.0 == pair.1;
    let before = text.bytes().zip(other.bytes()).take_while(same).count();
    let (text, other) = (&text.as_bytes()[before..], &other.as_bytes()[before..]);
    let after = text.iter().rev().copied().zip(other.iter().rev().copied()).take_while(same).count();
    before..before + text.len() - after
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::exclusions::Exclusions;
    use crate::fixture;
    use crate::har::Har;
    use crate::obfuscate::Obfuscator;

    /// Returns the path and kind of each finding.
    fn locations(text: &str) -> Vec<(String, SecretKind)> {
        let locations = scan(&serde_json::from_str(text).unwrap());
        locations.into_iter().map(|location| (location.path, location.finding.kind)).collect()
    }

    fn found(har: &Value) -> Vec<String> {
        scan(har).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_archive_names_its_secrets_until_it_is_obfuscated() {
        let planted = fixture::FULL
            .replace("tok-987-654", "abcdefgh12345678")
            .replace("\\\"Ada\\\"", "\\\"ada@example.com\\\"")
            .replace("\"_priority\": \"High\"", "\"_priority\": {\"ada@example.com\": 4111111111111111}");
        let entry = |path: &str| format!("log.entries[0].{path}");
        let found = locations(&planted);
        for (path, kind) in [
            ("request.url", SecretKind::Credentials),
            ("request.headers[3].value", SecretKind::Credentials),
            ("request.postData.text", SecretKind::Email),
            ("request._priority.(name)", SecretKind::Email),
            ("request._priority.(name)", SecretKind::CardNumber),
        ] {
            assert!(found.contains(&(entry(path), kind)), "{path}: {found:?}");
        }
        let mut har = Har::read(planted.as_bytes()).unwrap();
        Obfuscator::new(Key::new(&[3; 32]), Exclusions::default()).har(&mut har);
        assert_eq!(locations(&serde_json::to_string(&har).unwrap()), []);
    }

    #[test]
    fn each_place_of_a_named_secret_is_told_with_its_reason() {
        let pair = |name: &str, value: &str| json!({"name": name, "value": value});
        let har = json!({
            "request": {
                "url": "https://api.example.com/a?page=2&p%61ssword=hunter2pass#access_token=ya29",
                "headers": [
                    pair("Authorization", "Bearer my-team-token"),
                    pair("X-Api-Key", "live-key-0042"),
                    pair("Accept", "text/html"),
                    pair("Cookie", "sessionid=abc; theme=dark"),
                    pair("Access-Control-Allow-Credentials", "true"),
                ],
                "cookies": [pair("sessionid", "abc"), pair("theme", "")],
                "queryString": [pair("page", "2"), pair("password", "hunter2pass")],
                "postData": {"mimeType": "application/json", "text": "{\"user\":{\"pass\\u0077ord\":\"hunter2\"},\"max_tokens\":5}",
                    "params": [pair("client_secret", "8xLOxBtZp8")]},
            },
            "response": {
                "headers": [pair("set-cookie", "session=9f8a; Path=/\nb=c")],
                "content": {"mimeType": "text/event-stream", "text": "data: {\"access_token\": \"ya29\"}\n\ndata: [DONE]\n"},
                "redirectURL": "/a?token=abc",
            },
            "_frames": [{"data": "{\"otp\": 123456}"}],
            "_auth": {"id": "abc", "theme": "dark"},
        });
        assert_eq!(
            found(&har),
            [
                "request.url: secret by name at bytes 44 to 55",
                "request.url: secret by name at bytes 69 to 73",
                "request.headers[0].value: secret by name at bytes 7 to 20, of `Authorization`",
                "request.headers[1].value: secret by name at bytes 0 to 13, of `X-Api-Key`",
                "request.headers[3].value: secret by name at bytes 10 to 25, of `Cookie`",
                "request.cookies[0].value: secret by name at bytes 0 to 3, of `sessionid`",
                "request.queryString[1].value: secret by name at bytes 0 to 11, of `password`",
                "request.postData.text: secret by name at bytes 14 to 33",
                "request.postData.params[0].value: secret by name at bytes 0 to 10, of `client_secret`",
                "response.headers[0].value: secret by name at bytes 8 to 24, of `set-cookie`",
                "response.content.text: secret by name at bytes 24 to 28",
                "response.redirectURL: secret by name at bytes 9 to 12",
                "_frames[0].data: secret by name at bytes 8 to 14",
                "_auth.id: secret by name at bytes 0 to 3",
            ]
        );
    }

    #[test]
    fn bodies_in_base64_are_looked_into() {
        let content = |media_type: &str, bytes: &[u8]| {
            let mut text = Vec::new();
            base64::encode(bytes, &mut text);
            let text = String::from_utf8(text).unwrap();
            json!({"content": {"mimeType": media_type, "text": text, "encoding": "base64"}})
        };
        let email = ["content.text: e-mail address at bytes 0 to 15"];
        assert_eq!(found(&content("text/plain", b"ada@example.com")), email);
        let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
        for (media_type, bytes) in [
            ("text/plain; charset=utf-16", wide("ada@example.com")),
            ("text/plain", wide("\u{feff}ada@example.com")),
            ("application/json; charset=utf-16le", wide("{\"password\": \"hunter2\"}")),
            ("application/octet-stream", [&b"\x89PNG\xff"[..], &wide("?password=hunter2 ")].concat()),
        ] {
            assert_eq!(found(&content(media_type, &bytes)).len(), 1, "{media_type}");
        }
        assert_eq!(found(&content("text/plain; charset=utf-16", &wide("{\"max_tokens\": 5}"))), [""; 0]);
    }

    #[test]
    fn only_what_differs_is_told() {
        for (text, other, span) in
            [("abc", "axc", 1..2), ("abc", "abc", 3..3), ("aa", "aaa", 2..2), ("a", "b", 0..1)]
        {
            assert_eq!(changed(text, other), span);
        }
    }
}
