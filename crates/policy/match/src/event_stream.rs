//! The body that expressions see of a stream of events (`text/event-stream`), found while the stream passes.
//!
//! Providers of language models report the usage of a stream in some of its events: in `message_start` and
//! `message_delta`, in the last chunk, in `response.completed`, or in each chunk. The events that report
//! usage are merged, and the last event too, into what the provider would have sent without a stream. The
//! bytes of the stream are only read: none is held back or changed.

mod framer;
mod reports;

use egret_coding::PassingDecoder;
use egret_message::Fields;

use framer::Framer;
use reports::Reports;

const EVENT_STREAM: &[u8] = b"text/event-stream";

/// Returns `true` if these fields of a response describe a stream of events.
pub fn is_event_stream(fields: Fields<'_>) -> bool {
    let media_type = fields.get(b"content-type").and_then(|value| value.split(|byte| *byte == b';').next());
    media_type.is_some_and(|media_type| media_type.trim_ascii().eq_ignore_ascii_case(EVENT_STREAM))
}

/// Returns the body that expressions see of a whole stream of events without content codings: JSON, or `None`
/// if no event is JSON.
pub fn merged_events(stream: &[u8]) -> Option<Vec<u8>> {
    let mut scan = EventScan { source: EventSource::Plain, events: Events::default() };
    scan.push(stream);
    scan.finish()
}

/// Reads a stream of events as it passes.
#[derive(Debug)]
pub struct EventScan {
    source: EventSource,
    events: Events,
}

#[derive(Debug)]
enum EventSource {
    /// The bytes that pass are the events.
    Plain,
    /// They are the events under content codings.
    Coded(PassingDecoder),
    /// The events cannot be read, or no longer.
    Unreadable,
}

#[derive(Debug, Default)]
struct Events {
    framer: Framer,
    reports: Reports,
}

impl EventScan {
    /// Returns a scan of the response with these fields. Returns `None` if it is no stream of events.
    pub fn of_response(fields: Fields<'_>) -> Option<Self> {
        if !is_event_stream(fields) {
            return None;
        }
        let source = if fields.is_encoded() {
            let codings: Vec<&[u8]> = fields.all(b"content-encoding").collect();
            PassingDecoder::of(&codings.join(&b","[..])).map_or(EventSource::Unreadable, EventSource::Coded)
        } else {
            EventSource::Plain
        };
        Some(Self { source, events: Events::default() })
    }

    /// Reads the next bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self { source, events } = self;
        match source {
            EventSource::Plain => events.push(bytes),
            EventSource::Coded(decoder) => {
                let pass = &mut |piece: &[u8]| {
                    events.push(piece);
                    Ok(())
                };
                if decoder.push(bytes, pass).is_err() {
                    self.give_up();
                }
            }
            EventSource::Unreadable => {}
        }
    }

    /// Reads no more, and frees the memory.
    pub fn give_up(&mut self) {
        *self = Self { source: EventSource::Unreadable, events: Events::default() };
    }

    /// Returns an upper bound of the memory in use, in bytes.
    pub fn held_bytes(&self) -> usize {
        let decoder = match &self.source {
            EventSource::Coded(decoder) => decoder.held_bytes(),
            EventSource::Plain | EventSource::Unreadable => 0,
        };
        decoder + self.events.framer.held_bytes() + self.events.reports.held_bytes()
    }

    /// Returns the body that expressions see: JSON, or `None` if there was no event in JSON or the stream
    /// could not be read. The stream's last event counts even without the empty line that should end it.
    pub fn finish(self) -> Option<Vec<u8>> {
        let Events { mut framer, mut reports } = self.events;
        framer.finish(&mut |event| reports.take(event));
        reports.finish()
    }
}

impl Events {
    fn push(&mut self, bytes: &[u8]) {
        let Self { framer, reports } = self;
        framer.push(bytes, &mut |event| reports.take(event));
    }
}

#[cfg(test)]
mod tests;
