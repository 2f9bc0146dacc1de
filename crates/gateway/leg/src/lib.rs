//! A leg: one end of an exchange, the client's or the provider's. It receives heads and bodies and sends
//! messages, and is the only code of the gateway that sees a connection's stream. The rooms above know no
//! protocol.

pub mod http1;
mod http2;
#[doc(hidden)]
pub mod sockets;

use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use egret_http1::{HeadError, HeadLimits, Rendering, RequestFraming, ResponseFraming, Span, Version};
use egret_http2::ServerStream;
use egret_net::buffer::{Buffer, BufferPool};
use egret_net::event_loop::Socket;
use egret_net::stream::{Detached, Stream};
use egret_net::tls::hello::Hello;
use egret_net::tls::{TlsError, TlsStream, accept_hello};
use rustls::ServerConfig;
use socket2::SockRef;

use crate::http1::{Head, Http1};
use crate::http2::Http2;

/// The name of HTTP/2 in the handshake of TLS (RFC 9113 §3.2).
const HTTP_2: &[u8] = b"h2";

/// One end of an exchange.
#[derive(Debug)]
pub enum Leg {
    /// A connection that speaks HTTP/1.1.
    Http1(Http1),
    /// A stream of a client's HTTP/2 connection.
    Http2(Box<Http2>),
    /// Nobody: it sends nothing, and everything that it is sent is dropped.
    None,
}

/// The peer's connection is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gone;

/// The outcome of receiving.
#[derive(Debug)]
pub enum Received {
    /// This number of bytes has been added to the buffer.
    Data(usize),
    /// The peer has closed its sending side.
    End,
    /// The connection is gone.
    Gone(io::Error),
}

/// The reason why no head has been received.
#[derive(Debug)]
pub enum NoHead {
    /// It breaks a rule.
    Malformed(HeadError),
    /// The peer has closed its sending side.
    End,
    /// The connection is gone.
    Gone(io::Error),
}

/// The bounds of a head, and the memory for it.
#[derive(Debug, Clone, Copy)]
pub struct HeadRoom<'a> {
    /// Maximum sizes.
    pub limits: &'a HeadLimits,
    /// Memory for the buffer.
    pub buffers: &'a BufferPool,
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

/// Part of a message to send: an optional head, data of its body, and its end.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'m> {
    /// The head, unless it has been sent.
    pub head: OutgoingHead<'m>,
    /// Received bytes, with the data among them.
    pub input: &'m [u8],
    /// The positions of the data in `input`.
    pub spans: &'m [Span],
    /// The lines of the trailers, if the message ends.
    pub end: Option<&'m [u8]>,
}

/// The head of a message to send.
#[derive(Debug, Clone, Copy)]
pub enum OutgoingHead<'m> {
    /// It has been sent before.
    Sent,
    /// A received head with edits.
    Edited(&'m Rendering<'m>),
    /// A head, or a whole message, that the gateway has written.
    Written(&'m [u8]),
}

impl<'m> Outgoing<'m> {
    /// A head alone.
    pub fn head(head: OutgoingHead<'m>) -> Self {
        Self { head, input: &[], spans: &[], end: None }
    }
}

impl Leg {
    /// Creates the leg of a plain connection.
    pub fn plain(socket: Socket) -> Self {
        Self::Http1(Http1::new(Stream::Plain(socket)))
    }

    /// Creates the leg of a connection over TLS.
    pub fn tls(stream: TlsStream) -> Self {
        Self::Http1(Http1::new(Stream::Tls(stream)))
    }

    /// Creates the leg of a stream that a client has opened.
    pub fn stream(stream: ServerStream) -> Self {
        Self::Http2(Box::new(Http2::new(stream)))
    }

    /// Returns `true` if the peer has chosen HTTP/2 in the handshake of TLS, so requests follow in streams.
    pub fn begins_http2(&self) -> bool {
        match self {
            Self::Http1(leg) => leg.protocol() == Some(HTTP_2),
            Self::Http2(_) | Self::None => false,
        }
    }

    /// Returns the stream of an HTTP/1.1 connection that is to speak another protocol. `None` if it does not
    /// speak HTTP/1.1, or bytes for the peer are left.
    pub fn into_connection(self) -> Option<Stream> {
        match self {
            Self::Http1(leg) if !leg.is_blocked() => Some(leg.into_stream()),
            Self::Http1(_) | Self::Http2(_) | Self::None => None,
        }
    }

    /// Registers a connection of another worker with the calling worker's event loop.
    pub fn attach(detached: Detached) -> io::Result<Self> {
        Ok(Self::Http1(Http1::new(detached.attach()?)))
    }

