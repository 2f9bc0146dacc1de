//! A client's connection as the provider serves it: over a socket or a simulated network, plain or with TLS.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

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
}

#[derive(Debug)]
enum Wire {
    Plain(Carrier),
    Tls(Box<TlsStream<Carrier>>),
}

/// The carrier of the bytes.
#[derive(Debug)]
enum Carrier {
    Socket(TcpStream),
    Simulated(Link),
}

impl ClientStream {
    /// Accepts a connection on a socket, with a TLS handshake if configured.
    pub async fn accept(socket: TcpStream, network: Network, tls: Option<TlsAcceptor>) -> io::Result<Self> {
        // A failure only costs latency.
        let _ = socket.set_nodelay(true);
        let line = if network.has_effect() {
            Carrier::Simulated(network.between(socket))
        } else {
            Carrier::Socket(socket)
        };
        let wire = match tls {
            Some(acceptor) => Wire::Tls(Box::new(acceptor.accept(line).await?)),
            None => Wire::Plain(line),
        };
        Ok(Self { unread: Bytes::new(), wire })
    }

    /// Returns `true` if the client speaks HTTP/2: as negotiated by TLS, otherwise by its first bytes, for
    /// which it waits.
    pub async fn speaks_http2(&mut self) -> io::Result<bool> {
        if let Wire::Tls(tls) = &self.wire
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
        let line = match &self.wire {
            Wire::Plain(line) => line,
            Wire::Tls(tls) => tls.get_ref().0,
        };
        match line {
            Carrier::Socket(socket) => socket.set_zero_linger(),
            Carrier::Simulated(link) => {
                link.reset();
                Ok(())
            }
        }
    }
}

/// Delegates a call to the current variant.
macro_rules! each {
    ($value:expr, $($variant:path)|+, $inner:ident => $call:expr) => {
        match $value {
            $($variant($inner) => {
                let $inner = Pin::new($inner);
                $call
            })+
        }
    };
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
        each!(&mut this.wire, Wire::Plain | Wire::Tls, wire => wire.poll_read(context, buffer))
    }
}

impl AsyncWrite for ClientStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(&mut self.get_mut().wire, Wire::Plain | Wire::Tls, wire => wire.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(&mut self.get_mut().wire, Wire::Plain | Wire::Tls, wire => wire.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        match &self.wire {
            Wire::Plain(line) => line.is_write_vectored(),
            Wire::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut self.get_mut().wire, Wire::Plain | Wire::Tls, wire => wire.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(&mut self.get_mut().wire, Wire::Plain | Wire::Tls, wire => wire.poll_shutdown(context))
    }
}

impl AsyncRead for Carrier {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        each!(self.get_mut(), Carrier::Socket | Carrier::Simulated, line => line.poll_read(context, buffer))
    }
}

impl AsyncWrite for Carrier {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), Carrier::Socket | Carrier::Simulated, line => line.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each!(self.get_mut(), Carrier::Socket | Carrier::Simulated, line => line.poll_write_vectored(context, pieces))
    }

    fn is_write_vectored(&self) -> bool {
        matches!(self, Self::Socket(_))
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), Carrier::Socket | Carrier::Simulated, line => line.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        each!(self.get_mut(), Carrier::Socket | Carrier::Simulated, line => line.poll_shutdown(context))
    }
}
