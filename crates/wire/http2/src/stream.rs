//! A stream that a client has opened: a request, and the response to it.
//!
//! These hold at all times:
//!
//! - A stream that was opened for a WebSocket has a response of success only if the WebSocket is open.
//! - Once its message has ended, frames sent ≤ 0. A stream that is dropped before is reset.

use std::io;
use std::task::{Context, Poll, ready};

use egret_http1::HeadError;

use crate::frame::Reason;
use crate::lost::Lost;
use crate::outgoing::OutgoingResponse;
use crate::output::Data;
use crate::scratch::with_response_head;
use crate::state::{Gone, SharedCore, wait};
use crate::table::{Sending, StreamSlot};

/// Status of a response that would be taken for an open WebSocket, and is none.
const BAD_GATEWAY: u16 = 502;

/// A request, and the response to it.
pub struct ServerStream {
    shared: SharedCore,
    slot: StreamSlot,
}

impl std::fmt::Debug for ServerStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerStream").field("slot", &self.slot).finish_non_exhaustive()
    }
}

impl ServerStream {
    pub(crate) fn new(shared: SharedCore, slot: StreamSlot) -> Self {
        Self { shared, slot }
    }

    /// Returns `true` if the stream was opened for a WebSocket (RFC 8441). The head asks for an upgrade then,
    /// with a key that the client does not know.
    pub fn opens_websocket(&self) -> bool {
        self.shared.read(|core| core.table[self.slot].opens_websocket)
    }

    /// Refuses the request: it is not processed, so the client may repeat it (RFC 9113 §8.7).
    pub fn refuse(self) {
        self.shared.act(|core| core.reset(self.slot, Reason::REFUSED_STREAM, Lost::NotProcessed));
    }

    /// Takes the text of the request's head, in HTTP/1.1, or the rule that it breaks. `None` if it was taken
    /// before.
    pub fn take_head(&mut self) -> Option<Result<Vec<u8>, HeadError>> {
        self.shared.act(|core| core.table[self.slot].heads.take())
    }

    /// Reads more of the body into `buffer`, which is not empty, framed as the head says. Ready with 0 at the
    /// end of a tunnel. Behind the end of any other body it waits for the stream's loss.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let slot = self.slot;
        let (read, is_tunnel) =
            self.shared.act(|core| (core.poll_read(slot, cx, buffer), core.table[slot].body.is_tunnel()));
        Poll::Ready(match ready!(read) {
            Ok(Some(count)) => Ok(count),
            Ok(None) if is_tunnel => Ok(0),
            Ok(None) => Err(ready!(self.poll_lost(cx))),
            Err(_) => Err(io::ErrorKind::ConnectionReset.into()),
        })
    }

    /// Notes that what has arrived of the body cannot be read now.
    pub fn gather(&mut self) {
        self.shared.act(|core| core.note_lag(self.slot));
    }

    /// Ready once the stream is reset, or its connection is gone.
    pub fn poll_lost(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        self.shared.act(|core| {
            let stream = &mut core.table[self.slot];
            if stream.lost.is_some() && stream.sending != Sending::Ended {
                return Poll::Ready(io::ErrorKind::ConnectionReset.into());
            }
            wait(&mut stream.writer, cx);
            Poll::Pending
        })
    }

    /// Sends the head of an informational response, a text of HTTP/1.1.
    pub fn send_informational(&mut self, text: &[u8]) -> Result<(), Gone> {
        with_response_head(|head| {
            let response = OutgoingResponse::read(text, head)?;
            self.shared.act(|core| core.respond(self.slot, &response, false, false))
        })
    }

    /// Sends the head of the response that opens a WebSocket, a text of HTTP/1.1 that switches to it.
    pub fn open_websocket(&mut self, text: &[u8]) -> Result<(), Gone> {
        with_response_head(|head| {
            let response = OutgoingResponse::read_switch(text, head)?;
            self.shared.act(|core| core.respond(self.slot, &response, true, false))
        })
    }

    /// Sends the head of the final response, a text of HTTP/1.1. Nothing follows if the response `ends` with
    /// it.
    pub fn send_head(&mut self, text: &[u8], ends: bool) -> Result<(), Gone> {
        with_response_head(|head| {
            let mut response = OutgoingResponse::read(text, head)?;
            self.shared.act(|core| {
                // The client would take any success for an open WebSocket (RFC 8441 §5).
                if core.table[self.slot].opens_websocket && (200..300).contains(&response.status) {
                    response.status = BAD_GATEWAY;
                }
                core.respond(self.slot, &response, true, ends)
            })
        })
    }

    /// Returns `true` if the head of the final response has been sent.
    pub fn has_begun(&self) -> bool {
        self.sending() != Sending::Head
    }

    fn sending(&self) -> Sending {
        self.shared.read(|core| core.table[self.slot].sending)
    }

    /// Sends data, and the end of the response behind it with the lines of `trailers` if they are given, as
    /// far as the peer and the bound of unsent bytes admit. The rest becomes the backlog. Adds the number of
    /// sent bytes to `moved_bytes`.
    pub fn send(
        &mut self,
        cx: &mut Context<'_>,
        data: Data<'_>,
        trailers: Option<&[u8]>,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        self.send_piece(cx, data, trailers, moved_bytes, true)
    }

    /// Sends data of a message in memory, the last of the response if it `ends`. It is no piece that explains
    /// frames of the peer.
    pub fn send_stored(&mut self, cx: &mut Context<'_>, data: &[u8], ends: bool) -> Result<(), Gone> {
        self.send_piece(cx, Data::whole(data), ends.then_some(&[]), &mut 0, false)
    }

    fn send_piece(
        &mut self,
        cx: &mut Context<'_>,
        data: Data<'_>,
        trailers: Option<&[u8]>,
        moved_bytes: &mut u64,
        explains: bool,
    ) -> Result<(), Gone> {
        self.shared.act(|core| {
            if explains {
                core.gate.note_piece();
            }
            core.send(self.slot, data, trailers)?;
            match core.poll_backlog(self.slot, cx, moved_bytes) {
                Poll::Ready(sent) => sent,
                Poll::Pending => Ok(()),
            }
        })
    }

    /// Ends the response behind the backlog, unless it has ended.
    pub fn end(&mut self, cx: &mut Context<'_>) -> Result<(), Gone> {
        if self.sending() == Sending::Ended {
            return Ok(());
        }
        self.send_piece(cx, Data::whole(&[]), Some(&[]), &mut 0, false)
    }

    /// Sends the backlog. Ready once none is left.
    pub fn poll_backlog(&mut self, cx: &mut Context<'_>, moved_bytes: &mut u64) -> Poll<Result<(), Gone>> {
        self.shared.act(|core| core.poll_backlog(self.slot, cx, moved_bytes))
    }

    /// Returns `true` if the final response has begun and not ended.
    pub fn is_incomplete(&self) -> bool {
        self.sending() == Sending::Body
    }

    /// Returns `true` if data waits for the peer.
    pub fn has_backlog(&self) -> bool {
        self.shared.read(|core| core.has_backlog(self.slot))
    }
}

impl Drop for ServerStream {
    /// Shows the peer that a response is incomplete, or that the rest of a request is not wanted (RFC 9113
    /// §8.1).
    fn drop(&mut self) {
        self.shared.act(|core| {
            let has_ended = core.table[self.slot].sending == Sending::Ended;
            let reason = if has_ended { Reason::NO_ERROR } else { Reason::INTERNAL_ERROR };
            core.release(self.slot, reason);
        });
    }
}
