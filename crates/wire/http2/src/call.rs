//! A stream that carries a call to a provider: a request, and the response to it.
//!
//! These hold at all times:
//!
//! - Data in `unsent` > 0 only if `sending` is `Body`.
//! - `arrived` is `Some` only between the arrival of a head and its being taken.
//! - A stream that is dropped before both directions have ended is reset by the library (CANCEL).

use std::io;
use std::mem;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use egret_http1::{HeadError, Method};
use h2::client::{ResponseFuture, SendRequest};
use http::HeaderMap;

use crate::body::Body;
use crate::client::Common;
use crate::lost::Lost;
use crate::outgoing::{OutgoingRequest, never_index};
use crate::response::{ResponseText, response_text, trailer_map, websocket_text};
use crate::unsent::{Gone, Sending, Unsent};
use crate::windows::OpenStream;

/// The reason why there is no head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoResponse {
    /// It breaks a rule.
    Malformed(HeadError),
    /// The stream or its connection has ended.
    Lost(Lost),
}

/// The receiving direction.
enum Receiving {
    /// The request has not been sent, or the head of the final response breaks a rule.
    Nothing,
    /// A response is awaited.
    Head(ResponseFuture),
    /// The head of the final response has arrived.
    Body(Box<Body>),
    /// There is no response.
    Lost(Lost),
}

/// A call in a stream.
pub struct ClientStream {
    /// Its head opens the stream.
    sending: Sending<SendRequest<Bytes>>,
    receiving: Receiving,
    /// A head that has arrived and was not taken.
    arrived: Option<Result<Vec<u8>, NoResponse>>,
    unsent: Unsent,
    /// The method of the request.
    method: Method,
    /// The value of `Sec-WebSocket-Accept` for the client, if the request opens a WebSocket.
    accept: Option<String>,
    /// `Some` once the stream is open.
    open: Option<OpenStream>,
    common: Rc<Common>,
}

impl std::fmt::Debug for ClientStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientStream").field("backlog", &self.unsent.len()).finish_non_exhaustive()
    }
}

impl ClientStream {
    pub(crate) fn new(opener: SendRequest<Bytes>, common: Rc<Common>) -> Self {
        Self {
            sending: Sending::Head(opener),
            receiving: Receiving::Nothing,
            arrived: None,
            unsent: Unsent::default(),
            method: Method::Get,
            accept: None,
            open: None,
            common,
        }
    }

    /// Returns `true` if the connection uses TLS.
    pub fn is_tls(&self) -> bool {
        self.common.is_tls
    }

    /// Ready once the provider's settings have arrived, or will not: with `true` if a WebSocket can be opened
    /// in streams (RFC 8441 §3).
    pub fn poll_opens_websockets(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Sending::Head(opener) = &self.sending else { return Poll::Ready(false) };
        if opener.is_extended_connect_protocol_enabled() {
            return Poll::Ready(true);
        }
        self.common.poll_settings(cx).map(|()| false)
    }

    /// Opens the stream with the head of a request, which `ends` with it or has a body. What follows a
    /// request that opens a WebSocket is its tunnel. If that fails, [`poll_head`](Self::poll_head) says why.
    pub fn open(&mut self, request: OutgoingRequest, ends: bool) -> Result<(), Gone> {
        let ends = ends && request.accept.is_none();
        self.accept = request.accept;
        let Sending::Head(mut opener) = mem::replace(&mut self.sending, Sending::Ended) else {
            return Err(Gone);
        };
        self.method = request.method;
        match opener.send_request(request.request, ends) {
            Ok((response, stream)) => {
                self.common.note_stream(response.stream_id().as_u32());
                self.open = Some(OpenStream::new(Rc::clone(&self.common.windows)));
                self.receiving = Receiving::Head(response);
                if !ends {
                    self.sending = Sending::Body(stream);
                }
                Ok(())
            }
            // Nothing was sent. A connection that cannot open streams has ended, or is about to.
            Err(error) => {
                let is_own = error.reason().is_none() && !error.is_io();
                self.receiving =
                    Receiving::Lost(if is_own { Lost::Untranslatable } else { Lost::NotProcessed });
                Err(Gone)
            }
        }
    }

    /// Notes that the request has no form in HTTP/2, so the stream is never opened.
    pub fn refuse(&mut self) {
        self.sending = Sending::Ended;
        self.receiving = Receiving::Lost(Lost::Untranslatable);
    }

