//! A client's connection as the provider serves it: over a socket or a simulated network, plain or with TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, DuplexStream, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use crate::network::{Link, Network};
use crate::tls::HTTP2;

/// The beginning of a connection of HTTP/2 (RFC 9113 §3.4). No request of HTTP/1.1 begins so.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n";

/// A client's connection.
#[derive(Debug)]
pub(crate) struct ClientStream {
    /// Bytes that hyper has received but not used. They are read first.
    unread: Bytes,
    wire: Wire,
    /// The simulated network, if there is one.
    link: Option<Link>,
}

/// The bytes as they are, or in TLS.
type Wire = Either<Carrier, Box<TlsStream<Carrier>>>;

/// The carrier of the bytes: a socket, or the end of a simulated network.
type Carrier = Either<TcpStream, DuplexStream>;

impl ClientStream {
    /// Accepts a connection on a socket, with a TLS handshake if configured.
    pub async fn accept(socket: TcpStream, network: Network, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        // A failure only costs latency.
        let _ = socket.set_nodelay(true);
        let (carrier, link) = if network.has_effect() {
            let (end, link) = network.between(socket);
            (Carrier::Right(end), Some(link))
        } else {
            (Carrier::Left(socket), None)
        };
        let wire = match tls {
            Some(acceptor) => Wire::Right(Box::new(acceptor.accept(carrier).await?)),
            None => Wire::Left(carrier),
        };
        Ok(Self { unread: Bytes::new(), wire, link })
    }

    /// Returns `true` if the client speaks HTTP/2: as negotiated by TLS, otherwise by its first bytes, for
    /// which it waits.
    pub async fn speaks_http2(&mut self) -> io::Result<bool> {
        if let Wire::Right(tls) = &self.wire
            && let Some(name) = tls.get_ref().1.alpn_protocol()
        {
            return Ok(name == HTTP2);
        }
        let mut first = Vec::with_capacity(PREFACE.len());
        while PREFACE.starts_with(&first) && first.len() < PREFACE.len() {
            let mut piece = [0; PREFACE.len()];
            let room = PREFACE.len() - first.len();
            match self.read(&mut piece[..room]).await? {
                0 => break,
                count => first.extend_from_slice(&piece[..count]),
            }
        }
        let is_http2 = first == PREFACE;
        self.unread = first.into();
        Ok(is_http2)
    }

    /// Returns unused bytes to the connection, so they are read again.
    #[must_use]
    pub fn with_unread(mut self, bytes: Bytes) -> Self {
        // hyper received these bytes before any that are still unread.
        self.unread = if self.unread.is_empty() { bytes } else { [bytes, self.unread].concat().into() };
        self
    }

    /// Resets the connection when it is dropped.
    pub fn reset(&self) -> io::Result<()> {
        if let Some(link) = &self.link {
            link.reset();
        }
        let carrier = match &self.wire {
            Wire::Left(carrier) => carrier,
            Wire::Right(tls) => tls.get_ref().0,
        };
        match carrier {
            Carrier::Left(socket) => socket.set_zero_linger(),
            Carrier::Right(_) => Ok(()),
        }
    }
}

impl AsyncRead for ClientStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.unread.is_empty() {
            let bytes = this.unread.split_to(this.unread.len().min(buffer.remaining()));
            buffer.put_slice(&bytes);
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.wire).poll_read(context, buffer)
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().wire).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().wire).poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.wire.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().wire).poll_shutdown(context)
    }
}
