//! A leg that is one stream of a client's HTTP/2 connection. Its messages have the form of HTTP/1.1 on this
//! side, in both directions, so everything above it is the same.
//!
//! These hold at all times:
//!
//! - If `writing` is `Memory`, bytes of the message still to be sent = `left`.
//! - If `writing` is `Closed`, bytes sent from then on ≤ 0.
//! - Heads received ≤ 1: a stream carries one exchange.

use std::io::IoSlice;
use std::task::{Context, Poll, ready};

use egret_http1::{Method, ResponseFraming, ResponseHead};
use egret_http2::{Data, ServerStream};
use egret_net::buffer::{Buffer, BufferPool};

use crate::frames::{parse_head, put_head, received};
use crate::http1::{Framing, Head};
use crate::message::{Gone, HeadRoom, NoHead, Outgoing, OutgoingHead, Received};

/// Number of bytes of a message in memory that are copied at once. They wait until the client takes them.
const MEMORY_PIECE_BYTES: usize = 32 << 10;

/// The state of the sending direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Writing {
    /// Before the final response, or behind its head until `start`.
    Idle,
    /// A message is being sent in parts.
    Message,
    /// A message in memory is being sent, of whose body this number of bytes is left.
    Memory {
        left: u64,
    },
    Closed,
}

/// A stream of a client's connection.
#[derive(Debug)]
pub struct Http2 {
    stream: ServerStream,
    /// The method of the request, which decides whether its response has a body.
    method: Method,
    writing: Writing,
}

impl From<egret_http2::Gone> for Gone {
    fn from(_: egret_http2::Gone) -> Self {
        Self
    }
}

impl Http2 {
    pub(super) fn new(stream: ServerStream) -> Self {
        Self { stream, method: Method::Get, writing: Writing::Idle }
    }

    pub(super) fn opens_websocket(&self) -> bool {
        self.stream.opens_websocket()
    }

    pub(super) fn poll_head(
        &mut self,
        buffer: &mut Buffer,
        head: &mut impl Head,
        room: HeadRoom<'_>,
    ) -> Poll<Result<(), NoHead>> {
        let text = match self.stream.take_head() {
            Some(Ok(text)) => text,
            Some(Err(error)) => return Poll::Ready(Err(NoHead::Malformed(error))),
            None => return Poll::Ready(Err(NoHead::End)),
        };
        self.method = Method::of(text.split(|byte| *byte == b' ').next().unwrap_or_default());
        put_head(&text, buffer, room);
        parse_head(head, buffer, room)
    }

    pub(super) fn gather(&mut self) {
        self.stream.gather();
    }

    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Received> {
        debug_assert!(!buffer.is_full());
        let read = ready!(self.stream.poll_read(cx, buffer.spare()));
        Poll::Ready(received(read, buffer))
    }

