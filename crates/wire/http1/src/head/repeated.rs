//! Field lines of the heads before. A peer repeats most of its lines, and a line that stands where it stood
//! in the last head need not be parsed again. If a peer repeats all of them, they are compared at once.

use egret_items::opaque;

use super::facts::Facts;
use super::fields::Field;
use super::limits::HeadLimits;
use super::version::Version;
use crate::span::{Span, to_u32};

/// Number of lines that are remembered, from the first on.
const LINES: usize = 16;
/// Length of a word in bytes, and so of the shortest line that is remembered.
const WORD: usize = 8;
/// Length of the longest line that is remembered.
const LINE_BYTES_MAX: usize = 64;

/// The lines of the heads before.
#[derive(Default)]
pub(super) struct RepeatedLines {
    /// The last line at each place of the head that was short enough to be remembered.
    lines: [Line; LINES],
    /// All lines of the last head, if each of them had been remembered.
    all: AllLines,
}

/// The lines of a whole head, with the empty line that ends it, and their meaning.
#[derive(Default)]
struct AllLines {
    /// Empty if there are none.
    bytes: Vec<u8>,
    /// Their offset in the head, which the fields and facts refer to.
    start: usize,
    version: Version,
    facts: Facts,
    fields: Vec<Field>,
}

opaque!(RepeatedLines);

/// A line, and the field that it is.
#[derive(Default)]
struct Line {
    /// Its whole words.
    words: [u64; LINE_BYTES_MAX / WORD],
    /// Its last eight bytes.
    last: u64,
    /// The field, in a line that begins at offset 0. The line is empty if none is remembered.
    field: Field,
}

impl RepeatedLines {
    /// Returns the lines of a head, of which `is_first` is `true` before anything was parsed into it. A value
    /// for one head needs no memory of its lines, so they get theirs with the second.
    #[inline]
    pub fn of(kept: &mut Option<Box<Self>>, is_first: bool) -> Option<&mut Self> {
        (!is_first).then(|| &mut **kept.get_or_insert_default())
    }

    /// Returns the field of line `number`, which begins at offset `at` of `window`, if the line is the
    /// remembered one.
    #[inline]
    pub fn find(&self, number: usize, window: &[u8], at: usize) -> Option<Field> {
        let line = self.lines.get(number)?;
        let bytes = window.get(at..at + line.field.line_end as usize)?;
        let (words, last) = (bytes.as_chunks::<WORD>().0, bytes.last_chunk::<WORD>()?);
        // All of the line is compared, and so the time says nothing about the part of a secret that differs.
        let mut differs = u64::from_le_bytes(*last) ^ line.last;
        for (at, known) in line.words.iter().enumerate() {
            let Some(word) = words.get(at) else { break };
            differs |= u64::from_le_bytes(*word) ^ known;
        }
        (differs == 0).then(|| line.field.moved_by(to_u32(at)))
    }

    /// Remembers `field`, whose line is number `number` and begins at offset `at` of `window`.
    #[inline]
    pub fn note(&mut self, number: usize, window: &[u8], at: usize, field: Field) {
        let Some(line) = self.lines.get_mut(number) else { return };
        let Some(bytes) = window.get(at..field.line_end as usize) else { return };
        let Some(last) = bytes.last_chunk::<WORD>().filter(|_| bytes.len() <= LINE_BYTES_MAX) else { return };
        for (known, word) in line.words.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
            *known = u64::from_le_bytes(*word);
        }
        line.last = u64::from_le_bytes(*last);
        line.field = field.moved_by(to_u32(at).wrapping_neg());
    }
}

impl RepeatedLines {
    /// Returns the meaning of all lines of `window` from offset `start` on, and the end of the head, and puts
    /// the lines into `fields`, if they are those of the last head.
    #[inline]
    pub fn find_all(
        &self,
        window: &[u8],
        start: usize,
        version: Version,
        limits: &HeadLimits,
        fields: &mut Vec<Field>,
    ) -> Option<(Facts, usize)> {
        let AllLines { bytes, start: before, version: known_version, facts, fields: known } = &self.all;
        let end = start + bytes.len();
        if bytes.is_empty()
            || !are_equal(window.get(start..end)?, bytes)
            || version != *known_version
            || known.len() > limits.max_fields()
        {
            return None;
        }
        let mut facts = *facts;
        if start == *before {
            fields.extend_from_slice(known);
        } else {
            let offset = to_u32(start).wrapping_sub(to_u32(*before));
            fields.extend(known.iter().map(|field| field.moved_by(offset)));
            facts.host = facts.host.map(|host| host.moved_by(offset));
        }
        Some((facts, end))
    }

    /// Remembers all lines of `head`, which begin at offset `start`, with their meaning.
    #[cold]
    pub fn note_all(&mut self, head: &[u8], start: usize, version: Version, facts: &Facts, fields: &[Field]) {
        let all = &mut self.all;
        all.bytes.clear();
        all.bytes.extend_from_slice(&head[start..]);
        all.fields.clear();
        all.fields.extend_from_slice(fields);
        (all.start, all.version, all.facts) = (start, version, *facts);
    }

    /// Forgets the lines of the last head, which are not repeated.
    #[inline]
    pub fn forget_all(&mut self) {
        self.all.bytes.clear();
    }
}

