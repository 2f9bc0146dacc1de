//! Body decoder: walks a body through its buffers and finds the bytes that are data.

use super::chunk::ChunkLine;
use super::error::BodyError;
use super::trailers::TrailerSection;
use crate::head::ResponseFraming;
use crate::span::Span;

/// Finds the data of one body in the received bytes, however they are split. Data is never copied.
///
/// After an error every further call returns the same error.
#[derive(Debug, Default)]
pub struct BodyDecoder {
    state: State,
    chunked: bool,
    /// Bytes still expected of the body ([`State::Length`]) or of the chunk ([`State::ChunkData`]); at least
    /// 1 in these states.
    remaining: u64,
    /// The current chunk header line ([`State::ChunkLine`]).
    line: ChunkLine,
    /// Bytes of chunk extensions so far.
    extensions: usize,
    trailers: TrailerSection,
}

#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Done,
    Length,
    UntilClose,
    ChunkLine,
    ChunkData,
    ChunkCarriageReturn,
    ChunkLineFeed,
    Trailers,
    Failed(BodyError),
}

impl BodyDecoder {
    /// Creates a decoder for a message without a body; it is done from the start.
    pub fn none() -> Self {
        Self::default()
    }

    /// Creates a decoder for a body of `length` bytes.
    pub fn length(length: u64) -> Self {
        Self::from(ResponseFraming::Length(length))
    }

    /// Creates a decoder for a chunked body.
    pub fn chunked() -> Self {
        Self::from(ResponseFraming::Chunked)
    }

    /// Resets the decoder in place for a body delimited by `framing`, so no whole decoder is copied.
    #[inline]
    pub fn restart(&mut self, framing: impl Into<ResponseFraming>) {
        let framing = framing.into();
        (self.state, self.remaining) = match framing {
            ResponseFraming::None | ResponseFraming::Length(0) => (State::Done, 0),
            ResponseFraming::Length(length) => (State::Length, length),
            ResponseFraming::Chunked => (State::ChunkLine, 0),
            ResponseFraming::UntilClose => (State::UntilClose, 0),
        };
        self.chunked = framing == ResponseFraming::Chunked;
        if self.chunked {
            self.line = ChunkLine::default();
            self.extensions = 0;
        }
        self.trailers.clear();
    }

    /// Finds the body data in `input`, the bytes that follow those consumed before.
    ///
    /// Appends the non-empty spans of `input` that are data to `data`. Returns the number of bytes consumed:
    /// all of them, or those up to the end of the message. The rest belongs to the next message.
    pub fn decode(&mut self, input: &[u8], data: &mut Vec<Span>) -> Result<usize, BodyError> {
        // Spans are 32 bits wide; bytes beyond that are not consumed.
        let input = &input[..input.len().min(u32::MAX as usize)];
        let mut at = 0;
        while at < input.len() {
            let consumed =
                self.consume(&input[at..]).inspect_err(|&error| self.state = State::Failed(error))?;
            match consumed {
                Consumed::Done => break,
                Consumed::Data(len) => data.push(Span::new(at, at + len)),
                Consumed::Syntax(_) => {}
            }
            at += consumed.len();
        }
        Ok(at)
    }

    /// Consumes at least one byte of `input`, which must not be empty, unless the body is done.
    #[inline]
    fn consume(&mut self, input: &[u8]) -> Result<Consumed, BodyError> {
        match self.state {
            State::Done => return Ok(Consumed::Done),
            State::Failed(error) => return Err(error),
            State::UntilClose => return Ok(Consumed::Data(input.len())),
            State::Length => return Ok(Consumed::Data(self.consume_data(input, State::Done))),
            State::ChunkData => {
                return Ok(Consumed::Data(self.consume_data(input, State::ChunkCarriageReturn)));
            }
            State::ChunkLine => {
                let (len, size) = self.line.consume(input, &mut self.extensions)?;
                if let Some(size) = size {
                    self.state = if size == 0 { State::Trailers } else { State::ChunkData };
                    self.remaining = size;
                    self.line = ChunkLine::default();
                }
                return Ok(Consumed::Syntax(len));
            }
            State::Trailers => {
                let (len, done) = self.trailers.consume(input)?;
                if done {
                    self.state = State::Done;
                }
                return Ok(Consumed::Syntax(len));
            }
            State::ChunkCarriageReturn if input.starts_with(b"\r\n") => {
                self.state = State::ChunkLine;
                return Ok(Consumed::Syntax(2));
            }
            State::ChunkCarriageReturn if input[0] == b'\r' => self.state = State::ChunkLineFeed,
            State::ChunkLineFeed if input[0] == b'\n' => self.state = State::ChunkLine,
            State::ChunkCarriageReturn | State::ChunkLineFeed => return Err(BodyError::ChunkEnd),
        }
        Ok(Consumed::Syntax(1))
    }

