//! A leg that is one stream of an HTTP/2 connection to a provider. Its messages have the form of HTTP/1.1 on
//! this side, in both directions, so everything above it is the same.
//!
//! These hold at all times:
//!
//! - Requests sent ≤ 1: a stream carries one call.
//! - Bytes received from the provider that the exchange has not taken ≤ the window of a stream: the window
//!   opens only when the exchange reads on, which it does once it has passed on what it had.

use std::task::{Context, Poll, ready};

use egret_http2::{ClientStream, Data, NoResponse};
use egret_net::buffer::{Buffer, BufferPool};

use crate::frames::{parse_head, put_head, received};
use crate::http1::Head;
use crate::message::{Gone, HeadRoom, NoHead, Outgoing, OutgoingHead, Received};

/// A stream of a connection to a provider.
#[derive(Debug)]
pub struct Http2Call {
    stream: ClientStream,
}

impl Http2Call {
    pub(super) fn new(stream: ClientStream) -> Self {
        Self { stream }
    }

    pub(super) fn poll_opens_websockets(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.stream.poll_opens_websockets(cx)
    }

    pub(super) fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_reset(cx)
    }

    pub(super) fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_arrival(cx)
    }

    pub(super) fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Buffer,
        head: &mut impl Head,
        room: HeadRoom<'_>,
    ) -> Poll<Result<(), NoHead>> {
        let text = match ready!(self.stream.poll_head(cx)) {
            Ok(text) => text,
            Err(NoResponse::Malformed(error)) => return Poll::Ready(Err(NoHead::Malformed(error))),
            Err(NoResponse::Lost(lost)) => return Poll::Ready(Err(NoHead::Gone(lost.into()))),
        };
        put_head(&text, buffer, room);
        // What has arrived of the body is sent on together with the head.
        let sent_ahead = self.stream.poll_read(cx, buffer.spare());
        let parsed = parse_head(head, buffer, room);
        if let Poll::Ready(Ok(count)) = sent_ahead {
            buffer.advance(count);
        }
        parsed
    }

    pub(super) fn gather(&mut self) {
        self.stream.gather();
    }

    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Received> {
        debug_assert!(!buffer.is_full());
        let read = ready!(self.stream.poll_read(cx, buffer.spare()));
        Poll::Ready(received(read, buffer))
    }

    pub(super) fn send(
        &mut self,
        cx: &mut Context<'_>,
        message: &Outgoing<'_>,
        buffers: &BufferPool,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        let data = Data::new(message.spans, message.input);
        let sent = match message.head {
            OutgoingHead::Sent | OutgoingHead::Written([]) => {
                self.stream.send(cx, data, message.end, moved_bytes)
            }
            OutgoingHead::Edited(head) => {
                let mut text = buffers.gathered.borrow_mut();
                text.clear();
                head.for_each_piece(|piece| text.extend_from_slice(piece));
                self.stream.begin(cx, &text, data, message.end, moved_bytes)
            }
            OutgoingHead::Written(whole) => self.stream.send_whole(cx, whole, moved_bytes),
        };
        sent.map_err(Gone::from)
    }

    pub(super) fn poll_backlog(
        &mut self,
        cx: &mut Context<'_>,
        moved_bytes: &mut u64,
    ) -> Poll<Result<(), Gone>> {
        self.stream.poll_backlog(cx, moved_bytes).map_err(Gone::from)
    }

    /// Ends the tunnel of a WebSocket. The end of any other message has closed the stream.
    pub(super) fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        self.stream.poll_end(cx).map_err(Gone::from)
    }

    pub(super) fn is_blocked(&self) -> bool {
        self.stream.has_backlog()
    }
}
