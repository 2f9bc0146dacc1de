//! Connections that nobody can hold: a bound on their number, and on the time that each takes to send a
//! request or to take a response.
//!
//! The bounds are kept below HTTP, where nothing that a peer does can get around them. hyper flushes exactly
//! when all that it has to say is written, so the phases of a connection can be told apart from its calls: it
//! is *idle* from accept or flush until a byte comes, *receives* from there to the first write, and *writes*
//! from there to the flush. Each phase has one deadline, which a trickle of bytes does not extend.
//!
//! A deadline alone would let 64 silent peers keep a probe waiting for seconds, and what a connection is for
//! is known only once its head is there, token and all. So no new connection waits for a place: where all are
//! taken, another connection loses its own. It is one of the address that holds the most, and of these the
//! one whose last response is the longest ago. A peer with one request to send is therefore served at once,
//! whatever others hold, and from the same address too: its connection is the youngest.

use std::collections::HashMap;
use std::future::Future;
use std::io::{self, Error, ErrorKind};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::{Instant, Sleep, sleep};

/// Connections served at once. A scraper, a probe and some pages need a handful.
pub const CONNECTIONS_MAX: usize = 64;

/// For the first byte of a request, from accept or from the end of the last response.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// For a whole request, from its first byte until the response begins. A fair peer sends a request in one
/// piece.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(1);

/// For a response to be taken.
pub const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that a peer may send before it takes a response.
pub const REQUEST_BYTES_MAX: usize = 64 << 10;

/// A listener that has at most [`CONNECTIONS_MAX`] connections open.
#[derive(Debug)]
pub struct LimitedListener {
    inner: TcpListener,
    places: Arc<Places>,
}

impl LimitedListener {
    /// Bounds what `inner` accepts.
    pub fn new(inner: TcpListener) -> Self {
        Self { inner, places: Places::new(CONNECTIONS_MAX) }
    }
}

impl Listener for LimitedListener {
    type Io = Limited<TcpStream>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, peer) = Listener::accept(&mut self.inner).await;
        // Costs latency only where it fails.
        let _ = stream.set_nodelay(true);
        let place = Arc::clone(&self.places).take(peer.ip()).await;
        (Limited::new(stream, place), peer)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.inner.local_addr()
    }
}

/// The places that connections have. Its lock is held for one look at most, by the control port's thread
/// alone.
#[derive(Debug)]
struct Places {
    free: Arc<Semaphore>,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    /// The number of the next connection.
    next: u64,
    /// By number; without those that have been asked to go.
    holders: HashMap<u64, Holder>,
}

/// A connection that has a place.
#[derive(Debug)]
struct Holder {
    peer: IpAddr,
    /// When its last response was taken; before that, when it was accepted.
    since: Instant,
    /// Dropping this asks it to go.
    _stay: oneshot::Sender<()>,
}

impl Places {
    fn new(count: usize) -> Arc<Self> {
        Arc::new(Self { free: Arc::new(Semaphore::new(count)), taken: Mutex::default() })
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place for a connection from that address. Where all are taken it is there as soon as the runtime has
    /// turned to the connection that has to go.
    async fn take(self: Arc<Self>, address: IpAddr) -> Option<ConnectionSlot> {
        let permit = if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
            permit
        } else {
            self.taken().evict();
            Arc::clone(&self.free).acquire_owned().await.ok()?
        };
        let (stay, evicted) = oneshot::channel();
        let mut taken = self.taken();
        let number = taken.next;
        taken.next += 1;
        taken.holders.insert(number, Holder { peer: network(address), since: Instant::now(), _stay: stay });
        drop(taken);
        Some(ConnectionSlot { places: self, number, evicted, _permit: permit })
    }
}

impl Taken {
    /// Asks the connection to go whose last response is the longest ago, among those of the peer that has the
    /// most.
    fn evict(&mut self) {
        let mut counts = HashMap::<IpAddr, usize>::new();
        for holder in self.holders.values() {
            *counts.entry(holder.peer).or_default() += 1;
        }
        let most = counts.values().copied().max().unwrap_or(0);
        let holders = self.holders.iter().filter(|(_, holder)| counts.get(&holder.peer) == Some(&most));
        if let Some(number) =
            holders.min_by_key(|(number, holder)| (holder.since, **number)).map(|(number, _)| *number)
        {
            self.holders.remove(&number);
        }
    }
}

/// What counts as one peer: an address, and of IPv6 a network of 64 bits, since that is what one machine is
/// given.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// A connection's place; given back when dropped.
#[derive(Debug)]
struct ConnectionSlot {
    places: Arc<Places>,
    number: u64,
    /// Ends once the connection is to go.
    evicted: oneshot::Receiver<()>,
    _permit: OwnedSemaphorePermit,
}

