//! Checks of streams of events.

use std::fmt;

use egret_match::{EventScan, merged_events};
use egret_message::{Changes, Fields};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Bound of the memory for a stream, besides the decoder's.
const HELD_BYTES_MAX: usize = 8 << 20;

/// Checks an input: a coding, the length of pieces, and a stream. Returns `true` if a body is seen.
pub fn events(bytes: &[u8]) -> bool {
    let [coding, step, stream @ ..] = bytes else { return false };
    let coding = ["identity", "gzip", "deflate", "br", "zstd"][usize::from(*coding) % 5];
    let whole = seen(coding, stream, stream.len());
    for step in [1, usize::from(*step)] {
        assert_eq!(seen(coding, stream, step), whole, "{coding} in pieces of {step}");
    }
    if coding == "identity" {
        assert_eq!(whole, merged_events(stream));
        let body = whole.as_deref().and_then(|body| serde_json::from_slice::<Value>(body).ok());
        assert_eq!(body.is_some(), whole.is_some(), "it is JSON");
        // A name that is written with needless escapes is not recognized.
        if memchr::memmem::find(stream, b"\\u00").is_none() {
            assert_eq!(body, merged_simply(stream));
        }
    }
    whole.is_some()
}

fn seen(coding: &str, stream: &[u8], step: usize) -> Option<Vec<u8>> {
    let mut changes = Changes::default();
    changes.add(b"content-type", b"text/event-stream");
    changes.add(b"content-encoding", coding.as_bytes());
    let mut scan = EventScan::of_response(Fields::new(&[], b"", &changes))?;
    for piece in stream.chunks(step.max(1)) {
        scan.push(piece);
        assert!(coding != "identity" || scan.held_bytes() <= HELD_BYTES_MAX);
    }
    scan.finish()
}

/// Reads a stream by the letter of the standard, without a thought for memory.
fn merged_simply(stream: &[u8]) -> Option<Value> {
    let stream = stream.strip_prefix(b"\xef\xbb\xbf").unwrap_or(stream);
    let mut lines = Vec::new();
    let mut rest = stream;
    while let Some(end) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        lines.push(&rest[..end]);
        rest = &rest[end..];
        rest = rest.strip_prefix(b"\r\n").unwrap_or(&rest[1..]);
    }
    lines.extend([rest, b""]);
    let (mut body, mut last) = (Map::new(), None);
    let mut event: Vec<u8> = Vec::new();
    for line in lines {
        let (name, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        if name == b"data" {
            event.extend_from_slice(value.strip_prefix(b" ").unwrap_or(value));
            event.push(b'\n');
        }
        if line.is_empty() && !event.is_empty() {
            if event.trim_ascii_start().first() == Some(&b'{') {
                let has_usage = serde_json::from_slice(&event).is_ok_and(|HasUsage(has_usage)| has_usage);
                match serde_json::from_slice::<Map<String, Value>>(&event).ok() {
                    Some(parsed) if has_usage => {
                        add(&mut body, parsed);
                        last = None;
                    }
                    // The last event counts; if it is no JSON, no other one does in its place.
                    other => last = other,
                }
            }
            event.clear();
        }
    }
    if let Some(last) = last {
        add(&mut body, last);
    }
    (!body.is_empty()).then_some(Value::Object(body))
}

/// `true` if a value has a member whose name begins with `usage` and whose value is not `null`.
struct HasUsage(bool);

/// `true` if a value is `null`, or else like [`HasUsage`].
enum Found {
    Null,
    Usage(bool),
}

impl<'de> Deserialize<'de> for HasUsage {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(matches!(Found::deserialize(deserializer)?, Found::Usage(true))))
    }
}

impl<'de> Deserialize<'de> for Found {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Any;

        impl<'de> Visitor<'de> for Any {
            type Value = Found;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Found, E> {
                Ok(Found::Null)
            }

            fn visit_bool<E>(self, _: bool) -> Result<Found, E> {
                Ok(Found::Usage(false))
            }

            fn visit_i64<E>(self, _: i64) -> Result<Found, E> {
                Ok(Found::Usage(false))
            }

            fn visit_u64<E>(self, _: u64) -> Result<Found, E> {
                Ok(Found::Usage(false))
            }

            fn visit_f64<E>(self, _: f64) -> Result<Found, E> {
                Ok(Found::Usage(false))
            }

            fn visit_str<E>(self, _: &str) -> Result<Found, E> {
                Ok(Found::Usage(false))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Found, A::Error> {
                let mut has_usage = false;
                while let Some(value) = access.next_element()? {
                    has_usage |= matches!(value, Found::Usage(true));
                }
                Ok(Found::Usage(has_usage))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Found, A::Error> {
                let mut has_usage = false;
                while let Some((name, value)) = access.next_entry::<String, Found>()? {
                    has_usage |= match value {
                        Found::Null => false,
                        Found::Usage(within) => within || name.starts_with("usage"),
                    };
                }
                Ok(Found::Usage(has_usage))
            }
        }
        deserializer.deserialize_any(Any)
    }
}

fn add(body: &mut Map<String, Value>, mut event: Map<String, Value>) {
    if matches!(event.get("type"), Some(Value::String(_))) {
        for name in ["message", "response", "delta"] {
            if matches!(event.get(name), Some(Value::Object(_)))
                && let Some(Value::Object(content)) = event.remove(name)
            {
                put(body, content);
            }
        }
    }
    put(body, event);
}

fn put(body: &mut Map<String, Value>, members: Map<String, Value>) {
    for (name, value) in members {
        match (body.get_mut(&name), value) {
            (Some(Value::Object(old)), Value::Object(new)) => put(old, new),
            (Some(_), Value::Null) => {}
            (_, value) => {
                body.insert(name, value);
            }
        }
    }
}