    /// Ready once a head has arrived, or there will be none.
    pub fn poll_arrival(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.arrived.is_some() {
            return Poll::Ready(());
        }
        let Receiving::Head(response) = &mut self.receiving else { return Poll::Ready(()) };
        match ready!(response.poll_informational(cx)) {
            Some(Ok(informational)) => {
                let parts = informational.into_parts().0;
                let translated = response_text(&parts, self.method, false, self.common.fields_max);
                let head = translated.map(|translated| translated.text);
                self.arrived = Some(head.map_err(NoResponse::Malformed));
                return Poll::Ready(());
            }
            Some(Err(error)) => {
                self.lose(&error);
                return Poll::Ready(());
            }
            None => {}
        }
        match ready!(Pin::new(response).poll(cx)) {
            Ok(response) => {
                let (parts, received) = response.into_parts();
                let ends = received.is_end_stream();
                let fields_max = self.common.fields_max;
                let translated = match &self.accept {
                    Some(accept) if parts.status.is_success() => websocket_text(&parts, accept, fields_max),
                    _ => response_text(&parts, self.method, ends, fields_max),
                };
                self.receiving = Receiving::Nothing;
                self.arrived = Some(match translated {
                    Ok(ResponseText { text, framing }) => {
                        self.receiving = Receiving::Body(Box::new(Body::new(
                            received,
                            framing,
                            Rc::clone(&self.common.windows),
                        )));
                        Ok(text)
                    }
                    Err(error) => Err(NoResponse::Malformed(error)),
                });
            }
            Err(error) => self.lose(&error),
        }
        Poll::Ready(())
    }

    fn lose(&mut self, error: &h2::Error) {
        self.receiving = Receiving::Lost(Lost::of(error, self.common.flood.get()));
    }

    /// Receives the text of the next head, in HTTP/1.1: of an informational response, or the final one.
    pub fn poll_head(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<u8>, NoResponse>> {
        ready!(self.poll_arrival(cx));
        if let Some(arrived) = self.arrived.take() {
            return Poll::Ready(arrived);
        }
        let lost = if let Receiving::Lost(lost) = self.receiving { lost } else { Lost::Connection };
        Poll::Ready(Err(NoResponse::Lost(lost)))
    }

    /// Reads more of the body into `buffer`, which is not empty, framed as the head says. Ready with 0 behind
    /// its end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match &mut self.receiving {
            Receiving::Body(body) => body.poll_read(cx, buffer).map(|read| read.unwrap_or(Ok(0))),
            Receiving::Lost(lost) => Poll::Ready(Err((*lost).into())),
            Receiving::Nothing | Receiving::Head(_) => Poll::Ready(Ok(0)),
        }
    }

    /// Gathers what has arrived of the body while it cannot be read.
    pub fn gather(&mut self, cx: &mut Context<'_>) {
        if let Receiving::Body(body) = &mut self.receiving {
            body.gather(cx);
        }
    }

    /// Adds data to the backlog, and the end of the request with the lines of `trailers` if they are given.
    /// Sends it as far as the peer and the bound of unsent bytes admit, and adds the number of sent bytes to
    /// `moved_bytes`.
    pub fn send(
        &mut self,
        cx: &mut Context<'_>,
        data: Bytes,
        trailers: Option<&[u8]>,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        self.common.pieces.note();
        self.unsent.push(data);
        if let Some(trailers) = trailers {
            let mut trailers = trailer_map(trailers)?;
            never_index(&mut trailers);
            self.unsent.end(trailers);
        }
        self.sending.flush(cx, &mut self.unsent, moved_bytes)
    }

    /// Ready once the provider has reset the stream that is being sent to, or its connection is gone.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.sending {
            Sending::Body(stream) => stream.poll_reset(cx).map(drop),
            Sending::Head(_) | Sending::Ended => Poll::Pending,
        }
    }

    /// Ends the tunnel of a WebSocket behind the backlog. Ready once that is sent. Any other request has
    /// ended with its body.
    pub fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        if self.accept.is_some() && matches!(self.sending, Sending::Body(_)) {
            self.unsent.end(HeaderMap::new());
        }
        self.poll_backlog(cx, &mut 0)
    }

    /// Sends the backlog. Ready once none is left.
    pub fn poll_backlog(&mut self, cx: &mut Context<'_>, moved_bytes: &mut u64) -> Poll<Result<(), Gone>> {
        self.sending.poll_backlog(cx, &mut self.unsent, moved_bytes)
    }

    /// Returns `true` if data waits for the peer.
    pub fn has_backlog(&self) -> bool {
        !self.unsent.is_empty()
    }
}
