//! A stream that a client has opened: a request, and the response to it.
//!
//! These hold at all times:
//!
//! - Data in `unsent` > 0 only if `sending` is `Body`.
//! - A stream that was opened for a WebSocket has a response of success only if the WebSocket is open.
//! - After `sending` has become `Ended`, frames sent ≤ 0. A stream that is dropped before is reset.

use std::io;
use std::mem;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use egret_http1::HeadError;
use h2::Reason;
use h2::server::SendResponse;
use http::StatusCode;

use crate::body::{Body, lost};
use crate::gate::SentPieces;
use crate::response::{opened_websocket, response, trailer_map};
use crate::unsent::{Gone, Sending, Unsent};
use crate::windows::OpenStream;

/// A request, and the response to it.
pub struct ServerStream {
    /// The text of the request's head, until it is taken.
    head: Option<Result<Vec<u8>, HeadError>>,
    body: Body,
    /// Its head is that of the final response.
    sending: Sending<SendResponse<Bytes>>,
    unsent: Unsent,
    /// The connection's counter of pieces that are sent.
    pieces: SentPieces,
    opens_websocket: bool,
    _open: OpenStream,
}

impl std::fmt::Debug for ServerStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerStream").field("backlog", &self.unsent.len()).finish_non_exhaustive()
    }
}

impl ServerStream {
    pub(crate) fn new(
        head: Result<Vec<u8>, HeadError>,
        body: Body,
        respond: SendResponse<Bytes>,
        pieces: SentPieces,
        opens_websocket: bool,
        open: OpenStream,
    ) -> Self {
        let sending = Sending::Head(respond);
        Self {
            head: Some(head),
            body,
            sending,
            unsent: Unsent::default(),
            pieces,
            opens_websocket,
            _open: open,
        }
    }

    /// Returns `true` if the stream was opened for a WebSocket (RFC 8441). The head asks for an upgrade then,
    /// with a key that the client does not know.
    pub fn opens_websocket(&self) -> bool {
        self.opens_websocket
    }

    /// Refuses the request: it is not processed, so the client may repeat it (RFC 9113 §8.7).
    pub fn refuse(mut self) {
        self.reset(Reason::REFUSED_STREAM);
    }

    /// Takes the text of the request's head, in HTTP/1.1, or the rule that it breaks. `None` if it was taken
    /// before.
    pub fn take_head(&mut self) -> Option<Result<Vec<u8>, HeadError>> {
        self.head.take()
    }

