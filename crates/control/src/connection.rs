//! Connections that cannot be held: a bound on their number, and on the time that each takes to send a request or take an answer.
//!
//! The bounds are kept below HTTP, where nothing that a peer does can get around them. hyper flushes exactly when all that it
//! has to say is written, so the phases of a connection can be told apart from its calls: it *reads* from accept or flush until
//! the first write, and *writes* from there to the flush. Each phase has one deadline, which a trickle of bytes does not extend.

use std::future::Future;
use std::io::{self, Error, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections served at once; more wait in the system's queue. A scraper, a probe and some pages need a handful.
pub const CONNECTIONS_MAX: usize = 64;

/// For a whole request, from accept or from the end of the last answer. Also how long an idle connection is kept.
pub const READ_TIMEOUT: Duration = Duration::from_secs(5);

/// For an answer to be taken.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that a peer may send before it takes an answer.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A listener that accepts only while fewer than [`CONNECTIONS_MAX`] connections are open.
#[derive(Debug)]
pub struct LimitedListener {
    inner: TcpListener,
    permits: Arc<Semaphore>,
}

impl LimitedListener {
    /// Bounds what `inner` accepts.
    pub fn new(inner: TcpListener) -> Self {
        Self { inner, permits: Arc::new(Semaphore::new(CONNECTIONS_MAX)) }
    }
}

impl Listener for LimitedListener {
    type Io = Limited<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let permit = Arc::clone(&self.permits).acquire_owned().await.ok();
        let (stream, peer) = Listener::accept(&mut self.inner).await;
        // Costs latency only where it fails.
        let _ = stream.set_nodelay(true);
        (Limited::new(stream, permit), peer)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

/// What the peer is expected to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Send a request, or go.
    Reading,
    /// Take the answer.
    Writing,
}

/// A connection with a deadline for each phase.
#[derive(Debug)]
pub struct Limited<S> {
    inner: S,
    phase: Phase,
    deadline: Pin<Box<Sleep>>,
    received_bytes: usize,
    /// Given back when the connection is dropped.
    _permit: Option<OwnedSemaphorePermit>,
}

impl<S> Limited<S> {
    fn new(inner: S, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            inner,
            phase: Phase::Reading,
            deadline: Box::pin(sleep(READ_TIMEOUT)),
            received_bytes: 0,
            _permit: permit,
        }
    }

    fn enter(&mut self, phase: Phase, timeout: Duration) {
        self.phase = phase;
        self.received_bytes = 0;
        self.deadline.as_mut().reset(Instant::now() + timeout);
    }

    /// Fails once the phase has lasted too long.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        match self.deadline.as_mut().poll(context) {
            Poll::Ready(()) => Err(Error::new(ErrorKind::TimedOut, "the peer is too slow")),
            Poll::Pending => Ok(()),
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Limited<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.check(context)?;
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        self.received_bytes += buffer.filled().len() - before;
        if self.received_bytes > REQUEST_BYTES_MAX {
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, "the peer sends too much")));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Limited<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.phase == Phase::Reading {
            self.enter(Phase::Writing, WRITE_TIMEOUT);
        }
        self.check(context)?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        if self.phase == Phase::Writing {
            self.enter(Phase::Reading, READ_TIMEOUT);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
