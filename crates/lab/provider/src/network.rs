//! Simulates a network between client and provider, with distance and limited bandwidth.
//!
//! A task carries bytes between the socket and the server, and delays each piece until it would have arrived.
//! Without distance and bandwidth limit there is no such task and no cost.

use std::cell::Cell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use axum::body::Bytes;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::clock;

/// Maximum size of one read from a socket, in bytes.
const PIECE_BYTES: usize = 16 << 10;

/// Maximum number of pieces in transit per direction: the amount a sender may send before any of it arrives.
const PIECES_MAX: usize = 256;

/// Size of the buffer between the task and the server, in bytes.
const BUFFER_BYTES: usize = 64 << 10;

/// Pieces per second on a limited direction: frequent enough to look steady.
const PIECES_PER_SECOND: u64 = 100;

/// Properties of the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Network {
    /// Round-trip time.
    pub rtt: Duration,
    /// Bandwidth in bytes per second and direction.
    pub bandwidth: Option<u64>,
}

impl Network {
    /// Returns `true` if the network has any effect.
    pub fn has_effect(self) -> bool {
        !self.rtt.is_zero() || self.bandwidth.is_some()
    }

    /// Inserts the network between a newly accepted socket and the server, and returns the server's end.
    ///
    /// The operating system completes the TCP handshake at once, so the first bytes are delayed by the round
    /// trip that the handshake would have taken.
    pub fn between(self, socket: TcpStream) -> (DuplexStream, Link) {
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        let (end, ended) = oneshot::channel();
        let reset = Rc::new(Cell::new(false));
        tokio::task::spawn_local(self.carry(socket, far, ended, Rc::clone(&reset)));
        (near, Link { reset, _end: end })
    }

    async fn carry(
        self,
        mut socket: TcpStream,
        server: DuplexStream,
        ended: oneshot::Receiver<()>,
        reset: Rc<Cell<bool>>,
    ) {
        let open = Instant::now() + self.rtt;
        let (from_client, to_client) = socket.split();
        let (from_server, to_server) = tokio::io::split(server);
        let up = self.direction(from_client, to_server, open, || false);
        let down = self.direction(from_server, to_client, open, || reset.get());
        let up_until_end = async {
            tokio::select! {
                _ = up => {}
                // The server has dropped its end; anything the client still sends is lost.
                _ = ended => {}
            }
        };
        // An error in one direction shows up for the user of the other.
        let _ = tokio::join!(up_until_end, down);
        if reset.get() {
            // If this fails, the client sees an ordinary close.
            let _ = socket.set_zero_linger();
        }
    }

    /// Carries one direction to its end. Forwards the end, unless `is_reset` returns `true` by then.
    async fn direction(
        self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        open: Instant,
        is_reset: impl Fn() -> bool,
    ) -> io::Result<()> {
        let (sent, mut arriving) = mpsc::channel::<(Instant, Bytes)>(PIECES_MAX);
        let reading = async move {
            let mut free_at = open;
            let mut piece = vec![0; self.piece_bytes()];
            loop {
                let count = from.read(&mut piece).await?;
                free_at = free_at.max(Instant::now()) + self.transmission(count);
                let delivered =
                    sent.send((free_at + self.rtt / 2, Bytes::copy_from_slice(&piece[..count]))).await;
                if count == 0 || delivered.is_err() {
                    return io::Result::Ok(());
                }
            }
        };
        let writing = async move {
            while let Some((due, bytes)) = arriving.recv().await {
                clock::sleep_until(due).await;
                if bytes.is_empty() {
                    return if is_reset() { Ok(()) } else { to.shutdown().await };
                }
                to.write_all(&bytes).await?;
                to.flush().await?;
            }
            Ok(())
        };
        let (read, written) = tokio::join!(reading, writing);
        read.and(written)
    }

    fn piece_bytes(self) -> usize {
        let paced = |bandwidth| usize::try_from(bandwidth / PIECES_PER_SECOND).unwrap_or(PIECE_BYTES);
        self.bandwidth.map_or(PIECE_BYTES, paced).clamp(1, PIECE_BYTES)
    }

    /// Time to transmit `count` bytes.
    fn transmission(self, count: usize) -> Duration {
        let Some(bandwidth) = self.bandwidth else { return Duration::ZERO };
        let nanos = count as u128 * 1_000_000_000 / u128::from(bandwidth.max(1));
        Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// The simulated network of a connection. The server drops it with its end.
#[derive(Debug)]
pub(crate) struct Link {
    reset: Rc<Cell<bool>>,
    /// Dropped with the link, which notifies the task.
    _end: oneshot::Sender<()>,
}

impl Link {
    /// Resets the socket when the written bytes have arrived.
    pub fn reset(&self) {
        self.reset.set(true);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limited_line_carries_small_pieces_in_the_time_they_take() {
        let network = Network { rtt: Duration::ZERO, bandwidth: Some(1_000) };
        assert_eq!((network.piece_bytes(), network.transmission(10)), (10, Duration::from_millis(10)));
        let unlimited = Network { rtt: Duration::ZERO, bandwidth: None };
        assert_eq!((unlimited.piece_bytes(), unlimited.transmission(1 << 20)), (PIECE_BYTES, Duration::ZERO));
        assert!(network.has_effect() && !unlimited.has_effect());
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_arrive_half_a_round_trip_after_the_line_is_open() {
        let network = Network { rtt: Duration::from_millis(20), bandwidth: None };
        let start = Instant::now();
        let (mut client, client_far) = tokio::io::duplex(1 << 10);
        let (server_far, mut server) = tokio::io::duplex(1 << 10);
        let carried = network.direction(client_far, server_far, start + network.rtt, || false);
        let exchange = async {
            let mut byte = [0];
            client.write_all(b"a").await.unwrap();
            server.read_exact(&mut byte).await.unwrap();
            assert_eq!(start.elapsed().as_millis(), 30, "handshake and one way");
            client.write_all(b"b").await.unwrap();
            server.read_exact(&mut byte).await.unwrap();
            assert_eq!(start.elapsed().as_millis(), 40, "one way");
            drop(client);
            assert_eq!(server.read(&mut byte).await.unwrap(), 0);
            assert_eq!(start.elapsed().as_millis(), 50, "the end takes its way too");
        };
        let (carried, ()) = tokio::join!(carried, exchange);
        carried.unwrap();
    }
}
