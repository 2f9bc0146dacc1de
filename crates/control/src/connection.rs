//! Limits on connections: their number, and the time that each may take to send a request or read a response.
//!
//! The limits are enforced below HTTP, where a peer cannot get around them. hyper flushes exactly when it has
//! written everything, so its calls reveal the phase of a connection: it is *idle* from accept or flush until
//! a byte arrives, *receives* from there to the first write, and *writes* from there to the flush. Each phase
//! has one deadline, which a trickle of bytes does not extend.
//!
//! With deadlines alone, 64 silent peers could make a probe wait for seconds, and the purpose of a connection
//! is known only after its head, including the token, has arrived. So a new connection never waits for a
//! slot: if all are taken, another connection is evicted. It belongs to the address with the most
//! connections, and among these it is the one whose last response is the oldest. A peer that sends one
//! request is therefore served at once, regardless of the connections of others, even from the same address:
//! its connection is the youngest.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, Error, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::extract::connect_info::Connected;
use axum::serve::{IncomingStream, Listener};
use egret_config::CONFIG_BYTES_MAX;
use egret_net::descriptors::OpenFiles;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep, sleep};

use crate::identity::Ends;

/// Maximum number of concurrent connections. A scraper, a probe and some pages need a handful.
pub const CONNECTIONS_MAX: usize = 64;

/// Timeout for the first byte of a request, from accept or from the end of the last response.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout for a whole request, from its first byte until the response begins. A well-behaved peer sends a
/// request in one piece.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(1);

/// Timeout for the peer to read a response.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum bytes that a peer may send before it reads a response.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// Timeout for the content of a trusted request, and for the change that it asks for.
pub const CHANGE_TIMEOUT: Duration = Duration::from_secs(30);

/// Maximum bytes that a peer may send before it reads a response, once its request is trusted.
pub const CHANGE_BYTES_MAX: usize = REQUEST_BYTES_MAX + CONFIG_BYTES_MAX;

/// Time that the peer may leave a part of a stream unread: somebody may have paused to read it.
pub const STREAM_TIMEOUT: Duration = Duration::from_mins(10);

/// Grants the request in progress on a connection more bytes and time. The token decides, which is known only
/// above this layer.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    grants: Arc<Grants>,
    /// The addresses of the connection.
    ends: Option<Ends>,
}

#[derive(Debug, Default)]
struct Grants {
    is_trusted: AtomicBool,
    /// `true` while the response is a stream, which is written in parts.
    is_streaming: AtomicBool,
}

impl Trust {
    /// Trusts the peer until its response is written.
    pub fn grant(&self) {
        self.grants.is_trusted.store(true, Relaxed);
    }

    /// Gives the peer the time of a stream, until the result is dropped.
    pub fn stream(&self) -> Streaming {
        self.grants.is_streaming.store(true, Relaxed);
        Streaming(self.clone())
    }

    /// Returns the addresses of the connection.
    pub fn ends(&self) -> Option<Ends> {
        self.ends
    }
}

/// A stream as the response on a connection.
#[derive(Debug)]
pub struct Streaming(Trust);

impl Drop for Streaming {
    fn drop(&mut self) {
        self.0.grants.is_streaming.store(false, Relaxed);
    }
}

impl Connected<IncomingStream<'_, LimitedListener>> for Trust {
    fn connect_info(stream: IncomingStream<'_, LimitedListener>) -> Self {
        let Limited { inner, trust, .. } = stream.io();
        let ends = inner.local_addr().ok().map(|gateway| Ends { gateway, client: *stream.remote_addr() });
        Self { ends, ..trust.clone() }
    }
}

/// A listener with at most [`CONNECTIONS_MAX`] open connections.
#[derive(Debug)]
pub struct LimitedListener {
    inner: TcpListener,
    slots: Arc<Slots>,
}

impl LimitedListener {
    /// Limits the connections that `inner` accepts. They take at most half of the open files that the
    /// gateway's connections leave.
    pub fn new(inner: TcpListener) -> Self {
        let max = CONNECTIONS_MAX.min(OpenFiles::get().reserve() / 2).max(1);
        Self { inner, slots: Slots::new(max) }
    }
}

