//! A connection, plain or over TLS, with the same interface for both.

use std::io::{self, IoSlice};
use std::task::{Context, Poll};

use crate::event_loop::Socket;
use crate::os::kernel::TcpStream;
use crate::tls::{DetachedTlsStream, TlsStream};

/// A connection to a provider, or from a client.
#[derive(Debug)]
pub enum Stream {
    /// A plain connection.
    Plain(Socket),
    /// A connection over TLS.
    Tls(TlsStream),
}

impl From<Socket> for Stream {
    fn from(socket: Socket) -> Self {
        Self::Plain(socket)
    }
}

impl Stream {
    /// Returns the socket, for its addresses and options.
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Receives into `buffer`. Returns 0 if the peer has closed its sending side.
    #[inline]
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_receive(cx, buffer),
            Self::Tls(tls) => tls.poll_read(cx, buffer),
        }
    }

    /// Ready if there may be something to receive, including EOF or an error.
    #[inline]
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(socket) => socket.poll_readable(cx),
            Self::Tls(tls) => tls.poll_readable(cx),
        }
    }

    /// Sends as much of `slices` as possible in one system call.
    #[inline]
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_send(cx, slices),
            Self::Tls(tls) => tls.poll_write_vectored(cx, slices),
        }
    }

    /// Returns `true` if accepted bytes have not been passed to the socket yet. Only TLS buffers any.
    #[inline]
    pub fn is_holding(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.is_holding(),
        }
    }

    /// Sends the buffered bytes.
    #[inline]
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    /// Closes the sending side.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Poll::Ready(socket.shut()),
            Self::Tls(tls) => tls.poll_shutdown(cx),
        }
    }

    /// Returns `true` if an idle connection is still open and silent, as far as this worker knows. A
    /// connection that the provider has closed, or on which it sent unrequested data, is unusable. Makes no
    /// system call unless there was an event on the connection.
    pub fn is_usable_idle(&mut self) -> bool {
        match self {
            Self::Plain(socket) => socket.try_receive(&mut [0; 1]).is_none(),
            Self::Tls(tls) => tls.check_idle(),
        }
    }

    /// Unregisters the connection from this worker's event loop.
    pub fn into_detached(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Plain(socket) => Detached::Plain(socket.into_std()?),
            Self::Tls(tls) => Detached::Tls(tls.into_std()?),
        })
    }
}

/// A connection that is handed from one worker to another.
#[derive(Debug)]
pub enum Detached {
    /// A TCP connection.
    Plain(TcpStream),
    /// A connection with TLS.
    Tls(DetachedTlsStream),
}

impl Detached {
    /// Registers the connection with the calling worker's event loop.
    pub fn attach(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Plain(tcp) => Stream::Plain(Socket::new(tcp)?),
            Self::Tls(tls) => Stream::Tls(TlsStream::from_std(tls)?),
        })
    }
}
