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

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::time::advance;

    use super::*;

    /// A limited end and the peer's, between which 64 bytes fit.
    fn pair() -> (Limited<DuplexStream>, DuplexStream) {
        let (ours, peer) = duplex(64);
        (Limited::new(ours, None), peer)
    }

    async fn trickle(
        peer: &mut DuplexStream,
        connection: &mut Limited<DuplexStream>,
        bytes: usize,
    ) -> io::Result<()> {
        for _ in 0..bytes {
            peer.write_all(b"x").await?;
            connection.read_u8().await?;
            advance(Duration::from_secs(1)).await;
        }
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_nothing_is_given_up() {
        let (mut connection, _peer) = pair();
        assert_eq!(connection.read_u8().await.unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_of_bytes_does_not_extend_the_deadline() {
        let (mut connection, mut peer) = pair();
        assert_eq!(trickle(&mut peer, &mut connection, 100).await.unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_was_taken_starts_the_deadline_again() {
        let (mut connection, mut peer) = pair();
        for _ in 0..10 {
            trickle(&mut peer, &mut connection, 4).await.unwrap();
            connection.write_all(b"answer").await.unwrap();
            connection.flush().await.unwrap();
            peer.read_exact(&mut [0; 6]).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_is_not_taken_is_given_up_though_the_peer_goes_on_sending() {
        let (mut connection, mut peer) = pair();
        let started = Instant::now();
        let taking = async {
            for _ in 0..30 {
                peer.write_all(b"x").await?;
                sleep(Duration::from_secs(1)).await;
                peer.read_u8().await?;
            }
            io::Result::Ok(())
        };
        tokio::select! {
            written = connection.write_all(&[0; 128]) => assert_eq!(written.unwrap_err().kind(), ErrorKind::TimedOut),
            taken = taking => panic!("taken byte by byte: {taken:?}"),
        }
        assert_eq!(started.elapsed().as_secs(), WRITE_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_without_end_is_given_up() {
        let (mut connection, mut peer) = pair();
        let sending = async { while peer.write_all(&[b'x'; 64]).await.is_ok() {} };
        let reading = async {
            let mut taken = [0; 64];
            loop {
                if let Err(error) = connection.read_exact(&mut taken).await {
                    return error.kind();
                }
            }
        };
        tokio::select! {
            kind = reading => assert_eq!(kind, ErrorKind::InvalidData),
            () = sending => panic!("the connection went away"),
        }
    }
}
