//! Collects the data of each event of a stream.

use egret_usage::{Sse, SsePart};

use crate::expression::EXPRESSION_BODY_BYTES_MAX;

/// Maximum length of an event's data. The data of a longer event is skipped.
const EVENT_BYTES_MAX: usize = EXPRESSION_BODY_BYTES_MAX;

/// The position in a stream, and the data of the event that has begun there.
#[derive(Debug, Default)]
pub(super) struct Framer {
    sse: Sse,
    event: EventData,
}

#[derive(Debug, Default)]
struct EventData {
    /// The lines so far, with a LF behind each.
    lines: Vec<u8>,
    /// `true` if they exceed the limit.
    is_too_long: bool,
}

impl Framer {
    /// Takes the next bytes of the stream. Calls `dispatch` with the data of each event that ends in them. It
    /// may take the bytes out of the vector.
    pub fn push(&mut self, bytes: &[u8], dispatch: &mut dyn FnMut(&mut Vec<u8>)) {
        let Self { sse, event } = self;
        sse.push(bytes, &mut |part| match part {
            SsePart::Data(data) => event.add(data),
            SsePart::End => event.dispatch(dispatch),
        });
    }

    /// Ends the stream. An event that lacks the empty line behind it is dispatched too, although the standard
    /// drops it: some providers leave that line out, and an event that was cut off is no valid JSON.
    pub fn finish(&mut self, dispatch: &mut dyn FnMut(&mut Vec<u8>)) {
        self.event.dispatch(dispatch);
    }

    pub fn held_bytes(&self) -> usize {
        self.event.lines.capacity()
    }
}

impl EventData {
    fn add(&mut self, data: &[u8]) {
        if self.lines.len() + data.len() > EVENT_BYTES_MAX {
            self.is_too_long = true;
            self.lines = Vec::new();
        }
        if !self.is_too_long {
            self.lines.extend_from_slice(data);
        }
    }

    fn dispatch(&mut self, dispatch: &mut dyn FnMut(&mut Vec<u8>)) {
        if !self.is_too_long && !self.lines.is_empty() {
            dispatch(&mut self.lines);
        }
        self.is_too_long = false;
        self.lines.clear();
    }
}
