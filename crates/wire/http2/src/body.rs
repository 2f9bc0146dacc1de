//! The body of a request, framed as its head says: the form in which the gateway receives bodies.
//!
//! The peer may send only as much as its window allows. The window opens again when the reader asks for more:
//! by then it has passed on what it had, so a slow receiver slows down the sender.

use std::collections::VecDeque;
use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use h2::RecvStream;

use crate::request::BodyFraming;
use crate::response::trailer_lines;

/// Part of a framed body.
#[derive(Debug)]
enum Piece {
    /// Bytes that the peer has sent, which its window covers.
    Data(Bytes),
    /// Bytes around them.
    Framing(Bytes),
}

/// The receiving direction of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Data,
    Trailers,
    /// All of it is in `pieces`, or was read.
    Ended,
}

/// Reads the body of a request.
#[derive(Debug)]
pub(crate) struct Body {
    received: RecvStream,
    framing: BodyFraming,
    state: State,
    /// The part that has not been read: at most one frame, and the end.
    pieces: VecDeque<Piece>,
    /// Number of bytes that were read and that the peer's window still covers.
    unreleased: usize,
}

impl Body {
    pub fn new(received: RecvStream, framing: BodyFraming) -> Self {
        let state = if framing == BodyFraming::None { State::Ended } else { State::Data };
        Self { received, framing, state, pieces: VecDeque::new(), unreleased: 0 }
    }

    /// Reads more into `buffer`, which is not empty. Ready with 0 at the end of a tunnel; any other body says
    /// itself where it ends, and `None` follows.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Option<io::Result<usize>>> {
        if let Err(error) = self.release() {
            return Poll::Ready(Some(Err(lost(&error))));
        }
        let mut count = 0;
        loop {
            count += self.take(&mut buffer[count..]);
            if count == buffer.len() || self.state == State::Ended {
                break;
            }
            match self.poll_frame(cx) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(error)) if count == 0 => return Poll::Ready(Some(Err(error))),
                Poll::Pending if count == 0 => return Poll::Pending,
                // Found again by the next read.
                Poll::Ready(Err(_)) | Poll::Pending => break,
            }
        }
        match (count, self.framing) {
            (0, BodyFraming::Tunnel) => Poll::Ready(Some(Ok(0))),
            (0, _) => Poll::Ready(None),
            _ => Poll::Ready(Some(Ok(count))),
        }
    }

    /// Opens the peer's window by what was read before.
    fn release(&mut self) -> Result<(), h2::Error> {
        match std::mem::take(&mut self.unreleased) {
            0 => Ok(()),
            count => self.received.flow_control().release_capacity(count),
        }
    }

    /// Moves pieces to `buffer`. Returns the number of bytes.
    fn take(&mut self, buffer: &mut [u8]) -> usize {
        let mut count = 0;
        while let Some(piece) = self.pieces.front_mut() {
            let (Piece::Data(bytes) | Piece::Framing(bytes)) = piece;
            let taken = bytes.split_to(bytes.len().min(buffer.len() - count));
            buffer[count..count + taken.len()].copy_from_slice(&taken);
            count += taken.len();
            let is_read = bytes.is_empty();
            if matches!(piece, Piece::Data(_)) {
                self.unreleased += taken.len();
            }
            if !is_read {
                break;
            }
            self.pieces.pop_front();
        }
        count
    }

    /// Receives the next frame.
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state == State::Trailers {
            return self.poll_trailers(cx);
        }
        match self.received.poll_data(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Some(Ok(data))) => {
                self.add(data);
                if self.received.is_end_stream() {
                    self.end(&[]);
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Err(lost(&error))),
            Poll::Ready(None) if self.framing == BodyFraming::Chunked => {
                self.state = State::Trailers;
                Poll::Ready(Ok(()))
            }
            Poll::Ready(None) => {
                self.end(&[]);
                Poll::Ready(Ok(()))
            }
        }
    }

    fn poll_trailers(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut lines = Vec::new();
        match self.received.poll_trailers(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Err(error)) => return Poll::Ready(Err(lost(&error))),
            Poll::Ready(Ok(None)) => {}
            Poll::Ready(Ok(Some(fields))) => {
                if trailer_lines(&fields, &mut lines).is_err() {
                    return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
                }
            }
        }
        self.end(&lines);
        Poll::Ready(Ok(()))
    }

    fn add(&mut self, data: Bytes) {
        if data.is_empty() {
            return;
        }
        if self.framing != BodyFraming::Chunked {
            self.pieces.push_back(Piece::Data(data));
            return;
        }
        let size = format!("{:x}\r\n", data.len());
        self.pieces.push_back(Piece::Framing(size.into()));
        self.pieces.push_back(Piece::Data(data));
        self.pieces.push_back(Piece::Framing(Bytes::from_static(b"\r\n")));
    }

    fn end(&mut self, trailers: &[u8]) {
        self.state = State::Ended;
        if self.framing == BodyFraming::Chunked {
            let end = [b"0\r\n", trailers, b"\r\n"].concat();
            self.pieces.push_back(Piece::Framing(end.into()));
        }
    }
}

/// The error of a stream that was reset, or whose connection is gone.
pub(crate) fn lost(error: &h2::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, error.to_string())
}
