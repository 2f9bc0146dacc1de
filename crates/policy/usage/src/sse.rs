//! Divides a stream into the data of its events, by the rules of the HTML standard (§9.2.6, "Interpreting an
//! event stream"), without keeping any of it.

use memchr::{memchr, memchr2};

/// The byte order mark, which may come before the first line.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// The only field of an event that is read.
const DATA: &[u8] = b"data";

/// A part of a stream of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SsePart<'a> {
    /// Bytes of an event's data.
    Data(&'a [u8]),
    /// The event ends.
    End,
}

/// The position in a stream of events.
#[derive(Debug, Clone, Copy)]
pub struct Sse {
    place: Place,
    /// `true` if the last byte was a CR. A LF behind it belongs to the same line end.
    is_after_cr: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Before the first line, behind this many bytes of a byte order mark.
    Mark(u8),
    /// In the name of a field, whose first bytes so far are as many of `data`.
    Name(u8),
    /// Behind the colon after `data`.
    Colon,
    /// In a line of data.
    Data,
    /// In a line that is not read.
    Skipped,
}

impl Default for Sse {
    fn default() -> Self {
        Self { place: Place::Mark(0), is_after_cr: false }
    }
}

impl Sse {
    /// Takes the next bytes of the stream, and passes the parts in them on.
    pub fn push(&mut self, mut bytes: &[u8], pass: &mut dyn FnMut(SsePart<'_>)) {
        while let [first, rest @ ..] = bytes {
            if self.is_after_cr {
                self.is_after_cr = false;
                if *first == b'\n' {
                    bytes = rest;
                    continue;
                }
            }
            bytes = match self.place {
                Place::Data | Place::Skipped => self.in_line(bytes, pass),
                _ => self.before_line(*first, bytes, pass),
            };
        }
    }

    /// Returns `true` if the next byte is the first one of a line, so an event may begin with it.
    pub fn is_between(&self) -> bool {
        self.place == Place::Name(0) && !self.is_after_cr
    }

    /// Returns the data of the next event, and the bytes behind it, if all of it is in `bytes`, with one line
    /// of data, and lines that end with LF.
    pub fn whole_event<'b>(&mut self, bytes: &'b [u8]) -> Option<(&'b [u8], &'b [u8])> {
        if self.place == Place::Mark(0) && bytes.first().is_some_and(|first| *first != MARK[0]) {
            self.place = Place::Name(0);
        }
        if !self.is_between() {
            return None;
        }
        let mut rest = bytes;
        loop {
            let (line, after) = rest.split_at(memchr(b'\n', rest)?);
            rest = &after[1..];
            match line.strip_prefix(DATA) {
                Some([b':', data @ ..]) if memchr(b'\r', line).is_none() => {
                    let [b'\n', rest @ ..] = rest else { return None };
                    return Some((data, rest));
                }
                None if !line.is_empty() && memchr(b'\r', line).is_none() => {}
                _ => return None,
            }
        }
    }

    /// Reads the first byte before the content of a line. Returns the bytes that are left.
    fn before_line<'b>(&mut self, first: u8, bytes: &'b [u8], pass: &mut dyn FnMut(SsePart<'_>)) -> &'b [u8] {
        let (place, is_taken) = match self.place {
            Place::Mark(seen) if MARK.get(usize::from(seen)) == Some(&first) => {
                let is_whole = usize::from(seen) + 1 == MARK.len();
                (if is_whole { Place::Name(0) } else { Place::Mark(seen + 1) }, true)
            }
            Place::Mark(0) => (Place::Name(0), false),
            Place::Name(seen) if DATA.get(usize::from(seen)) == Some(&first) => (Place::Name(seen + 1), true),
            Place::Name(seen) if usize::from(seen) == DATA.len() && first == b':' => (Place::Colon, true),
            Place::Name(0) if is_line_end(first) => {
                pass(SsePart::End);
                self.is_after_cr = first == b'\r';
                (Place::Name(0), true)
            }
            // A name without a colon is a field with an empty value.
            Place::Name(seen) if usize::from(seen) == DATA.len() && is_line_end(first) => {
                (Place::Data, false)
            }
            Place::Colon => (Place::Data, first == b' '),
            _ => (Place::Skipped, false),
        };
        self.place = place;
        &bytes[usize::from(is_taken)..]
    }

    /// Reads up to the end of a line. Returns the bytes behind it.
    fn in_line<'b>(&mut self, bytes: &'b [u8], pass: &mut dyn FnMut(SsePart<'_>)) -> &'b [u8] {
        let end = memchr2(b'\r', b'\n', bytes);
        let (line, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
        let is_data = self.place == Place::Data;
        if is_data {
            pass(SsePart::Data(line));
        }
        let [end, rest @ ..] = rest else { return rest };
        if is_data {
            // Lines of data are joined by it. Between two tokens it is white space.
            pass(SsePart::Data(b"\n"));
        }
        self.is_after_cr = *end == b'\r';
        self.place = Place::Name(0);
        rest
    }
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(pieces: &[&[u8]]) -> Vec<String> {
        let (mut sse, mut events, mut event) = (Sse::default(), Vec::new(), Vec::new());
        for piece in pieces {
            sse.push(piece, &mut |part| match part {
                SsePart::Data(data) => event.extend_from_slice(data),
                SsePart::End => events.push(String::from_utf8(std::mem::take(&mut event)).unwrap()),
            });
        }
        events
    }

    #[test]
    fn only_data_is_passed_at_any_cut() {
        let stream = b"\xef\xbb\xbf: data: no\r\ndata: a\rdata:b\n\nevent: data\ndata\ndatas: no\n\n data: no\n\r\ndata:  c\n";
        let whole = events(&[stream]);
        assert_eq!(whole, ["a\nb\n", "\n", ""]);
        for cut in 0..stream.len() {
            let (start, end) = stream.split_at(cut);
            assert_eq!(events(&[start, end]), whole, "cut at {cut}");
        }
    }
}
