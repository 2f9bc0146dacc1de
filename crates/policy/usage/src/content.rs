//! Tells the events of a stream that have content from those that only keep a connection alive, or announce
//! what follows.

use crate::sse::{Sse, SsePart};

/// Number of bytes at the beginning of an event's data that are looked at.
const LOOKED_AT_BYTES: usize = 64;

/// Values of the member `type` of events without content, of any provider.
const EMPTY_TYPES: [&[u8]; 7] = [
    b"ping",
    b"keepalive",
    b"heartbeat",
    // Anthropic
    b"message_start",
    // OpenAI's responses
    b"response.created",
    b"response.in_progress",
    b"response.queued",
];

/// Finds events with content in a stream, however it is cut. Comments, events without data, pings, and those
/// that announce a response have none. It keeps 64 bytes of the event that it is in.
#[derive(Debug, Clone)]
pub struct ContentScan {
    sse: Sse,
    start: [u8; LOOKED_AT_BYTES],
    /// Number of bytes in `start`.
    len: usize,
}

impl Default for ContentScan {
    fn default() -> Self {
        Self { sse: Sse::default(), start: [0; LOOKED_AT_BYTES], len: 0 }
    }
}

impl ContentScan {
    /// Takes the next bytes of the stream. Returns `true` if an event with content ends in them.
    pub fn push(&mut self, bytes: &[u8]) -> bool {
        let Self { sse, start, len } = self;
        let mut has_content = false;
        sse.push(bytes, &mut |part| match part {
            SsePart::Data(data) => {
                let free = &mut start[*len..];
                let count = data.len().min(free.len());
                free[..count].copy_from_slice(&data[..count]);
                *len += count;
            }
            SsePart::End => {
                has_content |= is_content(&start[..*len]);
                *len = 0;
            }
        });
        has_content
    }
}

/// Returns `true` if an event whose data starts so has content.
fn is_content(start: &[u8]) -> bool {
    let data = start.trim_ascii();
    !data.is_empty() && member_type(data).is_none_or(|kind| !EMPTY_TYPES.contains(&kind))
}

/// Returns the value of the member `type`, if that is the first one of an object.
fn member_type(data: &[u8]) -> Option<&[u8]> {
    let name = data.strip_prefix(b"{")?.trim_ascii_start().strip_prefix(b"\"type\"")?;
    let value = name.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start().strip_prefix(b"\"")?;
    value.split(|byte| *byte == b'"').next()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the offsets behind which content has been found, for a stream that arrives byte by byte.
    fn content(stream: &str) -> Vec<usize> {
        let mut scan = ContentScan::default();
        let found = stream.bytes().enumerate().filter(|(_, byte)| scan.push(&[*byte]));
        found.map(|(at, _)| at + 1).collect()
    }

    #[test]
    fn comments_and_pings_are_no_content() {
        for empty in [
            ": OPENROUTER PROCESSING\n\n",
            "event: ping\ndata: {\"type\": \"ping\"}\n\n",
            "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"msg_1\",\"role\":\"assistant\",\"model\":\"c\"}}\n\n",
            "data: {\"type\":\"response.created\",\"response\":{}}\r\n\r\n",
            "data:\n\n",
            "id: 1\n\n",
            "\n\n\n",
        ] {
            assert!(content(empty).is_empty(), "{empty}");
            let stream = format!("{empty}data: {{\"choices\":[]}}\n\n");
            assert_eq!(content(&stream), [stream.len()], "{empty}");
        }
    }

    #[test]
    fn any_other_event_is_content() {
        for full in [
            "data: [DONE]\n\n",
            "data: hello\n\n",
            "data: {\"type\":\"content_block_delta\",\"index\":0}\n\n",
            "data: {\"id\":\"1\",\"type\":\"ping\"}\n\n",
            "event: ping\ndata: {\"time\":1}\n\n",
            "data: {\"type\":\"ping\n\n",
        ] {
            let is_cut = full.ends_with("ping\n\n");
            assert_eq!(content(full).len(), usize::from(!is_cut), "{full}");
        }
    }

    #[test]
    fn the_cut_of_a_stream_does_not_matter() {
        let stream = b": x\n\ndata: {\"type\":\"ping\"}\n\ndata: a\ndata: b\n\ndata: c\n\n";
        let whole = ContentScan::default().push(stream);
        assert!(whole);
        for cut in 0..stream.len() {
            let (before, after) = stream.split_at(cut);
            let mut scan = ContentScan::default();
            let found = [scan.push(before), scan.push(after)];
            assert!(found.contains(&true), "cut at {cut}");
        }
    }
}
