//! A connection, plain or over TLS, read and written the same way.

use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};

use rustix::net::{RecvFlags, SendFlags, recv, send};
use tokio::io::{AsyncWrite, Interest};
use tokio::net::TcpStream;
use tokio::task::coop::consume_budget;

use crate::upstream::tls::{DetachedTlsStream, TlsStream};

/// A connection to a provider, or from a client.
#[derive(Debug)]
pub(crate) enum Stream {
    Plain(TcpStream),
    Tls(TlsStream),
}

impl Stream {
    /// The socket, for its addresses and options.
    pub fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.tcp(),
        }
    }

    /// Receives into `buffer`; 0 is the peer's orderly end.
    pub fn poll_read(&mut self, cx: &mut Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => poll_read(tcp, cx, buffer),
            Self::Tls(tls) => tls.poll_read(cx, buffer),
        }
    }

    /// Ready when there may be something to receive, an end or an error included.
    pub fn poll_readable(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self {
            // What the reactor has told already costs next to nothing to ask for; only to be woken does.
            Self::Plain(tcp) => match tcp.try_io(Interest::READABLE, || Ok(())) {
                Ok(()) => Poll::Ready(Ok(())),
                Err(_) => tcp.poll_read_ready(cx),
            },
            Self::Tls(tls) => tls.poll_readable(cx),
        }
    }

    /// Sends what it can of `slices` in one go.
    pub fn poll_write(&mut self, cx: &mut Context<'_>, slices: &[IoSlice<'_>]) -> Poll<io::Result<usize>> {
        match self {
            Self::Plain(tcp) => poll_write(tcp, cx, slices),
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
            Self::Plain(tcp) => Pin::new(tcp).poll_shutdown(cx),
            Self::Tls(tls) => tls.poll_shutdown(cx),
        }
    }

    /// Whether an idle connection is still open and silent, as far as is known here. Costs no system call unless something
    /// has happened on it: a provider that closed, or that sends what nobody asked for, makes it useless.
    pub fn is_usable_idle(&mut self) -> bool {
        match self {
            Self::Plain(tcp) => {
                matches!(tcp.try_read(&mut [0; 1]), Err(error) if error.kind() == io::ErrorKind::WouldBlock)
            }
            Self::Tls(tls) => tls.check_idle(),
        }
    }

    /// Lets go of this worker's reactor.
    pub fn into_detached(self) -> io::Result<Detached> {
        Ok(match self {
            Self::Plain(tcp) => Detached::Plain(tcp.into_std()?),
            Self::Tls(tls) => Detached::Tls(tls.into_std()?),
        })
    }
}

/// A connection on its way from one worker to another.
#[derive(Debug)]
pub(crate) enum Detached {
    Plain(std::net::TcpStream),
    Tls(DetachedTlsStream),
}

impl Detached {
    /// Takes it on in the worker that calls.
    pub fn attach(self) -> io::Result<Stream> {
        Ok(match self {
            Self::Plain(tcp) => Stream::Plain(TcpStream::from_std(tcp)?),
            Self::Tls(tls) => Stream::Tls(TlsStream::from_std(tls)?),
        })
    }
}

/// Receives into `buffer`; 0 is the peer's orderly end.
///
/// Straight to the system call: this spares the readiness poll before it, and the two atomic operations with which the C library
/// makes a call a cancellation point.
pub(crate) fn poll_read(
    tcp: &mut TcpStream,
    cx: &mut Context<'_>,
    buffer: &mut [u8],
) -> Poll<io::Result<usize>> {
    // A socket that always has more must not keep the others of this worker waiting.
    ready!(pin!(consume_budget()).poll(cx));
    loop {
        let mut received = None;
        let attempt = tcp.try_io(Interest::READABLE, || {
            let (_, count) = recv(&*tcp, &mut *buffer, RecvFlags::empty())?;
            received = Some(count);
            // A short read tells that there is no more for now, which spares the call that would only say so.
            if 0 < count && count < buffer.len() { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        });
        match (received, attempt) {
            (Some(count), _) => return Poll::Ready(Ok(count)),
            (None, Err(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                ready!(tcp.poll_read_ready(cx))?;
            }
            (None, Err(error)) if error.kind() == io::ErrorKind::Interrupted => {}
            (None, Err(error)) => return Poll::Ready(Err(error)),
            (None, Ok(())) => return Poll::Ready(Ok(0)),
        }
    }
}

/// Sends what it can of `slices` in one go.
pub(crate) fn poll_write(
    tcp: &mut TcpStream,
    cx: &mut Context<'_>,
    slices: &[IoSlice<'_>],
) -> Poll<io::Result<usize>> {
    let [slice] = slices else { return Pin::new(tcp).poll_write_vectored(cx, slices) };
    loop {
        match tcp.try_io(Interest::WRITABLE, || Ok(send(&*tcp, slice, SendFlags::NOSIGNAL)?)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ready!(tcp.poll_write_ready(cx))?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            sent => return Poll::Ready(sent),
        }
    }
}
