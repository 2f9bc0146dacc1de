//! Divides a stream into its events, by the rules of the HTML standard (§9.2.6, "Interpreting an event
//! stream").

use memchr::memchr2;

use crate::expression::EXPRESSION_BODY_BYTES_MAX;

/// Maximum length of an event's data. The data of a longer event is skipped.
const EVENT_BYTES_MAX: usize = EXPRESSION_BODY_BYTES_MAX;

/// The byte order mark, which may come before the first line.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The only field of an event that is read.
const DATA: &[u8] = b"data";

/// The position in a stream, and the data of the event that has begun there.
#[derive(Debug, Default)]
pub(super) struct Framer {
    place: FramerState,
    /// `true` if the last byte was a CR. A LF behind it belongs to the same line end.
    is_after_cr: bool,
    /// The data of the event so far: its lines, with a LF behind each.
    event: Vec<u8>,
    /// `true` if the event's data exceeds the limit.
    is_too_long: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FramerState {
    /// Before the first line, behind this many bytes of a byte order mark.
    Mark(usize),
    /// In the name of a field, whose first bytes so far are as many of `data`.
    Name(usize),
    /// Behind the colon after `data`.
    Colon,
    /// In a line of data.
    Data,
    /// In a line that is not read.
    Skipped,
}

impl Default for FramerState {
    fn default() -> Self {
        Self::Mark(0)
    }
}

impl Framer {
    /// Takes the next bytes of the stream. Calls `dispatch` with the data of each event that ends in them. It
    /// may take the bytes out of the vector.
    pub fn push(&mut self, mut bytes: &[u8], dispatch: &mut dyn FnMut(&mut Vec<u8>)) {
        while let [first, rest @ ..] = bytes {
            if self.is_after_cr {
                self.is_after_cr = false;
                if *first == b'\n' {
                    bytes = rest;
                    continue;
                }
            }
            match self.place {
                FramerState::Mark(seen) if MARK.get(seen) == Some(first) => {
                    self.place = if seen + 1 == MARK.len() {
                        FramerState::Name(0)
                    } else {
                        FramerState::Mark(seen + 1)
                    };
                    bytes = rest;
                }
                FramerState::Mark(seen) => {
                    self.place = if seen == 0 { FramerState::Name(0) } else { FramerState::Skipped }
                }
                FramerState::Name(seen) if DATA.get(seen) == Some(first) => {
                    self.place = FramerState::Name(seen + 1);
                    bytes = rest;
                }
                FramerState::Name(seen) if seen == DATA.len() && *first == b':' => {
                    self.place = FramerState::Colon;
                    bytes = rest;
                }
                FramerState::Name(0) if is_line_end(*first) => {
                    self.dispatch(dispatch);
                    self.end_line(*first);
                    bytes = rest;
                }
                // A name without a colon is a field with an empty value.
                FramerState::Name(seen) if seen == DATA.len() && is_line_end(*first) => {
                    self.place = FramerState::Data;
                }
                FramerState::Name(_) => self.place = FramerState::Skipped,
                FramerState::Colon => {
                    self.place = FramerState::Data;
                    if *first == b' ' {
                        bytes = rest;
                    }
                }
                FramerState::Data | FramerState::Skipped => {
                    let end = memchr2(b'\r', b'\n', bytes);
                    let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
                    if self.place == FramerState::Data {
                        self.add(line);
                    }
                    bytes = rest;
                    if let [end, rest @ ..] = rest {
                        if self.place == FramerState::Data {
                            self.add(b"\n");
                        }
                        self.end_line(*end);
                        bytes = rest;
                    }
                }
            }
        }
    }

    /// Ends the stream. An event that lacks the empty line behind it is dispatched too, although the standard
    /// drops it: some providers leave that line out, and an event that was cut off is no valid JSON.
    pub fn finish(&mut self, dispatch: &mut dyn FnMut(&mut Vec<u8>)) {
        self.dispatch(dispatch);
    }

    pub fn held_bytes(&self) -> usize {
        self.event.capacity()
    }

    fn end_line(&mut self, end: u8) {
        self.is_after_cr = end == b'\r';
        self.place = FramerState::Name(0);
    }

    fn add(&mut self, data: &[u8]) {
        if self.event.len() + data.len() > EVENT_BYTES_MAX {
            self.is_too_long = true;
            self.event = Vec::new();
        }
        if !self.is_too_long {
            self.event.extend_from_slice(data);
        }
    }

    fn dispatch(&mut self, dispatch: &mut dyn FnMut(&mut Vec<u8>)) {
        if !self.is_too_long && !self.event.is_empty() {
            dispatch(&mut self.event);
        }
        self.is_too_long = false;
        self.event.clear();
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}
