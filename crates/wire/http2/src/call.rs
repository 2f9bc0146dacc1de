//! A stream that carries a call to a provider: a request, and the response to it.
//!
//! These hold at all times:
//!
//! - Requests sent ≤ 1.
//! - A stream that is dropped before both directions have ended is reset (`CANCEL`).

use std::io;
use std::task::{Context, Poll, ready};

use egret_http1::{BodyDecoder, HeadError};

use crate::frame::Reason;
use crate::lost::Lost;
use crate::outgoing::OutgoingRequest;
use crate::output::Data;
use crate::scratch::with_request_head;
use crate::state::{Core, Gone, SharedCore, wait};
use crate::table::{Receiving, Sending, StreamSlot};

/// The reason why there is no head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoResponse {
    /// It breaks a rule.
    Malformed(HeadError),
    /// The stream or its connection has ended.
    Lost(Lost),
}

/// The state of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The request has not been sent.
    Unsent,
    /// It has been sent on the stream in this slot.
    Sent(StreamSlot),
    /// It cannot be sent.
    Lost(Lost),
}

/// A call in a stream.
pub struct ClientStream {
    shared: SharedCore,
    state: State,
}

impl std::fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientStream").field("state", &self.state).finish_non_exhaustive()
    }
}

impl ClientStream {
    pub(crate) fn new(shared: SharedCore) -> Self {
        Self { shared, state: State::Unsent }
    }

