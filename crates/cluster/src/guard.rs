//! The stream below the client of Redis. It bounds what a server can send: each reply, and the bytes in a
//! second.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::reply::{ReplyFault, ReplyScanner};

/// Bytes that are read in a second, after a reserve. A server that sends more waits, so it cannot keep the
/// thread busy.
const BYTES_PER_SECOND: u64 = 1 << 20;
const RESERVE_BYTES: u64 = 4 << 20;
/// Time after which a stream whose reserve is used up is read again.
const PAUSE: Duration = Duration::from_millis(50);

/// A stream to a server.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// The state of a stream that its users share.
#[derive(Debug, Default)]
pub(super) struct StreamState {
    /// Number of subscriptions that the server has not confirmed.
    subscriptions: AtomicU32,
    refusal: OnceLock<ReplyFault>,
}

impl StreamState {
    /// Notes that a subscription is asked for.
    pub(super) fn subscribes(&self) {
        self.subscriptions.fetch_add(1, Ordering::Relaxed);
    }

    fn is_asked(&self) -> bool {
        let less = |count: u32| count.checked_sub(1);
        self.subscriptions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// The reason why no more is read.
    pub(super) fn refusal(&self) -> Option<ReplyFault> {
        self.refusal.get().copied()
    }
}

/// A stream whose server may be hostile.
pub(super) struct GuardedStream {
    stream: Box<dyn Stream>,
    scanner: ReplyScanner,
    pace: Pace,
    state: Arc<StreamState>,
}

impl GuardedStream {
    /// Guards a stream.
    pub(super) fn new(stream: Box<dyn Stream>, state: Arc<StreamState>) -> Self {
        Self { stream, scanner: ReplyScanner::new(), pace: Pace::new(), state }
    }
}

impl AsyncRead for GuardedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, scanner, pace, state } = self.get_mut();
        if let Some(refusal) = state.refusal() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal)));
        }
        ready!(pace.poll_ready(context));
        let before = buffer.filled().len();
        ready!(Pin::new(stream).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        pace.spend(read.len());
        if let Err(refusal) = scanner.read(read, || state.is_asked()) {
            let refusal = *state.refusal.get_or_init(|| refusal);
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, refusal)));
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GuardedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

/// Bounds the bytes in a second.
struct Pace {
    left: u64,
    counted: Instant,
    pause: Option<Pin<Box<Sleep>>>,
}

impl Pace {
    fn new() -> Self {
        Self { left: RESERVE_BYTES, counted: Instant::now(), pause: None }
    }

    fn spend(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Waits until bytes may be read.
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.left == 0 {
            let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(PAUSE)));
            ready!(pause.as_mut().poll(context));
            self.pause = None;
            self.refill();
        }
        Poll::Ready(())
    }

    /// Adds the bytes of the time since they were counted last.
    fn refill(&mut self) {
        let now = Instant::now();
        let passed_ms = u64::try_from(now.duration_since(self.counted).as_millis()).unwrap_or(u64::MAX);
        self.left = passed_ms.saturating_mul(BYTES_PER_SECOND / 1_000).min(RESERVE_BYTES);
        self.counted = now;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    fn guarded(bytes: usize) -> (GuardedStream, tokio::io::DuplexStream, Arc<StreamState>) {
        let (near, far) = duplex(bytes);
        let state = Arc::<StreamState>::default();
        (GuardedStream::new(Box::new(near), Arc::clone(&state)), far, state)
    }

    #[tokio::test]
    async fn a_refused_reply_ends_the_stream_for_good() {
        let (mut stream, mut server, state) = guarded(1_024);
        server.write_all(b"+OK\r\n$2000000000\r\n").await.unwrap();
        assert_eq!(stream.read(&mut [0; 100]).await.unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert_eq!(state.refusal(), Some(ReplyFault::Long));
        server.write_all(b"+OK\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 100]).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_read_at_the_bounded_rate() {
        let (mut stream, mut server, _) = guarded(1 << 16);
        tokio::spawn(async move { while server.write_all(b"+OK\r\n").await.is_ok() {} });
        let began = Instant::now();
        let (mut bytes, mut buffer) = (0, vec![0; 4_096]);
        while bytes < 6 << 20 {
            bytes += u64::try_from(stream.read(&mut buffer).await.unwrap()).unwrap();
        }
        let seconds = began.elapsed().as_secs_f64();
        assert!((1.9..2.3).contains(&seconds), "{bytes} bytes in {seconds} s");
    }
}