    /// Consumes the data at the start of `input`, and changes to state `next` after its last byte.
    #[inline]
    fn consume_data(&mut self, input: &[u8], next: State) -> usize {
        let len = usize::try_from(self.remaining).unwrap_or(usize::MAX).min(input.len());
        self.remaining -= len as u64;
        if self.remaining == 0 {
            self.state = next;
        }
        len
    }

    /// Returns `true` once the whole body was seen.
    #[inline]
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Returns `true` if the body is chunked, also after its end.
    pub fn is_chunked(&self) -> bool {
        self.chunked
    }

    /// Records that the peer sends no more. Fails unless the body is done or is delimited by the end of the
    /// connection; in the latter case it is then done.
    pub fn end_of_input(&mut self) -> Result<(), BodyError> {
        match self.state {
            State::Done => Ok(()),
            State::UntilClose => {
                self.state = State::Done;
                Ok(())
            }
            State::Failed(error) => Err(error),
            _ => {
                self.state = State::Failed(BodyError::Incomplete);
                Err(BodyError::Incomplete)
            }
        }
    }

    /// The trailer lines, each with its CRLF, checked like the fields of a head. Empty until the body is
    /// done.
    pub fn trailers(&self) -> &[u8] {
        if self.is_done() { self.trailers.lines() } else { b"" }
    }

    /// Bytes of the body still expected, if known. Unknown before the end of a chunked body or of one that
    /// ends with the connection.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Length => Some(self.remaining),
            _ => None,
        }
    }
}

impl<Framing: Into<ResponseFraming>> From<Framing> for BodyDecoder {
    fn from(framing: Framing) -> Self {
        let mut decoder = Self::default();
        decoder.restart(framing);
        decoder
    }
}

/// The kind and number of the next bytes of the input.
#[derive(Copy, Clone)]
enum Consumed {
    Data(usize),
    Syntax(usize),
    /// They are not part of this body.
    Done,
}

