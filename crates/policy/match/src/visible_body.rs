//! Reads a response's body once all of it has passed.

use std::borrow::Cow;

use egret_har::observed::Captured;
use egret_har::recorder::whole_body;
use egret_message::Fields;

use crate::expression::BODY_BYTES_MAX;

/// Maximum decoded length of an encoded event stream. Only its end is used, but the end comes last.
const EVENTS_BYTES_MAX: usize = 8 * BODY_BYTES_MAX;

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Returns the part of a body that expressions see.
///
/// `end` is the captured end of the body, or all of it if `is_whole`. The result is the whole body without
/// its content codings. For an event stream it is the last event with JSON data, which is where providers
/// report the usage of the stream. Returns `None` if the body is too long, or if a content coding is unknown
/// or invalid.
pub fn seen_at_end<'a>(fields: Fields<'_>, end: &'a [u8], is_whole: bool) -> Option<Cow<'a, [u8]>> {
    let media_type = fields.get(b"content-type").and_then(|value| value.get(..EVENT_STREAM.len()));
    let is_events = media_type.is_some_and(|value| value.eq_ignore_ascii_case(EVENT_STREAM));
    let body = if fields.is_encoded() {
        let codings: Vec<&[u8]> = fields.all(b"content-encoding").collect();
        let body = Captured { bytes: end, is_whole, is_wanted: true };
        let most = if is_events { EVENTS_BYTES_MAX } else { BODY_BYTES_MAX };
        whole_body(&body, &codings.join(&b","[..]), most).map(|body| Cow::Owned(body.into_owned()))?
    } else if is_whole || is_events {
        Cow::Borrowed(end)
    } else {
        return None;
    };
    if !is_events {
        return Some(body);
    }
    match body {
        Cow::Borrowed(body) => last_data(body).map(Cow::Borrowed),
        Cow::Owned(body) => last_data(&body).map(|data| Cow::Owned(data.to_vec())),
    }
}

/// Returns the data of the last event with JSON data.
fn last_data(events: &[u8]) -> Option<&[u8]> {
    events
        .rsplit(|byte| *byte == b'\n')
        .filter_map(|line| line.strip_prefix(b"data:"))
        .map(<[u8]>::trim_ascii)
        .find(|data| data.starts_with(b"{"))
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::{GzEncoder, ZlibEncoder};
    use proptest::prelude::*;

    use super::*;
    use egret_message::Changes;

    /// Returns the visible part of `end` for a response with these fields.
    fn seen(fields: &[(&str, &str)], end: &[u8], is_whole: bool) -> Option<Vec<u8>> {
        let mut changes = Changes::default();
        for (name, value) in fields {
            changes.add(name.as_bytes(), value.as_bytes());
        }
        seen_at_end(Fields::new(&[], b"", &changes), end, is_whole).map(Cow::into_owned)
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn zlib(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    const JSON: (&str, &str) = ("Content-Type", "application/json");
    const EVENTS: (&str, &str) = ("Content-Type", "Text/Event-Stream; charset=utf-8");

    #[test]
    fn codings_are_taken_off() {
        let body = br#"{"usage":{"total_tokens":60}}"#.as_slice();
        for (codings, coded) in [
            ("gzip", gzip(body)),
            ("X-GZIP", gzip(body)),
            ("deflate", zlib(body)),
            ("deflate, gzip", gzip(&zlib(body))),
            ("identity", body.to_vec()),
        ] {
            assert_eq!(
                seen(&[JSON, ("Content-Encoding", codings)], &coded, true).unwrap(),
                body,
                "{codings}"
            );
            assert_eq!(seen(&[JSON, ("Content-Encoding", codings)], &coded, false), None, "{codings}");
        }
        let twice = [JSON, ("Content-Encoding", "deflate"), ("Content-Encoding", "gzip")];
        assert_eq!(seen(&twice, &gzip(&zlib(body)), true).unwrap(), body);
        assert_eq!(seen(&[JSON, ("Content-Encoding", "gzip")], body, true), None);
        assert_eq!(seen(&[JSON, ("Content-Encoding", "rot13")], body, true), None);
    }

    #[test]
    fn no_more_is_read_than_expressions_may_see() {
        let fits = gzip(&vec![b'1'; BODY_BYTES_MAX]);
        assert_eq!(seen(&[JSON, ("Content-Encoding", "gzip")], &fits, true).unwrap().len(), BODY_BYTES_MAX);
        let bomb = gzip(&vec![b'1'; BODY_BYTES_MAX + 1]);
        assert_eq!(seen(&[JSON, ("Content-Encoding", "gzip")], &bomb, true), None);
        let bomb = gzip(&vec![b'\n'; EVENTS_BYTES_MAX + 1]);
        assert_eq!(seen(&[EVENTS, ("Content-Encoding", "gzip")], &bomb, true), None);
    }

    #[test]
    fn of_a_stream_of_events_the_last_with_data_in_json_is_seen() {
        let events = b"data: {\"n\":1}\n\nevent: end\ndata: {\"n\":2}\r\n\ndata: [DONE]\n\n";
        assert_eq!(seen(&[EVENTS], events, true).unwrap(), b"{\"n\":2}");
        assert_eq!(seen(&[EVENTS], events, false).unwrap(), b"{\"n\":2}", "its end is enough");
        assert_eq!(seen(&[EVENTS, ("Content-Encoding", "gzip")], &gzip(events), true).unwrap(), b"{\"n\":2}");
        assert_eq!(seen(&[EVENTS], b"data: [DONE]\n\n", true), None);
        let long = [vec![b':'; 2 * BODY_BYTES_MAX], b"\n".to_vec(), events.to_vec()].concat();
        assert_eq!(seen(&[EVENTS, ("Content-Encoding", "gzip")], &gzip(&long), true).unwrap(), b"{\"n\":2}");
    }

    proptest! {
        #[test]
        fn whatever_a_provider_sends_is_read_no_further(
            body in prop::collection::vec(any::<u8>(), 0..2_000),
            codings in "(gzip|deflate|br|zstd|identity|x)(, (gzip|deflate|br|zstd))?",
            is_events: bool,
            is_whole: bool,
        ) {
            let media_type = if is_events { EVENTS } else { JSON };
            let seen = seen(&[media_type, ("Content-Encoding", &codings)], &body, is_whole);
            prop_assert!(seen.is_none_or(|seen| seen.len() <= EVENTS_BYTES_MAX));
        }
    }
}
