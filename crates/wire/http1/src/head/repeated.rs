//! Field lines of the heads before. A peer repeats most of its lines, and a line that stands where it stood
//! in the last head need not be parsed again.

use std::fmt;

use super::fields::Field;
use crate::span::{Span, to_u32};

/// Number of lines that are remembered, from the first on.
const LINES: usize = 16;
/// Length of a word in bytes, and so of the shortest line that is remembered.
const WORD: usize = 8;
/// Length of the longest line that is remembered.
const LINE_BYTES_MAX: usize = 64;

/// The last line at each place of the head that was short enough to be remembered.
#[derive(Default)]
pub(super) struct RepeatedLines([Line; LINES]);

impl fmt::Debug for RepeatedLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RepeatedLines")
    }
}

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
        let line = self.0.get(number)?;
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
        let Some(line) = self.0.get_mut(number) else { return };
        let Some(bytes) = window.get(at..field.line_end as usize) else { return };
        let Some(last) = bytes.last_chunk::<WORD>().filter(|_| bytes.len() <= LINE_BYTES_MAX) else { return };
        for (known, word) in line.words.iter_mut().zip(bytes.as_chunks::<WORD>().0) {
            *known = u64::from_le_bytes(*word);
        }
        line.last = u64::from_le_bytes(*last);
        line.field = field.moved_by(to_u32(at).wrapping_neg());
    }
}

impl Field {
    /// Returns the field in a line that begins `offset` bytes later.
    #[inline]
    fn moved_by(self, offset: u32) -> Self {
        let moved =
            |span: Span| Span { start: span.start.wrapping_add(offset), end: span.end.wrapping_add(offset) };
        let line_end = self.line_end.wrapping_add(offset);
        Self { name: moved(self.name), value: moved(self.value), line_end, ..self }
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
}