impl Consumed {
    fn len(self) -> usize {
        match self {
            Self::Data(len) | Self::Syntax(len) => len,
            Self::Done => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MAX_CHUNK_EXTENSIONS, MAX_TRAILER_BYTES, MAX_TRAILER_FIELDS};

    /// Decodes `input` in one call. Returns the data and the number of bytes consumed.
    fn decode(decoder: &mut BodyDecoder, input: &[u8]) -> Result<(Vec<u8>, usize), BodyError> {
        let mut spans = Vec::new();
        let consumed = decoder.decode(input, &mut spans)?;
        assert!(spans.iter().all(|span| !span.is_empty()));
        Ok((spans.iter().flat_map(|span| span.of(input).to_vec()).collect(), consumed))
    }

    #[test]
    fn no_body_takes_nothing() {
        for mut decoder in [BodyDecoder::none(), BodyDecoder::length(0)] {
            assert!(decoder.is_done());
            assert_eq!(decoder.remaining(), Some(0));
            assert_eq!(decode(&mut decoder, b"GET / "), Ok((vec![], 0)));
            assert_eq!(decoder.end_of_input(), Ok(()));
        }
    }

    #[test]
    fn a_length_is_counted_down_and_what_follows_stays() {
        let mut decoder = BodyDecoder::length(5);
        assert_eq!(decode(&mut decoder, b"abc"), Ok((b"abc".to_vec(), 3)));
        assert_eq!((decoder.is_done(), decoder.remaining()), (false, Some(2)));
        assert_eq!(decode(&mut decoder, b""), Ok((vec![], 0)));
        assert_eq!(decode(&mut decoder, b"deGET"), Ok((b"de".to_vec(), 2)));
        assert!(decoder.is_done() && !decoder.is_chunked());
    }

    #[test]
    fn the_end_of_input_ends_only_a_body_without_length() {
        let mut decoder = BodyDecoder::from(ResponseFraming::UntilClose);
        assert_eq!(decode(&mut decoder, b"abc"), Ok((b"abc".to_vec(), 3)));
        assert_eq!((decoder.is_done(), decoder.remaining()), (false, None));
        assert_eq!(decoder.end_of_input(), Ok(()));
        assert!(decoder.is_done());
        for mut decoder in [BodyDecoder::length(1), BodyDecoder::chunked()] {
            assert_eq!(decoder.end_of_input(), Err(BodyError::Incomplete));
            assert_eq!(decode(&mut decoder, b"0"), Err(BodyError::Incomplete));
            assert_eq!(decoder.end_of_input(), Err(BodyError::Incomplete));
        }
    }

    #[test]
    fn well_formed_chunks_rfc_9112_section_7_1() {
        let rows: &[(&str, &str, &str)] = &[
            ("0\r\n\r\n", "", ""),
            ("3\r\nabc\r\n0\r\n\r\n", "abc", ""),
            ("1\r\na\r\n2\r\nbc\r\n000\r\n\r\n", "abc", ""),
            ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", ""),
            ("000000000000000a\r\n0123456789\r\n0\r\n\r\n", "0123456789", ""),
            ("2;a=b;c=\"d e\"\r\n\r\n\r\n0;x\r\n\r\n", "\r\n", ""),
            ("0\r\nA: b\r\nc:\r\n\r\n", "", "A: b\r\nc:\r\n"),
        ];
        for (text, data, trailers) in rows {
            let mut decoder = BodyDecoder::chunked();
            let with_next = format!("{text}GET /");
            let result = decode(&mut decoder, with_next.as_bytes());
            assert_eq!(result, Ok((data.as_bytes().to_vec(), text.len())), "{text:?}");
            assert!(decoder.is_done() && decoder.is_chunked());
            assert_eq!(decoder.remaining(), Some(0));
            assert_eq!(decoder.trailers(), trailers.as_bytes());
        }
    }

    #[test]
    fn malformed_chunks_are_refused_by_rule() {
        let rows: &[(&str, &[u8], BodyError)] = &[
            ("7.1 empty line", b"\r\n", BodyError::ChunkSize),
            ("7.1 no size", b";a\r\n", BodyError::ChunkSize),
            ("7.1 sign", b"+1\r\n", BodyError::ChunkSize),
            ("7.1 minus", b"-1\r\n", BodyError::ChunkSize),
            ("7.1 prefix", b"0x1\r\n", BodyError::ChunkSize),
            ("7.1 underscore", b"1_0\r\n", BodyError::ChunkSize),
            ("7.1 space before", b" 1\r\n", BodyError::ChunkSize),
            ("7.1 space after", b"1 \r\n", BodyError::ChunkSize),
            ("7.1 tab after", b"1\t;a\r\n", BodyError::ChunkSize),
            ("7.1 letter", b"g\r\n", BodyError::ChunkSize),
            ("7.1 NUL", b"\0\r\n", BodyError::ChunkSize),
            ("7.1 bare LF", b"1\na", BodyError::ChunkSize),
            ("7.1 bare CR", b"1\ra", BodyError::ChunkSize),
            ("7.1 CR CR LF", b"1\r\r\n", BodyError::ChunkSize),
            ("7.1 17 digits", b"00000000000000001\r\n", BodyError::ChunkSize),
            ("7.1 overflow", b"10000000000000000\r\n", BodyError::ChunkSize),
            ("7.1 largest", b"ffffffffffffffff\r\n", BodyError::ChunkTooLarge),
            ("7.1 2^63", b"8000000000000000\r\n", BodyError::ChunkTooLarge),
            ("7.1.1 LF in extension", b"1;a\nb\r\n", BodyError::ChunkExtension),
            ("7.1.1 bare CR in extension", b"1;a\rb\r\n", BodyError::ChunkSize),
            ("7.1.1 tab in extension", b"1;\ta\r\n", BodyError::ChunkExtension),
            ("7.1.1 NUL in extension", b"1;a\0\r\n", BodyError::ChunkExtension),
            ("7.1.1 DEL in extension", b"1;a\x7f\r\n", BodyError::ChunkExtension),
            ("7.1 data too long", b"1\r\nab\r\n", BodyError::ChunkEnd),
            ("7.1 LF after data", b"1\r\na\n", BodyError::ChunkEnd),
            ("7.1 CR after data", b"1\r\na\rb", BodyError::ChunkEnd),
            ("7.1 data too short", b"2\r\na\r\n0", BodyError::ChunkEnd),
            ("7.1.2 bare LF at the end", b"0\r\n\n", BodyError::Trailer),
            ("7.1.2 bare CR at the end", b"0\r\n\rx", BodyError::Trailer),
            ("7.1.2 bare LF", b"0\r\na: b\n\r\n", BodyError::Trailer),
            ("7.1.2 bare CR", b"0\r\na: b\rc\r\n", BodyError::Trailer),
            ("7.1.2 CR CR LF", b"0\r\na: b\r\r\n", BodyError::Trailer),
            ("7.1.2 NUL", b"0\r\na: \0\r\n", BodyError::Trailer),
            ("7.1.2 no colon", b"0\r\nabc\r\n", BodyError::Trailer),
            ("7.1.2 empty name", b"0\r\n: b\r\n", BodyError::Trailer),
            ("7.1.2 space before colon", b"0\r\na : b\r\n", BodyError::Trailer),
            ("7.1.2 folded", b"0\r\na: b\r\n c: d\r\n", BodyError::Trailer),
            ("7.1.2 next request", b"0\r\nGET / HTTP/1.1\r\n", BodyError::Trailer),
        ];
        for (rule, text, error) in rows {
            let mut decoder = BodyDecoder::chunked();
            assert_eq!(decode(&mut decoder, text), Err(*error), "{rule}");
            assert_eq!(decode(&mut decoder, b"0\r\n\r\n"), Err(*error), "{rule}: the error is permanent");
            let mut decoder = BodyDecoder::chunked();
            let outcome = text.iter().try_for_each(|&byte| decode(&mut decoder, &[byte]).map(|_| ()));
            assert_eq!(outcome, Err(*error), "{rule}, byte by byte");
        }
    }

    #[test]
    fn extensions_are_limited_over_the_whole_body() {
        let chunk = |extension: usize| [b"1;", &vec![b'x'; extension][..], b"\r\na\r\n"].concat();
        let mut decoder = BodyDecoder::chunked();
        assert!(decode(&mut decoder, &chunk(MAX_CHUNK_EXTENSIONS - 1)).is_ok());
        assert!(decode(&mut decoder, &chunk(1)).is_ok());
        assert_eq!(decode(&mut decoder, &chunk(1)), Err(BodyError::ChunkExtensionsTooLong));
    }

    #[test]
    fn trailers_are_limited() {
        let trailers = |lines: usize, value: usize| {
            let line = [b"a:", &vec![b'x'; value][..], b"\r\n"].concat();
            [b"0\r\n", &line.repeat(lines)[..], b"\r\n"].concat()
        };
        let outcome =
            |input: Vec<u8>| decode(&mut BodyDecoder::chunked(), &input).map(|(_, consumed)| consumed);
        assert_eq!(outcome(trailers(MAX_TRAILER_FIELDS, 0)), Ok(5 + 4 * MAX_TRAILER_FIELDS));
        assert_eq!(outcome(trailers(MAX_TRAILER_FIELDS + 1, 0)), Err(BodyError::TrailersTooLong));
        assert_eq!(outcome(trailers(1, MAX_TRAILER_BYTES - 4)), Ok(5 + MAX_TRAILER_BYTES));
        assert_eq!(outcome(trailers(1, MAX_TRAILER_BYTES - 3)), Err(BodyError::TrailersTooLong));
        assert_eq!(outcome(trailers(1, 1_000_000)), Err(BodyError::TrailersTooLong));
    }

    #[test]
    fn trailers_show_only_once_the_body_is_done() {
        let mut decoder = BodyDecoder::chunked();
        assert!(decode(&mut decoder, b"0\r\na: b\r\n").is_ok());
        assert_eq!(decoder.trailers(), b"");
        assert!(decode(&mut decoder, b"\r\n").is_ok());
        assert_eq!(decoder.trailers(), b"a: b\r\n");
    }
}
