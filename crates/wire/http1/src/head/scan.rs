//! Scans an incomplete head without reading any byte twice.

use memchr::memchr;

use super::error::HeadError;
use super::limits::HeadLimits;
use super::progress::Progress;

/// Scan position in a partial head.
#[derive(Debug, Default)]
pub(super) struct HeadScan {
    /// Bytes scanned.
    scanned: usize,
    /// Start of the incomplete last line.
    line_start: usize,
    /// Complete lines, including the start line.
    lines: usize,
}

impl HeadScan {
    /// Returns `true` before anything was scanned.
    #[inline]
    pub fn is_new(&self) -> bool {
        self.scanned == 0
    }

    /// Scans the head in `buffer`, which was incomplete when it was parsed last, and parses it again with
    /// `parse_whole` once its end was received. After any result except [`Progress::Partial`] the scan is
    /// reset.
    pub fn run(
        &mut self,
        buffer: &[u8],
        limits: &HeadLimits,
        mut parse_whole: impl FnMut() -> Result<Progress, HeadError>,
    ) -> Result<Progress, HeadError> {
        let known_partial = self.is_new();
        let mut scan = std::mem::take(self);
        match scan.advance(buffer, limits)? {
            Progress::Partial => *self = scan,
            Progress::Complete if !known_partial && parse_whole()? == Progress::Complete => {
                return Ok(Progress::Complete);
            }
            // The parser and the scan disagree on the end of the head, so the head cannot be trusted.
            Progress::Complete => return Err(HeadError::StartLine),
        }
        Ok(Progress::Partial)
    }

    /// Scans the new bytes of `buffer`. Complete once the empty line that ends the head is there. Rejects
    /// early, before the end of the head, bare line feeds and every exceeded limit.
    fn advance(&mut self, buffer: &[u8], limits: &HeadLimits) -> Result<Progress, HeadError> {
        let window = limits.window(buffer);
        if self.scanned > window.len() {
            *self = Self::default(); // not the bytes of the last call: restart
        }
        while let Some(found) = memchr(b'\n', &window[self.scanned..]) {
            let line_feed = self.scanned + found;
            if line_feed == self.line_start || window[line_feed - 1] != b'\r' {
                return Err(HeadError::BareLineFeed);
            }
            if self.end_line(line_feed - 1, limits)? == Progress::Complete {
                return Ok(Progress::Complete);
            }
            self.line_start = line_feed + 1;
            self.scanned = self.line_start;
        }
        self.scanned = window.len();
        // The CR of a line within the limit may already be there.
        if self.lines == 0 && window.len() - self.line_start > limits.start_line.saturating_add(1) {
            return Err(HeadError::StartLineTooLong);
        }
        if window.len() < buffer.len() || window.len() == limits.head {
            return Err(HeadError::HeadTooLong);
        }
        Ok(Progress::Partial)
    }

    /// Counts a line that ends before `carriage_return`.
    fn end_line(&mut self, carriage_return: usize, limits: &HeadLimits) -> Result<Progress, HeadError> {
        let len = carriage_return - self.line_start;
        match self.lines {
            // One empty line before the start line is skipped (RFC 9112 §2.2).
            0 if len == 0 && self.line_start == 0 => return Ok(Progress::Partial),
            0 if len == 0 => return Err(HeadError::EmptyLine),
            0 if len > limits.start_line => return Err(HeadError::StartLineTooLong),
            0 => {}
            _ if len == 0 => return Ok(Progress::Complete),
            fields if fields > limits.max_fields() => return Err(HeadError::TooManyFields),
            _ => {}
        }
        self.lines += 1;
        Ok(Progress::Partial)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RequestHead, ResponseHead};

    const LIMITS: HeadLimits = HeadLimits { start_line: 20, head: 64, fields: 2 };

    /// Feeds `text` byte by byte. Returns the outcome and the number of bytes it took.
    fn drip(text: &[u8], limits: &HeadLimits) -> (Result<Progress, HeadError>, usize) {
        let mut head = RequestHead::new();
        for end in 1..=text.len() {
            let result = head.parse(&text[..end], limits);
            if result != Ok(Progress::Partial) {
                return (result, end);
            }
        }
        (Ok(Progress::Partial), text.len())
    }

    #[test]
    fn a_partial_head_beyond_a_limit_is_refused() {
        let endless = [b'a'; 100];
        let line = |len: usize| [b"GET /", &endless[..len - 14], b" HTTP/1.1\r\n"].concat();
        let after = |len: usize| [&line(len)[..], b"Host: a\r\n\r\n"].concat();
        assert_eq!(drip(&after(20), &LIMITS), (Ok(Progress::Complete), 33));
        // The 22nd byte shows that the line exceeds the limit.
        assert_eq!(drip(&after(21), &LIMITS), (Err(HeadError::StartLineTooLong), 22));
        let mut head = RequestHead::new();
        assert_eq!(head.parse(&after(21), &LIMITS), Err(HeadError::StartLineTooLong));
        assert_eq!(head.parse(&[b"GET /", &endless[..]].concat(), &LIMITS), Err(HeadError::StartLineTooLong));

        let fields = |count: usize| [b"GET / HTTP/1.0\r\n", &b"A: b\r\n".repeat(count)[..], b"\r\n"].concat();
        assert_eq!(drip(&fields(2), &LIMITS), (Ok(Progress::Complete), 30));
        assert_eq!(drip(&fields(3), &LIMITS), (Err(HeadError::TooManyFields), 34));
        assert_eq!(head.parse(&fields(3), &LIMITS), Err(HeadError::TooManyFields));

        let long = |len: usize| [b"GET / HTTP/1.0\r\nA: ", &endless[..len - 23], b"\r\n\r\n"].concat();
        assert_eq!(drip(&long(64), &LIMITS), (Ok(Progress::Complete), 64));
        assert_eq!(drip(&long(65), &LIMITS), (Err(HeadError::HeadTooLong), 64));
        assert_eq!(head.parse(&long(65), &LIMITS), Err(HeadError::HeadTooLong));
        assert_eq!(head.parse(&long(64)[..63], &LIMITS), Ok(Progress::Partial));
    }

