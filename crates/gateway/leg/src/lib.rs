//! A leg: one end of an exchange, the client's or the provider's. It receives heads and bodies and sends
//! messages, and is the only code of the gateway that sees a connection's stream. The rooms above know no
//! protocol.

mod frames;
pub mod http1;
mod http2;
mod http2_call;
mod message;
#[doc(hidden)]
pub mod sockets;
mod socks;

use std::io::{self, IoSlice};
use std::mem;
use std::sync::Arc;
use std::task::{Context, Poll};

use egret_http2::{ClientStream, ServerStream};
use egret_net::buffer::{Buffer, BufferPool};
use egret_net::event_loop::Socket;
use egret_net::stream::{Detached, Stream};
use egret_net::tls::hello::Hello;
use egret_net::tls::{TlsError, TlsStream, accept_hello};
use rustls::ServerConfig;

use crate::http1::{Head, Http1};
use crate::http2::Http2;
use crate::http2_call::Http2Call;
use crate::socks::Socks;

pub use crate::http1::{Framing, Reply};
pub use crate::message::{Gone, HeadRoom, NoHead, Outgoing, OutgoingHead, Received};

/// The name of HTTP/2 in the handshake of TLS (RFC 9113 §3.2).
const HTTP_2: &[u8] = b"h2";

/// One end of an exchange.
#[derive(Debug)]
pub enum Leg {
    /// A connection that speaks HTTP/1.1.
    Http1(Http1),
    /// A client's connection that begins with a handshake of SOCKS 5. Once its tunnel is open, it is `Http1`.
    Socks(Box<Socks>),
    /// A stream of a client's HTTP/2 connection.
    Http2(Box<Http2>),
    /// A stream of an HTTP/2 connection to a provider.
    Http2Call(Box<Http2Call>),
    /// Nobody: it sends nothing, and everything that it is sent is dropped.
    None,
}

impl Leg {
    /// Creates the leg of a plain connection.
    pub fn plain(socket: Socket) -> Self {
        Self::Http1(Http1::new(Stream::Plain(socket)))
    }

    /// Creates the leg of a plain connection whose client speaks SOCKS 5. The client must send a user name
    /// and a password if `asks`.
    pub fn socks(socket: Socket, asks: bool) -> Self {
        Self::Socks(Box::new(Socks::new(Stream::Plain(socket), asks)))
    }

    /// Creates the leg of a connection over TLS.
    pub fn tls(stream: TlsStream) -> Self {
        Self::Http1(Http1::new(Stream::Tls(stream)))
    }

    /// Creates the leg of a stream that a client has opened.
    pub fn stream(stream: ServerStream) -> Self {
        Self::Http2(Box::new(Http2::new(stream)))
    }

    /// Creates the leg of a stream to a provider, which is opened by the head of its request.
    pub fn call(stream: ClientStream) -> Self {
        Self::Http2Call(Box::new(Http2Call::new(stream)))
    }

    /// Returns `true` if the peer has chosen HTTP/2 in the handshake of TLS, so requests follow in streams.
    pub fn begins_http2(&self) -> bool {
        match self {
            Self::Http1(leg) => leg.protocol() == Some(HTTP_2),
            Self::Socks(_) | Self::Http2(_) | Self::Http2Call(_) | Self::None => false,
        }
    }

    /// Returns the stream of an HTTP/1.1 connection that is to speak another protocol. `None` if it does not
    /// speak HTTP/1.1, or bytes for the peer are left.
    pub fn into_connection(self) -> Option<Stream> {
        match self {
            Self::Http1(leg) if !leg.is_blocked() => Some(leg.into_stream()),
            Self::Http1(_) | Self::Socks(_) | Self::Http2(_) | Self::Http2Call(_) | Self::None => None,
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
            Self::Socks(_) | Self::Http2(_) | Self::Http2Call(_) | Self::None => {
                Err(io::ErrorKind::NotConnected.into())
            }
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
            Self::Socks(_) | Self::Http2(_) | Self::Http2Call(_) | Self::None => Err(TlsError::Closed),
        }
    }

    /// Returns `true` if there is nobody at this end.
    #[inline]
    pub fn is_none(&self) -> bool {
        matches!(self, Self::None)
    }

    /// Returns `true` if this is one of several streams of a connection.
    #[inline]
    pub fn is_stream(&self) -> bool {
        matches!(self, Self::Http2(_) | Self::Http2Call(_))
    }

    /// Returns the socket, for its addresses and options. `None` if it is not this leg's alone.
    pub fn socket(&self) -> Option<&Socket> {
        match self {
            Self::Http1(leg) => Some(leg.socket()),
            Self::Socks(leg) => Some(leg.connection().socket()),
            Self::Http2(_) | Self::Http2Call(_) | Self::None => None,
        }
    }

    /// Returns `true` if an idle connection is still open and silent, as far as this worker knows. Makes no
    /// system call unless there was an event on it.
    pub fn is_usable_idle(&mut self) -> bool {
        match self {
            Self::Http1(leg) => leg.is_usable_idle(),
            Self::Socks(_) | Self::Http2(_) | Self::Http2Call(_) | Self::None => false,
        }
    }

    /// Returns `true` if a client's stream was opened for a WebSocket (RFC 8441). Its head asks for an
    /// upgrade, and a response of success opens the WebSocket.
    pub fn opens_websocket(&self) -> bool {
        match self {
            Self::Http2(leg) => leg.opens_websocket(),
            Self::Http1(_) | Self::Socks(_) | Self::Http2Call(_) | Self::None => false,
        }
    }

    /// Ready with `true` if a request for a WebSocket can be sent to the provider. Waits for the provider's
    /// settings, so set a timeout.
    pub fn poll_opens_websockets(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match self {
            Self::Http1(_) | Self::Socks(_) | Self::Http2(_) | Self::None => Poll::Ready(true),
            Self::Http2Call(leg) => leg.poll_opens_websockets(cx),
        }
    }