    /// Ready once the provider's settings have arrived, or will not: with `true` if a WebSocket can be opened
    /// in streams (RFC 8441 §3).
    pub fn poll_opens_websockets(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.shared.act(|core| {
            let peer = &mut core.peer;
            if peer.is_settled {
                return Poll::Ready(peer.opens_websockets);
            }
            // One for each call at most.
            if !peer.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
                peer.waiting.push(cx.waker().clone());
            }
            Poll::Pending
        })
    }

    /// Opens the stream with the head of a request, a text of HTTP/1.1, and sends data and the end of the
    /// request behind it, as [`send`](Self::send) does. What follows a request that opens a WebSocket is its
    /// tunnel. If that fails, [`poll_head`](Self::poll_head) says why.
    pub fn begin(
        &mut self,
        cx: &mut Context<'_>,
        head: &[u8],
        data: Data<'_>,
        trailers: Option<&[u8]>,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        let ends = data.is_empty() && trailers.is_some_and(<[u8]>::is_empty);
        let is_tunnel = with_request_head(|table| {
            let is_tls = self.shared.read(|core| core.terms.is_tls);
            let Ok(request) = OutgoingRequest::read(head, table, is_tls) else {
                return self.lose(Lost::Untranslatable);
            };
            *moved_bytes += request.head.len as u64;
            self.open(&request, ends)
        })?;
        if ends || is_tunnel { Ok(()) } else { self.send(cx, data, trailers, moved_bytes) }
    }

    /// Sends a whole request that is in memory as HTTP/1.1 has it.
    pub fn send_whole(
        &mut self,
        cx: &mut Context<'_>,
        whole: &[u8],
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        let is_tls = self.shared.read(|core| core.terms.is_tls);
        let mut spans = Vec::new();
        let (body, is_done) = with_request_head(|table| {
            let Ok(request) = OutgoingRequest::read(whole, table, is_tls) else {
                return self.lose(Lost::Untranslatable);
            };
            let body = &whole[request.head.len..];
            let mut decoder = BodyDecoder::from(request.head.framing);
            if decoder.decode(body, &mut spans).is_err() || !decoder.is_done() {
                return self.lose(Lost::Untranslatable);
            }
            *moved_bytes += request.head.len as u64;
            let ends = spans.iter().all(|span| span.is_empty());
            self.open(&request, ends).map(|is_tunnel| (body, ends || is_tunnel))
        })?;
        if is_done { Ok(()) } else { self.send(cx, Data::new(&spans, body), Some(&[]), moved_bytes) }
    }

    /// Opens the stream. Returns `true` if a tunnel follows.
    fn open(&mut self, request: &OutgoingRequest<'_>, ends: bool) -> Result<bool, Gone> {
        let is_tunnel = request.accept.is_some();
        if self.state != State::Unsent {
            return Err(Gone);
        }
        match self.shared.act(|core| core.open(request, ends && !is_tunnel)) {
            Some(slot) => {
                self.state = State::Sent(slot);
                Ok(is_tunnel)
            }
            // Nothing was sent. A connection that cannot open streams has ended, or is about to.
            None => self.lose(Lost::NotProcessed),
        }
    }

    fn lose<T>(&mut self, lost: Lost) -> Result<T, Gone> {
        if self.state == State::Unsent {
            self.state = State::Lost(lost);
        }
        Err(Gone)
    }

    /// Ready once a head has arrived, or there will be none.
    pub fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let State::Sent(slot) = self.state else { return Poll::Ready(()) };
        self.shared.act(|core| poll_arrival(core, slot, cx))
    }

    /// Receives the text of the next head, in HTTP/1.1: of an informational response, or the final one.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, NoResponse>> {
        let slot = match self.state {
            State::Sent(slot) => slot,
            State::Unsent => return Poll::Ready(Err(NoResponse::Lost(Lost::Connection))),
            State::Lost(lost) => return Poll::Ready(Err(NoResponse::Lost(lost))),
        };
        self.shared.act(|core| {
            ready!(poll_arrival(core, slot, cx));
            let stream = &mut core.table[slot];
            Poll::Ready(match stream.heads.take() {
                Some(head) => head.map_err(NoResponse::Malformed),
                None => Err(NoResponse::Lost(stream.lost.unwrap_or(Lost::Connection))),
            })
        })
    }

    /// Reads more of the body into `buffer`, which is not empty, framed as the head says. Ready with 0 behind
    /// its end, and before the head of the final response was taken.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        let slot = match self.state {
            State::Sent(slot) => slot,
            State::Unsent => return Poll::Ready(Ok(0)),
            State::Lost(lost) => return Poll::Ready(Err(lost.into())),
        };
        self.shared.act(|core| {
            let stream = &core.table[slot];
            let is_awaited = stream.receiving == Receiving::Head && stream.lost.is_none();
            if is_awaited || !stream.heads.is_empty() {
                return Poll::Ready(Ok(0));
            }
            core.poll_read(slot, cx, buffer).map(|read| Ok(read?.unwrap_or(0)))
        })
    }

    /// Notes that what has arrived of the body cannot be read now.
    pub fn gather(&mut self) {
        if let State::Sent(slot) = self.state {
            self.shared.act(|core| core.note_lag(slot));
        }
    }

    /// Sends data, and the end of the request behind it with the lines of `trailers` if they are given, as
    /// far as the peer and the bound of unsent bytes admit. The rest becomes the backlog. Adds the number of
    /// sent bytes to `moved_bytes`.
    pub fn send(
        &mut self,
        cx: &mut Context<'_>,
        data: Data<'_>,
        trailers: Option<&[u8]>,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        let State::Sent(slot) = self.state else { return Err(Gone) };
        self.shared.act(|core| {
            core.gate.note_piece();
            core.send(slot, data, trailers)?;
            match core.poll_backlog(slot, cx, moved_bytes) {
                Poll::Ready(sent) => sent,
                Poll::Pending => Ok(()),
            }
        })
    }

    /// Ready once the provider has reset the stream that is being sent to, or its connection is gone.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let State::Sent(slot) = self.state else { return Poll::Pending };
        self.shared.act(|core| {
            let stream = &mut core.table[slot];
            if stream.lost.is_some() && stream.sending != Sending::Ended {
                return Poll::Ready(());
            }
            wait(&mut stream.writer, cx);
            Poll::Pending
        })
    }

    /// Ends the tunnel of a WebSocket behind the backlog. Ready once that is sent. Any other request has
    /// ended with its body.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let State::Sent(slot) = self.state else { return Poll::Ready(Ok(())) };
        self.shared.act(|core| {
            let stream = &core.table[slot];
            if stream.accept.is_some() && stream.sending == Sending::Body {
                core.send(slot, Data::whole(&[]), Some(&[]))?;
            }
            core.poll_backlog(slot, cx, &mut 0)
        })
    }

    /// Sends the backlog. Ready once none is left.
    pub fn poll_backlog(&mut self, cx: &mut Context<'_>, moved_bytes: &mut u64) -> Poll<Result<(), Gone>> {
        let State::Sent(slot) = self.state else { return Poll::Ready(Ok(())) };
        self.shared.act(|core| core.poll_backlog(slot, cx, moved_bytes))
    }

    /// Returns `true` if data waits for the peer.
    pub fn has_backlog(&self) -> bool {
        if let State::Sent(slot) = self.state {
            self.shared.read(|core| core.has_backlog(slot))
        } else {
            false
        }
    }
}

/// Ready once a head has arrived on a stream, or there will be none.
fn poll_arrival(core: &mut Core, slot: StreamSlot, cx: &Context<'_>) -> Poll<()> {
    let stream = &mut core.table[slot];
    if !stream.heads.is_empty() || stream.receiving != Receiving::Head || stream.lost.is_some() {
        return Poll::Ready(());
    }
    wait(&mut stream.reader, cx);
    Poll::Pending
}

impl Drop for ClientStream {
    fn drop(&mut self) {
        if let State::Sent(slot) = self.state {
            self.shared.act(|core| core.release(slot, Reason::CANCEL));
        }
        self.shared.leave();
    }
}
