//! The body of a received message, framed as its head says: the form in which the gateway receives bodies.
//!
//! The peer may send only as much as its window allows. The window opens again when the reader asks for more:
//! by then it has passed on what it had, so a slow receiver slows down the sender.

use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use h2::RecvStream;

use crate::request::BodyFraming;
use crate::response::trailer_lines;
use crate::windows::Windows;

/// Frames of fewer bytes are joined. The library counts this number for each of them, and ends a connection
/// on which too many wait.
const SMALL_FRAME_BYTES: usize = 256;

/// Number of pieces of one frame. A reader that leaves more unread does not keep up with the peer.
const PIECES_OF_FRAME: usize = 3;

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
    /// Its trailers are malformed.
    Malformed,
}

/// Reads the body of a message.
#[derive(Debug)]
pub(crate) struct Body {
    received: RecvStream,
    framing: BodyFraming,
    state: State,
    /// The part that has not been read: one frame or what was gathered, and the end.
    pieces: VecDeque<Piece>,
    /// Small frames that were gathered, behind `pieces`.
    joined: BytesMut,
    /// Number of bytes that were read and that the peer's window still covers.
    unreleased: usize,
    /// Number of bytes that were read within the present window, if the reader keeps up with the peer.
    prompt: u32,
    windows: Rc<Windows>,
}

impl Body {
    pub fn new(received: RecvStream, framing: BodyFraming, windows: Rc<Windows>) -> Self {
        let state = if framing == BodyFraming::None { State::Ended } else { State::Data };
        Self {
            received,
            framing,
            state,
            pieces: VecDeque::new(),
            joined: BytesMut::new(),
            unreleased: 0,
            prompt: 0,
            windows,
        }
    }

    /// Reads more into `buffer`, which is not empty. Ready with 0 at the end of a tunnel; any other body says
    /// itself where it ends, and `None` follows.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<Option<io::Result<usize>>> {
        if let Err(error) = self.release() {
            return Poll::Ready(Some(Err(lost(&error))));
        }
        let mut count = 0;
        self.add_joined();
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

    /// Takes what has arrived out of the library while it cannot be read, and joins small frames: there, each
    /// of them takes many times its bytes. The peer's window covers all of it, and so bounds it.
    pub fn gather(&mut self, cx: &mut Context<'_>) {
        while self.state == State::Data {
            // The end, and an error, are found again by the next read.
            let Poll::Ready(Some(Ok(data))) = self.received.poll_data(cx) else { return };
            if data.len() < SMALL_FRAME_BYTES {
                self.joined.extend_from_slice(&data);
            } else {
                self.add_joined();
                self.add(data);
            }
        }
    }

    fn add_joined(&mut self) {
        let joined = std::mem::take(&mut self.joined);
        self.add(joined.freeze());
    }

    /// Opens the peer's window by what was read before.
    fn release(&mut self) -> Result<(), h2::Error> {
        let count = std::mem::take(&mut self.unreleased);
        if count == 0 {
            return Ok(());
        }
        if self.pieces.len() <= PIECES_OF_FRAME && self.joined.is_empty() {
            self.windows.note_read(&mut self.prompt, count);
        }
        self.received.flow_control().release_capacity(count)
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
        match self.state {
            State::Trailers => return self.poll_trailers(cx),
            State::Malformed => return Poll::Ready(Err(io::ErrorKind::InvalidData.into())),
            State::Data | State::Ended => {}
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
                    self.state = State::Malformed;
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