impl Listener for LimitedListener {
    type Io = Limited<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, peer) = Listener::accept(&mut self.inner).await;
        // A failure only costs latency.
        let _ = stream.set_nodelay(true);
        let slot = Arc::clone(&self.slots).acquire(peer.ip()).await;
        (Limited::new(stream, slot), peer)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

/// The slots of the connections. The lock is held briefly, and only by the control port's thread.
#[derive(Debug)]
struct Slots {
    free: Arc<Semaphore>,
    occupied: Mutex<Occupied>,
}

#[derive(Debug, Default)]
struct Occupied {
    /// The number of the next connection.
    next: u64,
    /// By number; without connections that have been asked to close.
    occupants: HashMap<u64, Occupant>,
}

/// A connection that holds a slot.
#[derive(Debug)]
struct Occupant {
    peer: IpAddr,
    /// Time when the peer read its last response; before that, time of accept.
    since: Instant,
    /// Dropping this asks the connection to close.
    _not_evicted: oneshot::Sender<()>,
}

impl Slots {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(count)), occupied: Mutex::default() })
    }

    /// Takes a slot for a connection from this address. If all are taken, it waits until the evicted
    /// connection has closed, which is as soon as the runtime polls it.
    async fn acquire(self: Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let permit = if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            permit
        } else {
            self.occupied.lock().evict();
            Arc::clone(&self.free).acquire_owned().await.ok()?
        };
        let (not_evicted, evicted) = oneshot::channel();
        let mut occupied = self.occupied.lock();
        let number = occupied.next;
        occupied.next += 1;
        occupied.occupants.insert(
            number,
            Occupant { peer: network(address), since: Instant::now(), _not_evicted: not_evicted },
        );
        drop(occupied);
        Some(ConnectionSlot { slots: self, number, evicted, _permit: permit })
    }
}

impl Occupied {
    /// Evicts a connection of the peer that has the most: the one whose last response is the oldest.
    fn evict(&mut self) {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for occupant in self.occupants.values() {
            *counts.entry(occupant.peer).or_default() += 1;
        }
        let max = counts.values().copied().max().unwrap_or(0);
        let occupants =
            self.occupants.iter().filter(|(_, occupant)| counts.get(&occupant.peer) == Some(&max));
        if let Some(number) =
            occupants.min_by_key(|(number, occupant)| (occupant.since, **number)).map(|(number, _)| *number)
        {
            self.occupants.remove(&number);
        }
    }
}

/// Returns the network that counts as one peer: an IPv4 address, or an IPv6 /64, because a machine is usually
/// assigned a whole /64.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// A connection's slot; released when dropped.
#[derive(Debug)]
struct ConnectionSlot {
    slots: Arc<Slots>,
    number: u64,
    /// Completes when the connection has to close.
    evicted: oneshot::Receiver<()>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    /// Records that the peer has read a response.
    fn renew(&self) {
        if let Some(occupant) = self.slots.occupied.lock().occupants.get_mut(&self.number) {
            occupant.since = Instant::now();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.slots.occupied.lock().occupants.remove(&self.number);
    }
}

/// The action that is expected of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ConnectionPhase {
    /// Begin a request, or close.
    Idle,
    /// Send the rest of the request.
    Receiving,
    /// Read the response.
    Writing,
}

/// A connection with a deadline for each phase.
#[derive(Debug)]
pub struct Limited<S> {
    inner: S,
    phase: ConnectionPhase,
    deadline: Pin<Box<Sleep>>,
    received_bytes: usize,
    trust: Trust,
    /// `true` once the deadline is that of a trusted request.
    is_trusted: bool,
    /// The reason why the connection is over, once it is.
    closed_reason: Option<&'static str>,
    /// `None` once the listener is dropped.
    slot: Option<ConnectionSlot>,
}

impl<S> Limited<S> {
    fn new(inner: S, slot: Option<ConnectionSlot>) -> Self {
        Self {
            inner,
            phase: ConnectionPhase::Idle,
            deadline: Box::pin(sleep(IDLE_TIMEOUT)),
            received_bytes: 0,
            trust: Trust::default(),
            is_trusted: false,
            closed_reason: None,
            slot,
        }
    }

