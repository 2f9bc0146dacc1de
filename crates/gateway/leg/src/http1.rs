//! A leg that speaks HTTP/1.1: receives heads, frames bodies, and keeps the bytes that the peer has not
//! accepted yet.
//!
//! These hold at all times:
//!
//! - `backlog.sent ≤ backlog.bytes.len()`, and both are 0 unless bytes wait for the peer.
//! - If `writing` is `Idle`, data sent ≤ 0: only heads are sent between messages.
//! - If `writing` is `Closed`, bytes sent from then on ≤ 0.

use std::io::{self, IoSlice};
use std::task::{Context, Poll, ready};

use egret_http1::{
    ChunkHead, HeadError, HeadLimits, LAST_CHUNK, Method, Progress, RequestFraming, RequestHead,
    ResponseFraming, ResponseHead, Version, chunk_head,
};
use egret_net::buffer::{Buffer, BufferPool, STREAM_BYTES};
use egret_net::event_loop::Socket;
use egret_net::stream::Stream;
use smallvec::SmallVec;

use crate::message::{Gone, HeadRoom, NoHead, Outgoing, OutgoingHead, Received};

/// Up to this size, the pieces of a message are copied together and written as one. Larger messages use a
/// vectored write, so no large data is copied.
pub const GATHER_BYTES_MAX: usize = 2048;

/// Maximum length of a chunk's size line, the line end behind its data, and the last chunk with the empty
/// line that ends the trailers.
const CHUNK_FRAMING_BYTES_MAX: usize = 32;

/// A head that can be received.
pub trait Head {
    /// Parses the bytes received so far.
    fn parse(&mut self, buffer: &mut Buffer, limits: &HeadLimits) -> Result<Progress, HeadError>;
}

impl Head for RequestHead {
    #[inline]
    fn parse(&mut self, buffer: &mut Buffer, limits: &HeadLimits) -> Result<Progress, HeadError> {
        let progress = RequestHead::parse(self, buffer.filled(), limits)?;
        // Old clients send an empty line behind a body that is not part of it (RFC 9112 §2.2).
        if progress == Progress::Partial && buffer.filled() == b"\r\n" {
            self.reset();
            buffer.clear();
        }
        Ok(progress)
    }
}

/// The head of a response to a request with this method.
pub struct ResponseTo<'a> {
    /// The method of the request.
    pub method: Method,
    /// The head's parts, which are set.
    pub head: &'a mut ResponseHead,
}

impl Head for ResponseTo<'_> {
    #[inline]
    fn parse(&mut self, buffer: &mut Buffer, limits: &HeadLimits) -> Result<Progress, HeadError> {
        self.head.parse(buffer.filled(), limits, self.method)
    }
}

/// The way in which a peer learns where the body of a sent message ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Framing {
    /// The head says it, or there is no body.
    #[default]
    Length,
    /// The body is sent in chunks.
    Chunked,
    /// The connection ends.
    UntilClose,
}

impl Framing {
    /// The framing of a body of unknown length, for a client of `version`.
    pub fn without_length(version: Version) -> Self {
        match version {
            Version::Http11 => Self::Chunked,
            Version::Http10 => Self::UntilClose,
        }
    }

    /// The framing for a client of `version` of a body that was received in `framing`.
    pub fn for_client(version: Version, framing: ResponseFraming) -> Self {
        match framing {
            ResponseFraming::None | ResponseFraming::Length(_) => Self::Length,
            ResponseFraming::Chunked | ResponseFraming::UntilClose => Self::without_length(version),
        }
    }

    /// The framing for a provider of a body that was received in `framing`.
    pub fn for_provider(framing: RequestFraming) -> Self {
        if framing == RequestFraming::Chunked { Self::Chunked } else { Self::Length }
    }
}

/// The way in which a response is sent to the client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reply {
    /// The client's protocol version.
    pub version: Version,
    /// `true` if the connection stays open after the response.
    pub persistent: bool,
    /// The framing of the body.
    pub framing: Framing,
}

impl Reply {
    /// Decides how to send a response to a client of `version`. `persistent` is true if the connection could
    /// stay open.
    #[inline]
    pub fn new(version: Version, framing: ResponseFraming, persistent: bool) -> Self {
        let framing = Framing::for_client(version, framing);
        Self { version, persistent: persistent && framing != Framing::UntilClose, framing }
    }
}

/// The state of the receiving direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reading {
    Open,
    /// The peer has closed its sending side.
    Ended,
    Failed,
}

/// The state of the sending direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// Between messages.
    Idle,
    /// A message, whose body is framed like this, is being sent.
    Message(Framing),
    Closed,
}

/// Sent bytes that the peer has not accepted yet.
#[derive(Debug, Default)]
struct Backlog {
    bytes: Vec<u8>,
    /// Number of bytes at its start that the peer has accepted.
    sent: usize,
}