    pub(super) fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_lost(cx).map(drop)
    }

    /// Begins a message. The stream says where it ends, whatever its framing.
    pub(super) fn start(&mut self, _: Framing) {
        debug_assert!(self.writing != Writing::Closed);
        self.writing = Writing::Message;
    }

    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        message: &Outgoing<'_>,
        buffers: &BufferPool,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        if self.writing == Writing::Closed {
            return Err(Gone);
        }
        let data = Data::new(message.spans, message.input);
        let ends = message.end.is_some_and(|trailers| data.is_empty() && trailers.is_empty());
        match message.head {
            OutgoingHead::Sent | OutgoingHead::Written([]) => {}
            OutgoingHead::Edited(head) => {
                let mut text = buffers.gathered.borrow_mut();
                text.clear();
                head.for_each_piece(|piece| text.extend_from_slice(piece));
                if self.send_head(&text, ends, moved_bytes)? {
                    return Ok(());
                }
            }
            OutgoingHead::Written(text) => {
                if self.send_head(text, ends, moved_bytes)? {
                    return Ok(());
                }
            }
        }
        if message.end.is_some() {
            self.writing = Writing::Closed;
        }
        self.stream.send(cx, data, message.end, moved_bytes).map_err(Gone::from)
    }

    /// Sends a head, with which the message may end. Returns `true` if nothing follows it now.
    fn send_head(&mut self, text: &[u8], ends: bool, moved_bytes: &mut u64) -> Result<bool, Gone> {
        *moved_bytes += text.len() as u64;
        if is_switch(text) {
            // The tunnel follows.
            self.stream.open_websocket(text)?;
            return Ok(true);
        }
        if self.writing == Writing::Idle {
            self.stream.send_informational(text)?;
        } else {
            self.stream.send_head(text, ends)?;
        }
        if ends {
            self.writing = Writing::Closed;
        }
        Ok(ends)
    }

    pub(super) fn poll_send_bytes(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<u64, Gone>> {
        ready!(self.stream.poll_backlog(cx, &mut 0))?;
        match self.writing {
            Writing::Memory { left } => Poll::Ready(self.send_memory(cx, slices, left)),
            // A message may have been started whose body turned out to be malformed from its start.
            Writing::Idle | Writing::Message if !self.stream.has_begun() => {
                Poll::Ready(self.begin_in_memory(slices))
            }
            Writing::Idle | Writing::Message | Writing::Closed => Poll::Ready(Err(Gone)),
        }
    }

    /// Sends the head of a message in memory. Returns its length.
    fn begin_in_memory(&mut self, slices: &[IoSlice<'_>]) -> Result<u64, Gone> {
        let mut text = Vec::new();
        for slice in slices {
            let before = text.len();
            text.extend_from_slice(slice);
            if let Some(len) = head_len(&text, before) {
                text.truncate(len);
                return self.begin_with(&text);
            }
        }
        Err(Gone)
    }

    fn begin_with(&mut self, text: &[u8]) -> Result<u64, Gone> {
        let mut head = ResponseHead::new();
        let limits = egret_http1::HeadLimits { head: egret_http1::MAX_HEAD, ..Default::default() };
        head.parse(text, &limits, self.method).map_err(|_| Gone)?;
        if head.status < 200 {
            self.stream.send_informational(text)?;
            return Ok(text.len() as u64);
        }
        self.writing = match head.framing {
            ResponseFraming::None if self.method == Method::Connect && head.status < 300 => {
                self.stream.send_head(text, false)?;
                Writing::Idle
            }
            ResponseFraming::Length(left @ 1..) => {
                self.stream.send_head(text, false)?;
                Writing::Memory { left }
            }
            // Messages in memory have a length, unless they have no body.
            _ => {
                self.stream.send_head(text, true)?;
                Writing::Closed
            }
        };
        Ok(text.len() as u64)
    }

    /// Sends part of a message in memory of which nothing waits. Returns its length.
    fn send_memory(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>], left: u64) -> Result<u64, Gone> {
        let slice = slices.iter().find(|slice| !slice.is_empty()).ok_or(Gone)?;
        let most = MEMORY_PIECE_BYTES.min(usize::try_from(left).unwrap_or(usize::MAX));
        let data = &slice[..slice.len().min(most)];
        let left = left - data.len() as u64;
        self.writing = if left > 0 { Writing::Memory { left } } else { Writing::Closed };
        self.stream.send_stored(cx, data, left == 0)?;
        Ok(data.len() as u64)
    }

    pub(super) fn poll_backlog(
        &mut self,
        cx: &mut Context<'_>,
        moved_bytes: &mut u64,
    ) -> Poll<Result<(), Gone>> {
        self.stream.poll_backlog(cx, moved_bytes).map_err(Gone::from)
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.stream.has_backlog()
    }

    pub(super) fn is_incomplete(&self) -> bool {
        self.stream.is_incomplete()
    }

    pub(super) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        ready!(self.stream.poll_backlog(cx, &mut 0))?;
        self.writing = Writing::Closed;
        if self.stream.has_begun() {
            self.stream.end(cx)?;
        }
        Poll::Ready(Ok(()))
    }
}

/// Returns `true` for the head of a response that switches protocols.
fn is_switch(head: &[u8]) -> bool {
    head.starts_with(b"HTTP/1.1 101")
}

/// Returns the length of the head at the start of `text`, of which `before` bytes hold no end of a head.
fn head_len(text: &[u8], before: usize) -> Option<usize> {
    let start = before.saturating_sub(3);
    let end = text[start..].windows(4).position(|window| window == b"\r\n\r\n")?;
    Some(start + end + 4)
}