/// Compares all bytes of two texts of the same length, a word at least, and so the time says nothing about
/// the place where they differ.
#[inline]
fn are_equal(one: &[u8], other: &[u8]) -> bool {
    let (Some(last), Some(other_last)) = (one.last_chunk::<WORD>(), other.last_chunk::<WORD>()) else {
        return false;
    };
    let differs =
        |one: &[u8; WORD], other: &[u8; WORD]| u64::from_le_bytes(*one) ^ u64::from_le_bytes(*other);
    let words = one.as_chunks::<WORD>().0.iter().zip(other.as_chunks::<WORD>().0);
    words.fold(differs(last, other_last), |all, (one, other)| all | differs(one, other)) == 0
}

impl Span {
    /// Returns the span of the same bytes, `offset` bytes later.
    #[inline]
    fn moved_by(self, offset: u32) -> Self {
        Self { start: self.start.wrapping_add(offset), end: self.end.wrapping_add(offset) }
    }
}

impl Field {
    /// Returns the field in a line that begins `offset` bytes later.
    #[inline]
    fn moved_by(self, offset: u32) -> Self {
        let line_end = self.line_end.wrapping_add(offset);
        Self { name: self.name.moved_by(offset), value: self.value.moved_by(offset), line_end, ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::read_line;
    use super::*;

    /// Returns a line of `len` bytes.
    fn line(len: usize) -> Vec<u8> {
        let mut line = b"Name:".to_vec();
        line.extend((line.len()..len - 2).map(|at| b"abcdefghijklmnopqrst"[at % 20]));
        [&line[..], b"\r\n"].concat()
    }

    #[test]
    fn an_equal_line_is_found_at_any_offset() {
        for len in 8..=LINE_BYTES_MAX + 9 {
            let line = line(len);
            let mut lines = RepeatedLines::default();
            let field = read_line(&line, 0).unwrap().unwrap();
            lines.note(3, &line, 0, field);
            for at in 0..9 {
                let window = [&vec![b'x'; at][..], &line, b"Next: line\r\n"].concat();
                let expected = (len <= LINE_BYTES_MAX).then(|| read_line(&window, at).unwrap().unwrap());
                assert_eq!(lines.find(3, &window, at), expected, "{len} bytes at {at}");
                assert_eq!(lines.find(2, &window, at), None, "another place");
                assert_eq!(lines.find(3, &window[..at + len - 1], at), None, "it is not complete");
                for differing in at..at + len {
                    let mut other = window.clone();
                    other[differing] ^= 0x20;
                    assert_eq!(lines.find(3, &other, at), None, "{len} bytes at {at}, byte {differing}");
                }
            }
        }
    }

    #[test]
    fn a_line_that_is_not_remembered_leaves_the_last_one() {
        let mut lines = RepeatedLines::default();
        for (number, text, is_kept) in [
            (0, &b"Host: a\r\n"[..], true),
            (0, b"A: b\r\n", false),
            (0, &line(65), false),
            (LINES, b"Host: b\r\n", false),
        ] {
            let field = read_line(text, 0).unwrap().unwrap();
            lines.note(number, text, 0, field);
            assert_eq!(lines.find(number, text, 0).is_some(), is_kept, "{}", text.escape_ascii());
        }
        assert!(lines.find(0, b"Host: a\r\n", 0).is_some());
        assert!(lines.find(0, b"Host: a\r\n", 5).is_none());
    }

    #[test]
    fn all_lines_are_found_at_once_after_they_were_repeated() {
        const LINES: &[u8] = b"Host: example\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";
        let (mut lines, limits) = (RepeatedLines::default(), HeadLimits::default());
        let mut fields = Vec::new();
        let window =
            |start: usize, lines: &[u8]| [&vec![b'x'; start][..], lines, b"Host: of the next\r\n"].concat();
        let mut read = |start, text: &[u8], version, limits: &HeadLimits| {
            let window = window(start, text);
            let mut found = Vec::new();
            let found_all = lines.find_all(&window, start, version, limits, &mut found);
            let read = Facts::read(&window, start, version, limits, Some(&mut lines), &mut fields);
            if let Some((facts, end)) = found_all {
                let mut expected = Vec::new();
                let (read, read_end) =
                    Facts::read(&window, start, version, limits, None, &mut expected).unwrap().unwrap();
                assert_eq!((end, found), (read_end, expected));
                assert_eq!((facts.host, facts.content_length), (read.host, read.content_length));
                assert!(facts.expect_continue);
            }
            (found_all.is_some(), read.is_ok())
        };
        for (start, is_found) in [(16, false), (16, false), (16, true), (3, true), (40, true)] {
            assert_eq!(read(start, LINES, Version::Http11, &limits), (is_found, true), "{start}");
        }
        let few = HeadLimits { fields: 2, ..limits };
        assert_eq!(read(16, LINES, Version::Http11, &few), (false, false), "a new limit holds");
        assert_eq!(read(16, LINES, Version::Http10, &limits), (false, true), "another version");
        assert_eq!(read(16, LINES, Version::Http11, &limits), (false, true));
        assert_eq!(read(16, LINES, Version::Http11, &limits), (true, true));
        for at in 0..LINES.len() {
            let mut other = LINES.to_vec();
            other[at] ^= 1;
            assert!(!read(16, &other, Version::Http11, &limits).0, "byte {at} differs");
            for _ in 0..2 {
                read(16, LINES, Version::Http11, &limits);
            }
            assert!(read(16, LINES, Version::Http11, &limits).0);
            assert!(!read(16, &LINES[..at], Version::Http11, &limits).0, "only {at} bytes");
            for _ in 0..2 {
                read(16, LINES, Version::Http11, &limits);
            }
        }
    }
}