impl Backlog {
    fn is_empty(&self) -> bool {
        debug_assert!(self.sent <= self.bytes.len());
        self.bytes.is_empty()
    }

    /// Empties it. An idle connection keeps no memory, and no other more than a slow reader's due.
    fn clear(&mut self, is_idle: bool) {
        self.bytes.clear();
        self.bytes.shrink_to(if is_idle { 0 } else { STREAM_BYTES });
        self.sent = 0;
    }
}

/// A connection that speaks HTTP/1.1.
#[derive(Debug)]
pub struct Http1 {
    stream: Stream,
    reading: Reading,
    writing: Writing,
    backlog: Backlog,
}

impl Http1 {
    /// Creates the leg of a new or idle connection.
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, reading: Reading::Open, writing: Writing::Idle, backlog: Backlog::default() }
    }

    pub(super) fn into_stream(self) -> Stream {
        debug_assert!(self.backlog.is_empty());
        self.stream
    }

    pub(super) fn socket(&self) -> &Socket {
        self.stream.socket()
    }

    /// Returns the protocol that was agreed on in the handshake of TLS.
    pub(super) fn protocol(&self) -> Option<&[u8]> {
        match &self.stream {
            Stream::Plain(_) => None,
            Stream::Tls(tls) => tls.protocol(),
        }
    }

    pub(super) fn is_usable_idle(&mut self) -> bool {
        debug_assert!(self.backlog.is_empty());
        self.reading == Reading::Open && self.stream.is_usable_idle()
    }

    #[inline]
    pub(super) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_readable(cx)
    }

    #[inline]
    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Buffer,
        head: &mut impl Head,
        room: HeadRoom<'_>,
    ) -> Poll<Result<(), NoHead>> {
        loop {
            if !buffer.filled().is_empty() {
                match head.parse(buffer, room.limits) {
                    Ok(Progress::Complete) => return Poll::Ready(Ok(())),
                    Ok(Progress::Partial) => {}
                    Err(error) => return Poll::Ready(Err(NoHead::Malformed(error))),
                }
                if buffer.is_full() {
                    room.buffers.grow(buffer, room.limits.head + 1);
                }
            }
            match ready!(self.poll_receive(cx, buffer)) {
                Received::Data(_) => {}
                Received::End => return Poll::Ready(Err(NoHead::End)),
                Received::Gone(error) => return Poll::Ready(Err(NoHead::Gone(error))),
            }
        }
    }

    #[inline]
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Received> {
        debug_assert!(!buffer.is_full());
        if self.reading != Reading::Open {
            return Poll::Ready(self.ended());
        }
        Poll::Ready(match ready!(self.stream.poll_read(cx, buffer.spare())) {
            Ok(0) => {
                self.reading = Reading::Ended;
                Received::End
            }
            Ok(count) => {
                buffer.advance(count);
                Received::Data(count)
            }
            Err(error) => {
                self.reading = Reading::Failed;
                Received::Gone(error)
            }
        })
    }

    #[cold]
    fn ended(&self) -> Received {
        match self.reading {
            Reading::Open | Reading::Ended => Received::End,
            Reading::Failed => Received::Gone(io::ErrorKind::NotConnected.into()),
        }
    }

    #[inline]
    pub(super) fn start(&mut self, framing: Framing) {
        debug_assert!(self.writing != Writing::Closed);
        self.writing = Writing::Message(framing);
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        message: &Outgoing<'_>,
        buffers: &BufferPool,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        let is_chunked = match self.writing {
            Writing::Idle => {
                debug_assert!(message.spans.is_empty() && message.end.is_none());
                false
            }
            Writing::Message(framing) => framing == Framing::Chunked,
            Writing::Closed => return Err(Gone),
        };
        if message.end.is_some() {
            self.writing = Writing::Idle;
        }
        let data_len = message.data_len();
        let framed = Framed {
            message,
            chunk: (is_chunked && data_len > 0).then(|| chunk_head(data_len)),
            trailers: message.end.filter(|_| is_chunked),
        };
        if framed.max_len(data_len) <= GATHER_BYTES_MAX {
            let mut gathered = buffers.gathered.borrow_mut();
            gathered.clear();
            framed.for_each_piece(|piece| gathered.extend_from_slice(piece));
            *moved_bytes += self.send_bytes(cx, &gathered)? as u64;
            return Ok(());
        }
        let mut slices = SmallVec::<[IoSlice<'_>; 16]>::new();
        framed.for_each_piece(|piece| slices.push(IoSlice::new(piece)));
        let sent = self.send_now(cx, &slices)?;
        let mut rest = &mut slices[..];
        IoSlice::advance_slices(&mut rest, sent);
        for slice in rest {
            self.backlog.bytes.extend_from_slice(slice);
        }
        *moved_bytes += sent as u64;
        Ok(())
    }

    /// Sends `bytes` as they are, in one system call. Those that the peer does not accept at once become the
    /// backlog. Returns the number of accepted ones.
    #[inline]
    pub(super) fn send_bytes(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Result<usize, Gone> {
        let sent = self.send_now(cx, &[IoSlice::new(bytes)])?;
        self.backlog.bytes.extend_from_slice(&bytes[sent..]);
        Ok(sent)
    }

    /// Writes `slices` in one system call, unless the backlog must be sent first. Returns the number of bytes
    /// written.
    #[inline]
    fn send_now(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Result<usize, Gone> {
        if !self.backlog.is_empty() || slices.iter().all(|slice| slice.is_empty()) {
            return Ok(0);
        }
        match self.stream.poll_write(cx, slices) {
            Poll::Ready(sent) => sent.map_err(|_| Gone),
            Poll::Pending => Ok(0),
        }
    }

    pub(super) fn poll_send_bytes(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<u64, Gone>> {
        debug_assert!(self.writing != Writing::Closed);
        if !self.backlog.is_empty() {
            ready!(self.poll_backlog(cx, &mut 0))?;
        }
        match ready!(self.stream.poll_write(cx, slices)) {
            Ok(count) if count > 0 => Poll::Ready(Ok(count as u64)),
            Ok(_) | Err(_) => Poll::Ready(Err(Gone)),
        }
    }

    #[inline]
    pub(super) fn poll_backlog(
        &mut self,
        cx: &mut Context<'_>,
        moved_bytes: &mut u64,
    ) -> Poll<Result<(), Gone>> {
        if !self.backlog.is_empty() {
            ready!(self.poll_rest(cx, moved_bytes))?;
        }
        self.stream.poll_flush(cx).map_err(|_| Gone)
    }

    /// Writes the backlog.
    fn poll_rest(&mut self, cx: &mut Context<'_>, moved_bytes: &mut u64) -> Poll<Result<(), Gone>> {
        let Self { stream, backlog, writing, .. } = self;
        while backlog.sent < backlog.bytes.len() {
            let slice = IoSlice::new(&backlog.bytes[backlog.sent..]);
            let sent = ready!(stream.poll_write(cx, &[slice])).map_err(|_| Gone)?;
            if sent == 0 {
                return Poll::Ready(Err(Gone));
            }
            backlog.sent += sent;
            *moved_bytes += sent as u64;
        }
        backlog.clear(*writing == Writing::Idle);
        Poll::Ready(Ok(()))
    }

    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        !self.backlog.is_empty() || self.stream.is_holding()
    }

    pub(super) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        self.writing = Writing::Closed;
        self.stream.poll_shutdown(cx).map_err(|_| Gone)
    }
}

impl Outgoing<'_> {
    fn data_len(&self) -> usize {
        self.spans.iter().map(|span| span.len()).sum()
    }

    /// Returns the length without framing.
    pub(super) fn bare_len(&self) -> u64 {
        let bare = Framed { message: self, chunk: None, trailers: None };
        let mut len = 0;
        bare.for_each_piece(|piece| len += piece.len() as u64);
        len
    }
}