    /// Ready once the peer has reset this stream, or its connection is gone. A connection of its own says so
    /// when it is read or written.
    pub fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Http2(leg) => leg.poll_lost(cx),
            Self::Http2Call(leg) => leg.poll_reset(cx),
            Self::Http1(_) | Self::Socks(_) | Self::None => Poll::Pending,
        }
    }

    /// Ready if there may be something to receive, or the connection has ended. Of a client's stream, only if
    /// it has ended.
    #[inline]
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Http1(leg) => leg.poll_readable(cx),
            Self::Socks(leg) => leg.connection_mut().poll_readable(cx),
            Self::Http2(leg) => leg.poll_lost(cx),
            Self::Http2Call(leg) => leg.poll_readable(cx),
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
            Self::Socks(leg) => leg.poll_head(cx, buffer, head, room),
            Self::Http2(leg) => leg.poll_head(buffer, head, room),
            Self::Http2Call(leg) => leg.poll_head(cx, buffer, head, room),
            Self::None => Poll::Pending,
        }
    }

    /// Receives bytes of a body, or what the peer sends ahead, into the free part of `buffer`. They are
    /// framed as the peer has sent them.
    #[inline]
    pub fn poll_receive(&mut self, cx: &mut Context<'_>, buffer: &mut Buffer) -> Poll<Received> {
        match self {
            Self::Http1(leg) => leg.poll_receive(cx, buffer),
            Self::Socks(leg) => leg.connection_mut().poll_receive(cx, buffer),
            Self::Http2(leg) => leg.poll_receive(cx, buffer),
            Self::Http2Call(leg) => leg.poll_receive(cx, buffer),
            Self::None => Poll::Pending,
        }
    }

    /// Notes that what has arrived of a body cannot be received now. Call it where [`poll_receive`] has to
    /// wait for the other leg: the window of a peer of HTTP/2 grows only while it does not.
    ///
    /// [`poll_receive`]: Self::poll_receive
    pub fn gather(&mut self) {
        match self {
            Self::Http2(leg) => leg.gather(),
            Self::Http2Call(leg) => leg.gather(),
            Self::Http1(_) | Self::Socks(_) | Self::None => {}
        }
    }

    /// Begins a message whose body is sent in `framing`.
    #[inline]
    pub fn start(&mut self, framing: Framing) {
        match self {
            Self::Http1(leg) => leg.start(framing),
            Self::Http2(leg) => leg.start(framing),
            // The stream says where the message ends, whatever its framing. A reply of SOCKS has no body.
            Self::Http2Call(_) | Self::Socks(_) | Self::None => {}
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
            // The response to a CONNECT is sent in one piece.
            Self::Socks(_) => Err(Gone),
            Self::Http2(leg) => leg.send(cx, message, buffers, moved_bytes),
            Self::Http2Call(leg) => leg.send(cx, message, buffers, moved_bytes),
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
            Self::Socks(leg) => {
                let sent = leg.poll_send_bytes(cx, slices);
                if leg.is_open()
                    && let Self::Socks(leg) = mem::replace(self, Self::None)
                {
                    *self = Self::Http1(leg.into_connection());
                }
                sent
            }
            Self::Http2(leg) => leg.poll_send_bytes(cx, slices),
            // Messages to providers have heads.
            Self::Http2Call(_) => Poll::Ready(Err(Gone)),
            Self::None => Poll::Ready(Ok(slices.iter().map(|slice| slice.len() as u64).sum())),
        }
    }

    /// Sends the backlog. Ready once the peer has accepted all that was sent.
    #[inline]
    pub fn poll_backlog(&mut self, cx: &mut Context<'_>, moved_bytes: &mut u64) -> Poll<Result<(), Gone>> {
        match self {
            Self::Http1(leg) => leg.poll_backlog(cx, moved_bytes),
            Self::Socks(leg) => leg.connection_mut().poll_backlog(cx, moved_bytes),
            Self::Http2(leg) => leg.poll_backlog(cx, moved_bytes),
            Self::Http2Call(leg) => leg.poll_backlog(cx, moved_bytes),
            Self::None => Poll::Ready(Ok(())),
        }
    }

    /// Returns `true` if the peer has not accepted all that was sent.
    #[inline]
    pub fn is_blocked(&self) -> bool {
        match self {
            Self::Http1(leg) => leg.is_blocked(),
            Self::Socks(leg) => leg.connection().is_blocked(),
            Self::Http2(leg) => leg.is_blocked(),
            Self::Http2Call(leg) => leg.is_blocked(),
            Self::None => false,
        }
    }

    /// Returns `true` if a response on this stream has begun and not ended, so the stream will be reset. Some
    /// clients drop what they receive together with that.
    pub fn is_incomplete_stream(&self) -> bool {
        match self {
            Self::Http2(leg) => leg.is_incomplete(),
            Self::Http1(_) | Self::Socks(_) | Self::Http2Call(_) | Self::None => false,
        }
    }

    /// Closes the sending side.
    pub fn poll_finish(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        match self {
            Self::Http1(leg) => leg.poll_finish(cx),
            Self::Socks(leg) => leg.connection_mut().poll_finish(cx),
            Self::Http2(leg) => leg.poll_finish(cx),
            Self::Http2Call(leg) => leg.poll_finish(cx),
            Self::None => Poll::Ready(Ok(())),
        }
    }

    /// Makes the connection close with a reset, so the peer sees that a message is incomplete. A stream is
    /// always reset if it is dropped before the end of its message.
    pub fn abort(&self) {
        if let Some(socket) = self.socket() {
            socket.reset_on_close();
        }
    }
}