    /// Unregisters an idle connection from this worker's event loop.
    pub fn into_detached(self) -> io::Result<Detached> {
        match self {
            Self::Http1(leg) => leg.into_stream().into_detached(),
            Self::Http2(_) | Self::None => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Performs the TLS handshake that the peer has begun with `hello`. `received` holds all bytes of it so
    /// far. It waits for the peer, so set a timeout.
    pub async fn accept_tls(
        self,
        hello: Hello,
        received: &[u8],
        config: Arc<ServerConfig>,
    ) -> Result<Self, TlsError> {
        match self {
            Self::Http1(leg) => accept_hello(leg.into_stream(), hello, received, config).await.map(Self::tls),
            Self::Http2(_) | Self::None => Err(TlsError::Closed),
        }
    }

    /// Returns `true` if there is nobody at this end.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns `true` if this is one of several streams of a connection.
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Returns the socket, for its addresses and options. `None` if it is not this leg's alone.
    pub fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Http1(leg) => Some(leg.socket()),
            Self::Http2(_) | Self::None => None,
        }
    }

    /// Returns `true` if an idle connection is still open and silent, as far as this worker knows. Makes no
    /// system call unless there was an event on it.
    pub fn is_usable_idle(&mut self) -> bool {
        match self {
            Self::Http1(leg) => leg.is_usable_idle(),
            Self::Http2(_) | Self::None => false,
        }
    }

    /// Ready if there may be something to receive, or the connection has ended. Of a stream, only if it has
    /// ended.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Http1(leg) => leg.poll_readable(cx),
            Self::Http2(leg) => leg.poll_lost(cx),
            Self::None => Poll::Pending,
        }
    }

    /// Receives a head into `buffer`, whose bytes so far are parsed first.
    #[inline]
    pub fn poll_head(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut Buffer,
        head: &mut impl Head,
        room: HeadRoom<'_>,
    ) -> Poll<Result<(), NoHead>> {
        match self {
            Self::Http1(leg) => leg.poll_head(cx, buffer, head, room),
            Self::Http2(leg) => leg.poll_head(buffer, head, room),
            Self::None => Poll::Pending,
        }
    }

    /// Receives bytes of a body, or what the peer sends ahead, into the free part of `buffer`. They are
    /// framed as the peer has sent them.
    #[inline]
    pub fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Received> {
        match self {
            Self::Http1(leg) => leg.poll_receive(cx, buffer),
            Self::Http2(leg) => leg.poll_receive(cx, buffer),
            Self::None => Poll::Pending,
        }
    }

    /// Begins a message whose body is sent in `framing`.
    #[inline]
    pub fn start(&mut self, framing: Framing) {
        match self {
            Self::Http1(leg) => leg.start(framing),
            Self::Http2(leg) => leg.start(framing),
            Self::None => {}
        }
    }

    /// Sends part of a message, in one system call. Bytes that the peer does not accept at once become the
    /// backlog. Adds the number of accepted bytes to `moved_bytes`.
    #[inline]
    pub fn send(
        &mut self,
        cx: &mut Context<'_>,
        message: &Outgoing<'_>,
        buffers: &BufferPool,
        moved_bytes: &mut u64,
    ) -> Result<(), Gone> {
        match self {
            Self::Http1(leg) => leg.send(cx, message, buffers, moved_bytes),
            Self::Http2(leg) => leg.send(cx, message, moved_bytes),
            Self::None => {
                *moved_bytes += message.bare_len();
                Ok(())
            }
        }
    }

    /// Sends as much of a message in memory as the peer accepts in one system call. Ready with its number of
    /// bytes, which is not 0.
    pub fn poll_send_bytes(
        &mut self,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<Result<u64, Gone>> {
        match self {
            Self::Http1(leg) => leg.poll_send_bytes(cx, slices),
            Self::Http2(leg) => leg.poll_send_bytes(cx, slices),
            Self::None => Poll::Ready(Ok(slices.iter().map(|slice| slice.len() as u64).sum())),
        }
    }

    /// Sends the backlog. Ready once the peer has accepted all that was sent.
    #[inline]
    pub fn poll_backlog(&mut self, cx: &mut Context<'_>, moved_bytes: &mut u64) -> Poll<Result<(), Gone>> {
        match self {
            Self::Http1(leg) => leg.poll_backlog(cx, moved_bytes),
            Self::Http2(leg) => leg.poll_backlog(cx, moved_bytes),
            Self::None => Poll::Ready(Ok(())),
        }
    }

    /// Returns `true` if the peer has not accepted all that was sent.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::Http1(leg) => leg.is_blocked(),
            Self::Http2(leg) => leg.is_blocked(),
            Self::None => false,
        }
    }

    /// Returns `true` if a response on this stream has begun and not ended, so the stream will be reset. What
    /// has not been sent by then is not sent.
    pub fn is_incomplete_stream(&self) -> bool {
        match self {
            Self::Http2(leg) => leg.is_incomplete(),
            Self::Http1(_) | Self::None => false,
        }
    }

    /// Closes the sending side.
    pub fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        match self {
            Self::Http1(leg) => leg.poll_finish(cx),
            Self::Http2(leg) => leg.poll_finish(cx),
            Self::None => Poll::Ready(Ok(())),
        }
    }

    /// Makes the connection close with a reset, so the peer sees that a message is incomplete. A stream is
    /// always reset if it is dropped before the end of its message.
    pub fn abort(&self) {
        // If the kernel refuses, an orderly close is the only option.
        if let Some(socket) = self.socket() {
            let _ = SockRef::from(socket).set_linger(Some(Duration::ZERO));
        }
    }
}