    fn enter(&mut self, phase: ConnectionPhase, timeout: Duration) {
        self.phase = phase;
        self.deadline.as_mut().reset(Instant::now() + timeout);
    }

    /// Moves the deadline if the request has become trusted since the last call.
    fn heed_trust(&mut self) {
        if self.phase == ConnectionPhase::Receiving
            && !self.is_trusted
            && self.trust.grants.is_trusted.load(Relaxed)
        {
            self.is_trusted = true;
            self.deadline.as_mut().reset(Instant::now() + CHANGE_TIMEOUT);
        }
    }

    /// Ends the trust with the response.
    fn end_trust(&mut self) {
        self.trust.grants.is_trusted.store(false, Relaxed);
        self.is_trusted = false;
    }

    /// Fails if the phase has lasted too long, or if the connection was evicted.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        self.heed_trust();
        if self.closed_reason.is_none() {
            if self.deadline.as_mut().poll(context).is_ready() {
                self.closed_reason = Some("the peer is too slow");
            } else if let Some(slot) = &mut self.slot
                && Pin::new(&mut slot.evicted).poll(context).is_ready()
            {
                self.closed_reason = Some("evicted for a new connection");
            }
        }
        self.closed_reason.map_or(Ok(()), |why| Err(Error::new(ErrorKind::TimedOut, why)))
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
        let received = buffer.filled().len() - before;
        self.received_bytes += received;
        let bytes_max = if self.is_trusted { CHANGE_BYTES_MAX } else { REQUEST_BYTES_MAX };
        if self.received_bytes > bytes_max {
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, "the peer sends too much")));
        }
        if received > 0 && self.phase == ConnectionPhase::Idle {
            self.enter(ConnectionPhase::Receiving, HEAD_TIMEOUT);
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
        if self.phase != ConnectionPhase::Writing {
            self.received_bytes = 0;
            let is_streaming = self.trust.grants.is_streaming.load(Relaxed);
            self.enter(ConnectionPhase::Writing, if is_streaming { STREAM_TIMEOUT } else { WRITE_TIMEOUT });
        }
        self.check(context)?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        if self.phase == ConnectionPhase::Writing {
            self.received_bytes = 0;
            self.end_trust();
            self.enter(ConnectionPhase::Idle, IDLE_TIMEOUT);
            if let Some(slot) = &self.slot {
                slot.renew();
            }
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

    /// Returns a limited end and the peer's end, with a buffer of 64 bytes between them.
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
            advance(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Reads until an error. Returns its kind and the time until then.
    async fn until_cut(connection: &mut Limited<DuplexStream>) -> (ErrorKind, Duration) {
        let started = Instant::now();
        let error = loop {
            if let Err(error) = connection.read_u8().await {
                break error;
            }
        };
        (error.kind(), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_trusted_request_gets_the_time_of_a_change() {
        let (mut connection, mut peer) = pair();
        trickle(&mut peer, &mut connection, 1).await.unwrap();
        connection.trust.grant();
        trickle(&mut peer, &mut connection, 20).await.unwrap();
        connection.write_all(b"x").await.unwrap();
        connection.flush().await.unwrap();
        assert!(trickle(&mut peer, &mut connection, 20).await.is_err());
    }

    /// Timers have a resolution of a millisecond.
    fn assert_cut_after(cut: (ErrorKind, Duration), timeout: Duration) {
        let (kind, took) = cut;
        assert_eq!(kind, ErrorKind::TimedOut);
        assert!((timeout..timeout + Duration::from_millis(2)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_sends_nothing_is_given_up() {
        let (mut connection, _peer) = pair();
        assert_cut_after(until_cut(&mut connection).await, IDLE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_request_is_given_up_sooner() {
        let (mut connection, mut peer) = pair();
        advance(IDLE_TIMEOUT / 2).await;
        peer.write_all(b"GET /healthz").await.unwrap();
        assert_cut_after(until_cut(&mut connection).await, HEAD_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_trickle_of_bytes_does_not_extend_the_deadline() {
        let (mut connection, mut peer) = pair();
        assert_eq!(trickle(&mut peer, &mut connection, 100).await.unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[tokio::test(start_paused = true)]
    async fn a_response_that_was_taken_starts_the_deadlines_again() {
        let (mut connection, mut peer) = pair();
        for _ in 0..10 {
            trickle(&mut peer, &mut connection, 4).await.unwrap();
            connection.write_all(b"response").await.unwrap();
            connection.flush().await.unwrap();
            peer.read_exact(&mut [0; 8]).await.unwrap();
            advance(IDLE_TIMEOUT / 2).await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unread_response_is_given_up_while_the_peer_sends() {
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

    /// Connections as a runtime serves them: each closes, and releases its slot, once it is evicted.
    struct Served {
        slots: Arc<Slots>,
        connections: Vec<tokio::task::JoinHandle<()>>,
    }

    impl Served {
        fn new(slots: usize) -> Self {
            Self { slots: Slots::new(slots), connections: Vec::new() }
        }

        /// Accepts a silent connection from this address.
        async fn accept(&mut self, address: &str) -> usize {
            let slot = Arc::clone(&self.slots).acquire(address.parse().unwrap()).await;
            let (ours, peer) = duplex(64);
            let mut connection = Limited::new(ours, slot);
            self.connections.push(tokio::spawn(async move {
                let _peer = peer;
                let _ = connection.read_u8().await;
            }));
            advance(Duration::from_millis(1)).await;
            self.connections.len() - 1
        }

        /// The numbers of the connections still open.
        fn open(&self) -> Vec<usize> {
            let open =
                self.connections.iter().enumerate().filter(|(_, connection)| !connection.is_finished());
            open.map(|(number, _)| number).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_connection_takes_the_place_of_the_oldest() {
        let mut served = Served::new(3);
        for _ in 0..200 {
            served.accept("192.0.2.1").await;
        }
        assert_eq!(served.open(), [197, 198, 199]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_address_with_the_most_connections_loses_one() {
        let mut served = Served::new(4);
        let scraper = served.accept("198.51.100.1").await;
        for _ in 0..50 {
            served.accept("192.0.2.1").await;
        }
        let probe = served.accept("198.51.100.2").await;
        let open = served.open();
        assert!(open.contains(&scraper) && open.contains(&probe), "{open:?}");
        assert_eq!(open.len(), 4);
    }

    #[tokio::test(start_paused = true)]
    async fn a_network_of_ipv6_counts_as_one_peer() {
        let mut served = Served::new(4);
        let scraper = served.accept("2001:db8:0:1::1").await;
        for host in 0..50 {
            served.accept(&format!("2001:db8:0:2::{host:x}")).await;
        }
        assert!(served.open().contains(&scraper));
        assert_eq!(network("::ffff:192.0.2.1".parse().unwrap()), IpAddr::from([192, 0, 2, 1]));
    }

    #[tokio::test(start_paused = true)]
    async fn an_active_connection_is_not_evicted() {
        let slots = Slots::new(2);
        let address = IpAddr::from([192, 0, 2, 1]);
        let mut first = Limited::new(tokio::io::sink(), Arc::clone(&slots).acquire(address).await);
        advance(Duration::from_millis(1)).await;
        let mut second = Arc::clone(&slots).acquire(address).await.unwrap();
        advance(Duration::from_millis(1)).await;
        first.write_all(b"response").await.unwrap();
        first.flush().await.unwrap();
        slots.occupied.lock().evict();
        assert!((&mut second.evicted).await.is_err(), "the second is asked to go");
        assert_eq!(slots.occupied.lock().occupants.len(), 1);
        first.write_all(b"response").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_given_back() {
        let slots = Slots::new(1);
        for _ in 0..3 {
            drop(Arc::clone(&slots).acquire(IpAddr::from([192, 0, 2, 1])).await);
            assert_eq!((slots.free.available_permits(), slots.occupied.lock().occupants.len()), (1, 0));
        }
    }
}
