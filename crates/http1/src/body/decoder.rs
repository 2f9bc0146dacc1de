//! Walks a body through its buffers and says which bytes are data.

use super::BodyError;
use super::chunk::ChunkLine;
use super::trailers::TrailerSection;
use crate::{RequestFraming, ResponseFraming, Span};

/// Finds the data of one body in the bytes received, in whatever pieces they come. Data is never copied.
///
/// After an error every further call gives the same error.
#[derive(Debug, Default)]
pub struct BodyDecoder {
    state: State,
    chunked: bool,
    /// Bytes of chunk extensions so far.
    extensions: usize,
    trailers: TrailerSection,
}

#[derive(Copy, Clone, Debug, Default)]
enum State {
    #[default]
    Done,
    /// So many bytes are to come, at least one.
    Length(u64),
    UntilClose,
    /// In the line before a chunk.
    ChunkLine(ChunkLine),
    /// So many bytes of the chunk are to come, at least one.
    ChunkData(u64),
    ChunkCarriageReturn,
    ChunkLineFeed,
    Trailers,
    Failed(BodyError),
}

impl BodyDecoder {
    /// For a message without body: done from the start.
    pub fn none() -> Self {
        Self::default()
    }

    /// For a body of `length` bytes.
    pub fn length(length: u64) -> Self {
        Self { state: if length == 0 { State::Done } else { State::Length(length) }, ..Self::default() }
    }

    /// For a body in chunks.
    pub fn chunked() -> Self {
        Self { state: State::ChunkLine(ChunkLine::default()), chunked: true, ..Self::default() }
    }

    /// For a body that ends with the connection.
    pub fn until_close() -> Self {
        Self { state: State::UntilClose, ..Self::default() }
    }

    /// Finds the body data in `input`, the bytes that follow those consumed before.
    ///
    /// Appends the spans of `input` that are data to `data`, none of them empty, and says how many bytes of `input`
    /// were consumed: all, or up to the end of the message, so that what follows it stays for the next one.
    pub fn decode(&mut self, input: &[u8], data: &mut Vec<Span>) -> Result<usize, BodyError> {
        // Spans are 32 bits wide; what lies beyond is not consumed.
        let input = &input[..input.len().min(u32::MAX as usize)];
        let mut at = 0;
        while at < input.len() {
            let step = self.step(&input[at..]).inspect_err(|&error| self.state = State::Failed(error))?;
            match step {
                Step::Done => break,
                Step::Data(len) => data.push(Span::new(at, at + len)),
                Step::Syntax(_) => {}
            }
            at += step.len();
        }
        Ok(at)
    }

    /// Takes in at least one byte of `input`, which is not empty, unless the body is done.
    #[inline]
    fn step(&mut self, input: &[u8]) -> Result<Step, BodyError> {
        match &mut self.state {
            State::Done => return Ok(Step::Done),
            State::Failed(error) => return Err(*error),
            State::UntilClose => return Ok(Step::Data(input.len())),
            State::Length(remaining) => {
                let len = take(remaining, input.len());
                if *remaining == 0 {
                    self.state = State::Done;
                }
                return Ok(Step::Data(len));
            }
            State::ChunkData(remaining) => {
                let len = take(remaining, input.len());
                if *remaining == 0 {
                    self.state = State::ChunkCarriageReturn;
                }
                return Ok(Step::Data(len));
            }
            State::ChunkLine(line) => {
                for (at, &byte) in input.iter().enumerate() {
                    if let Some(size) = line.take(byte, &mut self.extensions)? {
                        self.state = if size == 0 { State::Trailers } else { State::ChunkData(size) };
                        return Ok(Step::Syntax(at + 1));
                    }
                }
                return Ok(Step::Syntax(input.len()));
            }
            State::Trailers => {
                let (len, done) = self.trailers.take(input)?;
                if done {
                    self.state = State::Done;
                }
                return Ok(Step::Syntax(len));
            }
            State::ChunkCarriageReturn if input[0] == b'\r' => self.state = State::ChunkLineFeed,
            State::ChunkLineFeed if input[0] == b'\n' => self.state = State::ChunkLine(ChunkLine::default()),
            State::ChunkCarriageReturn | State::ChunkLineFeed => return Err(BodyError::ChunkEnd),
        }
        Ok(Step::Syntax(1))
    }

    /// Whether the whole body was seen.
    pub fn is_done(&self) -> bool {
        matches!(self.state, State::Done)
    }

    /// Whether the body comes in chunks, also after its end.
    pub fn is_chunked(&self) -> bool {
        self.chunked
    }

    /// Takes note that the peer sends no more. Fine if the body is done or ends this way, and then it is done.
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

    /// The trailer lines, each with its CRLF, checked like the fields of a head. Empty until the body is done.
    pub fn trailers(&self) -> &[u8] {
        if self.is_done() { self.trailers.lines() } else { b"" }
    }

    /// Bytes of the body that are to come, where that is known: not before the end of a chunked body or of one that ends
    /// with the connection.
    pub fn remaining(&self) -> Option<u64> {
        match self.state {
            State::Done => Some(0),
            State::Length(remaining) => Some(remaining),
            _ => None,
        }
    }
}

impl From<RequestFraming> for BodyDecoder {
    fn from(framing: RequestFraming) -> Self {
        match framing {
            RequestFraming::None => Self::none(),
            RequestFraming::Length(length) => Self::length(length),
            RequestFraming::Chunked => Self::chunked(),
        }
    }
}

impl From<ResponseFraming> for BodyDecoder {
    fn from(framing: ResponseFraming) -> Self {
        match framing {
            ResponseFraming::None => Self::none(),
            ResponseFraming::Length(length) => Self::length(length),
            ResponseFraming::Chunked => Self::chunked(),
            ResponseFraming::UntilClose => Self::until_close(),
        }
    }
}

/// What the next bytes of the input are, and how many.
#[derive(Copy, Clone)]
enum Step {
    Data(usize),
    Syntax(usize),
    /// They are not of this body.
    Done,
}

impl Step {
    fn len(self) -> usize {
        match self {
            Self::Data(len) | Self::Syntax(len) => len,
            Self::Done => 0,
        }
    }
}

/// Takes up to `available` bytes off `remaining` and says how many.
#[inline]
fn take(remaining: &mut u64, available: usize) -> usize {
    let len = usize::try_from(*remaining).unwrap_or(usize::MAX).min(available);
    *remaining -= len as u64;
    len
}
