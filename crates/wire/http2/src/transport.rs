//! A connection as the library wants it, with the gate for floods of frames.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Instant;

use egret_net::stream::Stream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::gate::{Flood, FrameGate, SentPieces};

/// Number of bytes that are received before the streams have their turn. The library takes as many frames as
/// there are, and ends a connection with too many small ones that no stream has taken.
const TURN_BYTES: usize = 64 << 10;
/// Number of bytes that may wait for the end of the turn. Then one call of the system sends the frames of all
/// streams, where the library would make one for each frame with data.
const UNSENT_BYTES_MAX: usize = 64 << 10;
/// The space for unsent bytes is kept if a turn has used at least this part of it.
const KEPT_PART: usize = 4;

/// The number of bytes that may be received before the streams have their turn.
#[derive(Debug, Clone)]
pub(crate) struct Turn(Rc<Cell<usize>>);

impl Turn {
    /// Begins the next one: the streams have had theirs.
    pub fn begin(&self) {
        self.0.set(TURN_BYTES);
    }
}

impl Default for Turn {
    fn default() -> Self {
        Self(Rc::new(Cell::new(TURN_BYTES)))
    }
}

/// The socket of a connection, and the bytes that wait for it. `sent` ≤ the length of `unsent`.
#[derive(Debug)]
struct Socket {
    stream: Stream,
    unsent: Vec<u8>,
    /// Number of bytes of `unsent` that are sent.
    sent: usize,
}

impl Socket {
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.sent < self.unsent.len() {
            let slice = IoSlice::new(&self.unsent[self.sent..]);
            match ready!(self.stream.poll_write(cx, &[slice]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.sent += count,
            }
        }
        if self.unsent.len() < self.unsent.capacity() / KEPT_PART {
            self.unsent = Vec::new();
        }
        self.unsent.clear();
        self.sent = 0;
        self.stream.poll_flush(cx)
    }
}

/// The means to send what waits for the end of a turn.
#[derive(Debug, Clone)]
pub(crate) struct TurnOutput(Rc<RefCell<Socket>>);

impl TurnOutput {
    /// Sends what the streams have given in this turn. What the socket does not take is sent by a later turn,
    /// which `cx` is woken for. An error shows in the next read.
    pub fn send(&self, cx: &mut Context<'_>) {
        if matches!(self.0.borrow_mut().poll_send(cx), Poll::Ready(Err(_))) {
            cx.waker().wake_by_ref();
        }
    }
}

/// A connection whose frames are counted.
#[derive(Debug)]
pub(crate) struct Transport {
    socket: Rc<RefCell<Socket>>,
    gate: FrameGate,
    /// Bytes that were received before it was known that the connection speaks HTTP/2.
    ahead: Vec<u8>,
    /// The flood that was noticed. From then on nothing is received.
    flood: Rc<Cell<Option<Flood>>>,
    /// The time when something was received last.
    received: Rc<Cell<Instant>>,
    turn: Turn,
    /// `true` once the peer's settings have arrived.
    has_settings: Rc<Cell<bool>>,
}

impl Transport {
    /// Takes a client's connection, of which the bytes `ahead` have been received.
    pub fn of_client(stream: Stream, ahead: &[u8], flood: Rc<Cell<Option<Flood>>>) -> Self {
        let now = Instant::now();
        let received = Rc::new(Cell::new(now));
        let gate = FrameGate::of_client(now);
        let (turn, has_settings) = (Turn::default(), Rc::default());
        Self { socket: socket(stream), gate, ahead: ahead.to_vec(), flood, received, turn, has_settings }
    }

    /// Takes a new connection to a provider. The time when something arrives is noted in `received`, and the
    /// arrival of the provider's settings in `has_settings`.
    pub fn of_provider(
        stream: Stream,
        flood: Rc<Cell<Option<Flood>>>,
        received: Rc<Cell<Instant>>,
        has_settings: Rc<Cell<bool>>,
    ) -> Self {
        let gate = FrameGate::of_provider(received.get());
        let socket = socket(stream);
        Self { socket, gate, ahead: Vec::new(), flood, received, turn: Turn::default(), has_settings }
    }

    /// Returns its turn, which begins with each poll of the connection.
    pub fn turn(&self) -> Turn {
        self.turn.clone()
    }

    /// Returns the means to send at the end of each turn.
    pub fn output(&self) -> TurnOutput {
        TurnOutput(Rc::clone(&self.socket))
    }

    /// Returns the counter of pieces that are sent on it.
    pub fn pieces(&self) -> SentPieces {
        self.gate.pieces()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        if self.ahead.is_empty() {
            return self.socket.borrow_mut().stream.poll_read(cx, buffer);
        }
        let count = self.ahead.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.ahead[..count]);
        self.ahead.drain(..count);
        self.ahead.shrink_to_fit();
        Poll::Ready(Ok(count))
    }
}

fn socket(stream: Stream) -> Rc<RefCell<Socket>> {
    Rc::new(RefCell::new(Socket { stream, unsent: Vec::new(), sent: 0 }))
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.flood.get().is_some() {
            return Poll::Pending;
        }
        if self.turn.0.get() == 0 {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        let free = buffer.initialize_unfilled();
        let count = ready!(self.poll_receive(cx, free))?;
        self.turn.0.set(self.turn.0.get().saturating_sub(count));
        let now = Instant::now();
        self.received.set(now);
        if let Err(flood) = self.gate.pass(&free[..count], now) {
            // The connection ends, so these bytes have no reader.
            self.flood.set(Some(flood));
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if self.gate.has_settings() {
            self.has_settings.set(true);
        }
        buffer.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Transport {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut socket = self.socket.borrow_mut();
        if socket.unsent.len() >= UNSENT_BYTES_MAX {
            ready!(socket.poll_send(cx))?;
        }
        let before = socket.unsent.len();
        for slice in slices {
            socket.unsent.extend_from_slice(slice);
        }
        let count = socket.unsent.len() - before;
        drop(socket);
        self.gate.note_sent(count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Leaves the bytes to the end of the turn: the library flushes after each frame with data.
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut socket = self.socket.borrow_mut();
        ready!(socket.poll_send(cx))?;
        socket.stream.poll_shutdown(cx)
    }
}
