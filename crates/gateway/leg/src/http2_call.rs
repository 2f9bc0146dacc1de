//! A leg that is one stream of an HTTP/2 connection to a provider. Its messages have the form of HTTP/1.1 on
//! this side, in both directions, so everything above it is the same.
//!
//! These hold at all times:
//!
//! - Requests sent ≤ 1: a stream carries one call.
//! - Bytes received from the provider that the exchange has not taken ≤ the window of a stream: the window
//!   opens only when the exchange reads on, which it does once it has passed on what it had.

use std::task::{Context, Poll, ready};

use bytes::Bytes;
use egret_http1::{BodyDecoder, Rendering};
use egret_http2::{ClientStream, NoResponse, outgoing_request};
use egret_net::buffer::Buffer;

use crate::frames::{data_of, parse_head, put_head, received};
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

    pub(super) fn gather(&mut self, cx: &mut Context<'_>) {
        self.stream.gather(cx);
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
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        let data = data_of(message.spans, message.input);
        match message.head {
            OutgoingHead::Sent | OutgoingHead::Written([]) => {
                Ok(self.stream.send(cx, data, message.end, moved_bytes)?)
            }
            OutgoingHead::Edited(head) => self.begin(cx, head, data, message.end, moved_bytes),
            OutgoingHead::Written(whole) => self.send_whole(cx, whole, moved_bytes),
        }
    }

    /// Begins a request.
    fn begin(
        &mut self,
        cx: &mut Context<'_>,
        head: &Rendering<'_>,
        data: Bytes,
        end: Option<&[u8]>,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        let Ok(request) = outgoing_request(&head.to_vec(), self.stream.is_tls()) else {
            self.stream.refuse();
            return Err(Gone);
        };
        *moved_bytes += request.len as u64;
        // A tunnel follows a request for a WebSocket, which has no body.
        let ends = request.accept.is_some() || (data.is_empty() && end.is_some_and(<[u8]>::is_empty));
        self.stream.open(request, ends)?;
        if ends { Ok(()) } else { Ok(self.stream.send(cx, data, end, moved_bytes)?) }
    }

    /// Sends a whole request that is in memory as HTTP/1.1 has it.
    fn send_whole(&mut self, cx: &mut Context<'_>, whole: &[u8], moved_bytes: &mut u64) -> Result<(), Gone> {
        let translated = outgoing_request(whole, self.stream.is_tls());
        let decoded = translated.ok().and_then(|request| {
            let body = &whole[request.len..];
            let (mut decoder, mut spans) = (BodyDecoder::from(request.framing), Vec::new());
            decoder.decode(body, &mut spans).ok()?;
            decoder.is_done().then(|| (request, data_of(&spans, body)))
        });
        let Some((request, data)) = decoded else {
            self.stream.refuse();
            return Err(Gone);
        };
        *moved_bytes += request.len as u64;
        let ends = request.accept.is_some() || data.is_empty();
        self.stream.open(request, ends)?;
        if ends { Ok(()) } else { Ok(self.stream.send(cx, data, Some(&[]), moved_bytes)?) }
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
