//! Framing of streams: server-sent events, lines of JSON, a JSON array, and AWS's event stream.

use axum::http::HeaderValue;
use data_encoding::BASE64;
use egret_clock::Moment;
use serde_json::{Value, json};

/// The form of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// Server-sent events.
    Events,
    /// Server-sent events with a comment before each: the moment at which it is made, in nanoseconds of the
    /// machine's monotonic clock. `egret bench --events` reads it.
    StampedEvents,
    /// JSON, one value in a line.
    Lines,
    /// One JSON array, one element in a chunk.
    Array,
    /// AWS's event stream, with the events' JSON as payload.
    Aws,
    /// AWS's event stream, with the events' JSON in Base64 inside of a JSON object.
    AwsBytes,
}

/// An event of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// Name of the event; empty if it has none.
    pub name: &'static str,
    pub data: String,
    /// AWS's exceptions are told apart from events in their header fields.
    pub is_exception: bool,
}

impl Event {
    /// An event without a name.
    pub fn unnamed(data: &Value) -> Self {
        Self::named("", data)
    }

    /// An event with a name.
    pub fn named(name: &'static str, data: &Value) -> Self {
        Self { name, data: data.to_string(), is_exception: false }
    }

    /// An event whose data has a member `type` with its name.
    pub fn typed(name: &'static str, mut data: Value) -> Self {
        data["type"] = name.into();
        Self::named(name, &data)
    }

    /// OpenAI's last event.
    pub fn done() -> Self {
        Self { name: "", data: "[DONE]".into(), is_exception: false }
    }

    /// An exception of AWS.
    pub fn exception(name: &'static str, message: &str) -> Self {
        Self { name, data: json!({ "message": message }).to_string(), is_exception: true }
    }
}

impl Framing {
    /// Media type of the stream.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Events | Self::StampedEvents => "text/event-stream; charset=utf-8",
            Self::Lines => "application/x-ndjson",
            Self::Array => "application/json; charset=UTF-8",
            Self::Aws | Self::AwsBytes => "application/vnd.amazon.eventstream",
        })
    }

    /// The bytes of an event. An array needs to know whether it is its first or last element.
    pub fn bytes(self, event: &Event, is_first: bool, is_last: bool) -> Vec<u8> {
        match self {
            Self::Events if event.name.is_empty() => format!("data: {}\n\n", event.data).into_bytes(),
            Self::Events => format!("event: {}\ndata: {}\n\n", event.name, event.data).into_bytes(),
            Self::StampedEvents => {
                let bytes = Self::Events.bytes(event, is_first, is_last);
                [format!(": sent {}\n", Moment::now().as_nanos()).into_bytes(), bytes].concat()
            }
            Self::Lines => format!("{}\n", event.data).into_bytes(),
            Self::Array => {
                let (before, after) = (if is_first { "[" } else { ",\r\n" }, if is_last { "]" } else { "" });
                format!("{before}{}{after}", event.data).into_bytes()
            }
            Self::Aws => aws_message(event, event.data.as_bytes()),
            Self::AwsBytes if event.is_exception => aws_message(event, event.data.as_bytes()),
            Self::AwsBytes => {
                let payload = json!({ "bytes": BASE64.encode(event.data.as_bytes()), "p": "abcdefgh" });
                aws_message(event, payload.to_string().as_bytes())
            }
        }
    }
}

/// Frames a message: lengths and their CRC-32, header fields, payload, CRC-32 of all before. Numbers are
/// big-endian.
fn aws_message(event: &Event, payload: &[u8]) -> Vec<u8> {
    let (kind, field) =
        if event.is_exception { ("exception", ":exception-type") } else { ("event", ":event-type") };
    let mut fields = Vec::new();
    for (name, value) in [(field, event.name), (":content-type", "application/json"), (":message-type", kind)]
    {
        fields.push(u8::try_from(name.len()).unwrap_or(0));
        fields.extend_from_slice(name.as_bytes());
        // The type of a text, whose length has two bytes.
        fields.push(7);
        fields.extend_from_slice(&u16::try_from(value.len()).unwrap_or(0).to_be_bytes());
        fields.extend_from_slice(value.as_bytes());
    }
    // Two lengths and two sums of four bytes each.
    let length = 16 + fields.len() + payload.len();
    let mut message = Vec::with_capacity(length);
    for number in [length, fields.len()] {
        message.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_be_bytes());
    }
    message.extend_from_slice(&crc32(&message).to_be_bytes());
    message.extend_from_slice(&fields);
    message.extend_from_slice(payload);
    message.extend_from_slice(&crc32(&message).to_be_bytes());
    message
}

fn crc32(bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(bytes);
    crc.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_json_whatever_its_length() {
        for count in 1..4 {
            let event = Event::unnamed(&json!({ "a": 1 }));
            let bytes: Vec<u8> = (0..count)
                .flat_map(|index| Framing::Array.bytes(&event, index == 0, index + 1 == count))
                .collect();
            let array: Vec<Value> = serde_json::from_slice(&bytes).unwrap();
            assert_eq!(array.len(), count);
        }
    }

    #[test]
    fn events_have_a_name_only_if_they_need_one() {
        let text = |event: &Event| String::from_utf8(Framing::Events.bytes(event, true, true)).unwrap();
        assert_eq!(text(&Event::unnamed(&json!({}))), "data: {}\n\n");
        assert_eq!(text(&Event::typed("ping", json!({}))), "event: ping\ndata: {\"type\":\"ping\"}\n\n");
        assert_eq!(text(&Event::done()), "data: [DONE]\n\n");
        let stamped = String::from_utf8(Framing::StampedEvents.bytes(&Event::done(), true, true)).unwrap();
        let (stamp, rest) = stamped.split_once('\n').unwrap();
        assert_eq!(rest, "data: [DONE]\n\n");
        let sent = Moment::from_nanos(stamp.strip_prefix(": sent ").unwrap().parse().unwrap());
        assert!(sent > Moment::from_nanos(0) && sent <= Moment::now());
    }

    #[test]
    fn a_message_of_aws_has_the_lengths_and_sums_of_its_parts() {
        let event = Event::named("chunk", &json!({ "a": 1 }));
        let bytes = Framing::Aws.bytes(&event, true, true);
        let number = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!(number(0) as usize, bytes.len());
        assert_eq!(number(8), crc32(&bytes[..8]));
        assert_eq!(number(bytes.len() - 4), crc32(&bytes[..bytes.len() - 4]));
        let payload = &bytes[12 + number(4) as usize..bytes.len() - 4];
        assert_eq!(payload, event.data.as_bytes());
        // The check value of CRC-32/ISO-HDLC.
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }
}