    /// Reads more of the body into `buffer`, which is not empty, framed as the head says. Ready with 0 at the
    /// end of a tunnel. Behind the end of any other body it waits for the stream's loss.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match ready!(self.body.poll_read(cx, buffer)) {
            Some(read) => Poll::Ready(read),
            None => Poll::Ready(Err(ready!(self.poll_lost(cx)))),
        }
    }

    /// Gathers what has arrived of the body while it cannot be read.
    pub fn gather(&mut self, cx: &mut Context<'_>) {
        self.body.gather(cx);
    }

    /// Ready once the stream is reset, or its connection is gone.
    pub fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        let reset = match &mut self.sending {
            Sending::Head(respond) => respond.poll_reset(cx),
            Sending::Body(stream) => stream.poll_reset(cx),
            Sending::Ended => return Poll::Pending,
        };
        Poll::Ready(match ready!(reset) {
            Ok(reason) => io::Error::new(io::ErrorKind::ConnectionReset, reason.description()),
            Err(error) => lost(&error),
        })
    }

    /// Sends the head of an informational response, a text of HTTP/1.1.
    pub fn send_informational(&mut self, text: &[u8]) -> Result<(), Gone> {
        let Sending::Head(respond) = &mut self.sending else { return Err(Gone) };
        respond.send_informational(response(text)?).map_err(|_| Gone)
    }

    /// Sends the head of the response that opens a WebSocket, a text of HTTP/1.1 that switches to it.
    pub fn open_websocket(&mut self, text: &[u8]) -> Result<(), Gone> {
        let head = opened_websocket(text)?;
        let Sending::Head(respond) = &mut self.sending else { return Err(Gone) };
        self.sending = Sending::Body(respond.send_response(head, false).map_err(|_| Gone)?);
        Ok(())
    }

    /// Sends the head of the final response, a text of HTTP/1.1. Nothing follows if the response `ends` with
    /// it.
    pub fn send_head(&mut self, text: &[u8], ends: bool) -> Result<(), Gone> {
        let mut head = response(text)?;
        // The client would take any success for an open WebSocket (RFC 8441 §5).
        if self.opens_websocket && head.status().is_success() {
            *head.status_mut() = StatusCode::BAD_GATEWAY;
        }
        let Sending::Head(respond) = &mut self.sending else { return Err(Gone) };
        let stream = respond.send_response(head, ends).map_err(|_| Gone)?;
        self.sending = if ends { Sending::Ended } else { Sending::Body(stream) };
        Ok(())
    }

    /// Returns `true` if the head of the final response has been sent.
    pub fn has_begun(&self) -> bool {
        !matches!(self.sending, Sending::Head(_))
    }

    /// Adds data to the backlog, and sends it as far as the peer and the bound of unsent bytes admit. Adds
    /// the number of sent bytes to `moved_bytes`.
    pub fn send(&mut self, cx: &mut Context<'_>, data: Bytes, moved_bytes: &mut u64) -> Result<(), Gone> {
        self.pieces.note();
        self.unsent.push(data);
        self.sending.flush(cx, &mut self.unsent, moved_bytes)
    }

    /// Sends data that [`poll_room`](Self::poll_room) has admitted, the last of the response if it `ends`.
    /// Its length follows from the peer's window, so it is no piece that explains frames of the peer.
    pub fn send_admitted(&mut self, cx: &mut Context<'_>, data: Bytes, ends: bool) -> Result<(), Gone> {
        self.unsent.push(data);
        if ends { self.end(cx, &[], &mut 0) } else { self.sending.flush(cx, &mut self.unsent, &mut 0) }
    }

    /// Ends the response behind the backlog, with the lines of `trailers`, which may be empty.
    pub fn end(&mut self, cx: &mut Context<'_>, trailers: &[u8], moved_bytes: &mut u64) -> Result<(), Gone> {
        if !matches!(self.sending, Sending::Ended) {
            self.unsent.end(trailer_map(trailers)?);
        }
        self.sending.flush(cx, &mut self.unsent, moved_bytes)
    }

    /// Adds data, and the end of the response, at once: the last frame of data then says that it is the last.
    pub fn send_last(
        &mut self,
        cx: &mut Context<'_>,
        data: Bytes,
        trailers: &[u8],
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        self.pieces.note();
        self.unsent.push(data);
        self.end(cx, trailers, moved_bytes)
    }

    /// Sends the backlog. Ready once none is left.
    pub fn poll_backlog(&mut self, cx: &mut Context<'_>, moved_bytes: &mut u64) -> Poll<Result<(), Gone>> {
        self.sending.poll_backlog(cx, &mut self.unsent, moved_bytes)
    }

    /// Returns `true` if the final response has begun and not ended.
    pub fn is_incomplete(&self) -> bool {
        matches!(self.sending, Sending::Body(_))
    }

    /// Returns `true` if data waits for the peer.
    pub fn has_backlog(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Ready with the number of bytes, of at most `wanted`, that can be sent now. `wanted` is not 0, and
    /// there is no backlog.
    pub fn poll_room(&mut self, cx: &mut Context<'_>, wanted: usize) -> Poll<Result<usize, Gone>> {
        let Sending::Body(stream) = &mut self.sending else { return Poll::Ready(Err(Gone)) };
        stream.reserve_capacity(wanted);
        loop {
            match stream.capacity() {
                0 => {}
                room => return Poll::Ready(Ok(room.min(wanted))),
            }
            if !matches!(ready!(stream.poll_capacity(cx)), Some(Ok(_))) {
                return Poll::Ready(Err(Gone));
            }
        }
    }

    fn reset(&mut self, reason: Reason) {
        match mem::replace(&mut self.sending, Sending::Ended) {
            Sending::Head(mut respond) => respond.send_reset(reason),
            Sending::Body(mut stream) => stream.send_reset(reason),
            Sending::Ended => {}
        }
    }
}

impl Drop for ServerStream {
    /// Shows the peer that a response is incomplete.
    fn drop(&mut self) {
        self.reset(Reason::INTERNAL_ERROR);
    }
}