/// The bytes of one write: part of a message with its framing.
struct Framed<'m> {
    message: &'m Outgoing<'m>,
    /// The size line of a chunk.
    chunk: Option<ChunkHead>,
    /// The trailers, if a chunked body ends.
    trailers: Option<&'m [u8]>,
}

impl Framed<'_> {
    /// Returns an upper bound of the total length, for `data_len` bytes of data.
    fn max_len(&self, data_len: usize) -> usize {
        let head_len = match self.message.head {
            OutgoingHead::Sent => 0,
            OutgoingHead::Edited(head) => head.max_len(),
            OutgoingHead::Written(head) => head.len(),
        };
        head_len + data_len + CHUNK_FRAMING_BYTES_MAX + self.trailers.map_or(0, <[u8]>::len)
    }

    /// Calls `take` with each piece in order. No piece is empty.
    #[inline]
    fn for_each_piece<'p>(&'p self, mut take: impl FnMut(&'p [u8])) {
        match self.message.head {
            OutgoingHead::Sent | OutgoingHead::Written([]) => {}
            OutgoingHead::Edited(head) => head.for_each_piece(&mut take),
            OutgoingHead::Written(head) => take(head),
        }
        if let Some(chunk) = &self.chunk {
            take(chunk.as_bytes());
        }
        for span in self.message.spans {
            take(span.of(self.message.input));
        }
        if self.chunk.is_some() {
            take(b"\r\n");
        }
        if let Some(trailers) = self.trailers {
            take(LAST_CHUNK);
            if !trailers.is_empty() {
                take(trailers);
            }
            take(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests;