    #[test]
    fn hard_maxima_hold_whatever_the_limits_say() {
        let limits = HeadLimits { start_line: usize::MAX, head: usize::MAX, fields: usize::MAX };
        let mut head = RequestHead::new();
        let long = [b"GET / HTTP/1.0\r\nA: ", &vec![b'a'; crate::MAX_HEAD][..], b"\r\n\r\n"].concat();
        assert_eq!(head.parse(&long, &limits), Err(HeadError::HeadTooLong));
        let fields = |count| [b"GET / HTTP/1.0\r\n", &b"A: b\r\n".repeat(count)[..], b"\r\n"].concat();
        assert_eq!(head.parse(&fields(crate::MAX_FIELDS), &limits), Ok(Progress::Complete));
        assert_eq!(head.parse(&fields(crate::MAX_FIELDS + 1), &limits), Err(HeadError::TooManyFields));
        assert_eq!(drip(&fields(crate::MAX_FIELDS + 1), &limits).0, Err(HeadError::TooManyFields));
    }

    #[test]
    fn bare_line_feeds_are_refused_at_once() {
        for text in [&b"GET / HTTP/1.0\n"[..], b"GET / HTTP/1.0\r\nA: b\n", b"GET / HTTP/1.0\r\n\n", b"\n"] {
            let (result, len) = drip(text, &LIMITS);
            assert_eq!((result, len), (Err(HeadError::BareLineFeed), text.len()), "{}", text.escape_ascii());
        }
        assert_eq!(drip(b"\r\n\r\n", &LIMITS), (Err(HeadError::EmptyLine), 4));
        let mut head = ResponseHead::new();
        assert_eq!(head.parse(b"HTTP/1.1 2", &LIMITS, crate::Method::Get), Ok(Progress::Partial));
        assert_eq!(
            head.parse(b"HTTP/1.1 200 O\n", &LIMITS, crate::Method::Get),
            Err(HeadError::BareLineFeed)
        );
    }

    #[test]
    fn an_impossible_start_is_refused_before_the_head_ends() {
        let rows: &[(&[u8], HeadError)] = &[
            (b"\x16", HeadError::Method),
            (b"GET / HTTP/1.1\rH", HeadError::BareCarriageReturn),
            (b"GET /\0", HeadError::Target),
            (b"GET / HTTP/1.1\r\nHost: a\rb", HeadError::BareCarriageReturn),
        ];
        for (text, error) in rows {
            let parsed = RequestHead::new().parse(text, &LIMITS);
            assert_eq!(parsed, Err(*error), "{}", text.escape_ascii());
        }
        let mut head = ResponseHead::new();
        let get = crate::Method::Get;
        assert_eq!(head.parse(b"SSH", &LIMITS, get), Err(HeadError::Version));
        assert_eq!(head.parse(b"HTTP/1.1 200 O\rK", &LIMITS, get), Err(HeadError::Status));
    }

    #[test]
    fn a_head_is_fresh_after_an_error_a_reset_or_another_buffer() {
        let whole = b"GET / HTTP/1.0\r\n\r\n";
        let mut head = RequestHead::new();
        assert_eq!(head.parse(b"GET / HTTP/1.0\r\nA: b", &LIMITS), Ok(Progress::Partial));
        head.reset();
        assert_eq!(head.parse(whole, &LIMITS), Ok(Progress::Complete));
        assert_eq!(head.parse(b"GET / HTTP/1.0\r\nA: b\r\nB:", &LIMITS), Ok(Progress::Partial));
        assert_eq!(head.parse(whole, &LIMITS), Ok(Progress::Complete), "a shorter buffer is another one");
        assert_eq!(head.parse(b"GET / HTTP/1.0\n", &LIMITS), Err(HeadError::BareLineFeed));
        assert_eq!(head.parse(whole, &LIMITS), Ok(Progress::Complete));

        let mut head = ResponseHead::new();
        let get = crate::Method::Get;
        assert_eq!(head.parse(b"HTTP/1.1 204", &LIMITS, get), Ok(Progress::Partial));
        assert_eq!(head.parse(b"\r\nHTTP/1.1 204 x\r\n", &LIMITS, get), Err(HeadError::EmptyLine));
        assert_eq!(head.parse(b"HTTP/1.1 204 x\r\n\r\n", &LIMITS, get), Ok(Progress::Complete));
    }

    #[test]
    fn an_empty_buffer_is_partial() {
        assert_eq!(RequestHead::new().parse(b"", &LIMITS), Ok(Progress::Partial));
        assert_eq!(RequestHead::new().parse(b"\r", &LIMITS), Ok(Progress::Partial));
        assert_eq!(RequestHead::new().parse(b"\r\n", &LIMITS), Ok(Progress::Partial));
        assert_eq!(ResponseHead::new().parse(b"", &LIMITS, crate::Method::Get), Ok(Progress::Partial));
    }
}
