//! A connection, plain or over TLS, read and written the same way.

use std::io::{self, IoSlice};
use std::net::TcpStream;
use std::task::{Context, Poll};

use crate::event_loop::Socket;
use crate::upstream::tls::{DetachedTlsStream, TlsStream};

/// A connection to a provider, or from a client.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(Socket),
    Tls(TlsStream),
}

impl Stream {
    /// The socket, for its addresses and options.
    pub fn socket(&self) -> &Socket {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(tls) => tls.socket(),
        }
    }

    /// Receives into `buffer`; 0 is the peer's orderly end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_receive(cx, buffer),
            Self::Tls(tls) => tls.poll_read(cx, buffer),
        }
    }

    /// Ready when there may be something to receive, an end or an error included.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match self {
            Self::Plain(socket) => socket.poll_readable(cx),
            Self::Tls(tls) => tls.poll_readable(cx),
        }
    }

    /// Sends what it can of `slices` in one go.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(socket) => socket.poll_send(cx, slices),
            Self::Tls(tls) => tls.poll_write_vectored(cx, slices),
        }
    }

    /// Whether something that was taken is still held back (only TLS holds anything).
    pub fn is_holding(&self) -> bool {
        match self {
            Self::Plain(_) => false,
            Self::Tls(tls) => tls.is_holding(),
        }
    }

    /// Sends what is still held back.
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(_) => Poll::Ready(Ok(())),
            Self::Tls(tls) => tls.poll_flush(cx),
        }
    }

    /// Tells the peer that nothing more is coming.
    pub fn poll_shutdown(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            Self::Plain(socket) => Poll::Ready(socket.shut()),
            Self::Tls(tls) => tls.poll_shutdown(cx),
        }
    }

    /// Whether an idle connection is still open and silent, as far as is known here. Costs no system call unless something
    /// has happened on it: a provider that closed, or that sends what nobody asked for, makes it useless.
    pub fn is_usable_idle(&mut self) -> bool {
        match self {
            Self::Plain(socket) => socket.try_receive(&mut [0; 1]).is_none(),
            Self::Tls(tls) => tls.check_idle(),
        }
    }

    /// Takes it off this worker's event loop.
    pub fn into_detached(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Plain(socket) => Detached::Plain(socket.into_std()?),
            Self::Tls(tls) => Detached::Tls(tls.into_std()?),
        })
    }
}

/// A connection on its way from one worker to another.
#[derive(Debug)]
pub(crate) enum Detached {
    Plain(TcpStream),
    Tls(DetachedTlsStream),
}

impl Detached {
    /// Takes it on in the worker that calls.
    pub fn attach(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Plain(tcp) => Stream::Plain(Socket::new(tcp)?),
            Self::Tls(tls) => Stream::Tls(TlsStream::from_std(tls)?),
        })
    }
}