impl ConnectionSlot {
    /// A response was taken.
    fn renew(&self) {
        if let Some(holder) = self.places.taken().holders.get_mut(&self.number) {
            holder.since = Instant::now();
        }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        self.places.taken().holders.remove(&self.number);
    }
}

/// What the peer is expected to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Begin a request, or go.
    Idle,
    /// Send the rest of it.
    Receiving,
    /// Take the response.
    Writing,
}

/// A connection with a deadline for each phase.
#[derive(Debug)]
pub struct Limited<S> {
    inner: S,
    phase: Phase,
    deadline: Pin<Box<Sleep>>,
    received_bytes: usize,
    /// Why the connection is over, once it is.
    over: Option<&'static str>,
    /// None once the listener is gone.
    place: Option<ConnectionSlot>,
}

impl<S> Limited<S> {
    fn new(inner: S, place: Option<ConnectionSlot>) -> Self {
        Self {
            inner,
            phase: Phase::Idle,
            deadline: Box::pin(sleep(IDLE_TIMEOUT)),
            received_bytes: 0,
            over: None,
            place,
        }
    }

    fn enter(&mut self, phase: Phase, timeout: Duration) {
        self.phase = phase;
        self.deadline.as_mut().reset(Instant::now() + timeout);
    }

    /// Fails once the phase has lasted too long, or the place is needed.
    fn check(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.over.is_none() {
            if self.deadline.as_mut().poll(context).is_ready() {
                self.over = Some("the peer is too slow");
            } else if let Some(place) = &mut self.place
                && Pin::new(&mut place.evicted).poll(context).is_ready()
            {
                self.over = Some("another peer needs the place");
            }
        }
        self.over.map_or(Ok(()), |why| Err(Error::new(ErrorKind::TimedOut, why)))
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
        if self.received_bytes > REQUEST_BYTES_MAX {
            return Poll::Ready(Err(Error::new(ErrorKind::InvalidData, "the peer sends too much")));
        }
        if received > 0 && self.phase == Phase::Idle {
            self.enter(Phase::Receiving, HEAD_TIMEOUT);
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
        if self.phase != Phase::Writing {
            self.received_bytes = 0;
            self.enter(Phase::Writing, WRITE_TIMEOUT);
        }
        self.check(context)?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.inner).poll_flush(context))?;
        if self.phase == Phase::Writing {
            self.received_bytes = 0;
            self.enter(Phase::Idle, IDLE_TIMEOUT);
            if let Some(place) = &self.place {
                place.renew();
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
            advance(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Reads until that fails; how long it took.
    async fn until_cut(connection: &mut Limited<DuplexStream>) -> (ErrorKind, Duration) {
        let started = Instant::now();
        let error = loop {
            if let Err(error) = connection.read_u8().await {
                break error;
            }
        };
        (error.kind(), started.elapsed())
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
    async fn a_response_that_is_not_taken_is_given_up_though_the_peer_goes_on_sending() {
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

    /// Connections as a runtime serves them: each ends, and gives its place back, once it is asked to go.
    struct Served {
        places: Arc<Places>,
        connections: Vec<tokio::task::JoinHandle<()>>,
    }

    impl Served {
        fn new(places: usize) -> Self {
            Self { places: Places::new(places), connections: Vec::new() }
        }

        /// A connection from there that is silent.
        async fn accept(&mut self, address: &str) -> usize {
            let place = Arc::clone(&self.places).take(address.parse().unwrap()).await;
            let (ours, peer) = duplex(64);
            let mut connection = Limited::new(ours, place);
            self.connections.push(tokio::spawn(async move {
                let _peer = peer;
                let _ = connection.read_u8().await;
            }));
            advance(Duration::from_millis(1)).await;
            self.connections.len() - 1
        }

        /// The numbers of those that are still served.
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
    async fn who_has_just_taken_a_response_keeps_the_place() {
        let places = Places::new(2);
        let address = IpAddr::from([192, 0, 2, 1]);
        let mut first = Limited::new(tokio::io::sink(), Arc::clone(&places).take(address).await);
        advance(Duration::from_millis(1)).await;
        let mut second = Arc::clone(&places).take(address).await.unwrap();
        advance(Duration::from_millis(1)).await;
        first.write_all(b"response").await.unwrap();
        first.flush().await.unwrap();
        places.taken().evict();
        assert!((&mut second.evicted).await.is_err(), "the second is asked to go");
        assert_eq!(places.taken().holders.len(), 1);
        first.write_all(b"response").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_given_back() {
        let places = Places::new(1);
        for _ in 0..3 {
            drop(Arc::clone(&places).take(IpAddr::from([192, 0, 2, 1])).await);
            assert_eq!((places.free.available_permits(), places.taken().holders.len()), (1, 0));
        }
    }
}
