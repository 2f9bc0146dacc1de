//! A client: its connection, and its end of an exchange.

use std::cell::{Cell, OnceCell, RefCell};
use std::future::poll_fn;
use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll};

use egret_clients::Proven;
use egret_clock::Moment;
use egret_diagnosis::Pin;
use egret_leg::Leg;
use egret_message::authority::Authority;
use egret_message::{ClientAddress, ListenAddress, default_port};
use egret_net::deadline::Timer;
use egret_net::event_loop::now;
use egret_net::pace::{Patience, Verdict, hidden_bytes};
use egret_plan::{ListenerPlan, Plan};
use smallvec::{SmallVec, smallvec};
use tracing::debug;

use crate::worker::Worker;

/// Maximum number of slices passed to one vectored write.
pub(crate) const SLICES_MAX: usize = 16;

/// Maximum number of bytes of a stream that its client may have read without a report: those that the kernel
/// holds for the connection, by its usual maximum.
const STREAM_HIDDEN_BYTES: u64 = 4 << 20;

/// The fate of a client's connection after an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Wait for the next request.
    Persist,
    /// Close the connection.
    Close,
    /// Close the connection after the client had time to read the response.
    Linger,
    /// The connection goes on in HTTP/2. What the client has sent so far is in the input.
    Http2,
}

/// A client's connection, on which requests arrive. Of an internal call it has no socket.
#[derive(Debug)]
pub(crate) struct ClientConnection {
    pub worker: Rc<Worker>,
    /// The address of the listener that accepted it.
    pub listener: ListenAddress,
    /// The place of the listener in the plan of the last request.
    listener_at: Cell<usize>,
    /// The bounds of a recorded request that is sent again. `None` for every client outside of the process.
    pub pin: Option<Box<Pin>>,
    /// The client's address, read from the kernel on first use.
    peer: OnceCell<Option<ClientAddress>>,
    /// The address that the client connected to, if the connection has streams, which cannot ask the kernel.
    local: OnceCell<Option<SocketAddr>>,
    inside: OnceCell<Box<Inside>>,
    redirected: Cell<Option<Redirected>>,
    proven: RefCell<Option<Arc<Proven>>>,
    /// Number of requests received.
    requests: Cell<u32>,
    _slot: ConnectionSlot,
}

/// The client's end of an exchange. On an HTTP/1.1 connection it serves all of them, one after the other.
#[derive(Debug)]
pub(crate) struct ClientLeg {
    pub leg: Leg,
    pub timer: Timer,
    /// Arrival of the first byte of the last head that did not arrive in one piece.
    pub head_since: Moment,
    /// End of the last exchange, or of the accept if there was none.
    pub last_active: Moment,
    /// The time at which the client closed the connection or its sending side; `NEVER` while it is open, as
    /// far as is known.
    pub closed: Moment,
    /// Released last, when the socket is closed.
    pub connection: Rc<ClientConnection>,
}

/// A tunnel that the gateway has answered in the destination's place. All requests inside are for one
/// authority.
#[derive(Debug)]
pub(crate) struct Inside {
    /// The authority that the client named in its CONNECT.
    pub authority: Authority,
    /// The same as text, in normal form.
    pub text: Box<[u8]>,
    /// `true` if the client speaks TLS inside.
    pub tls: bool,
    /// `true` once a request has arrived.
    pub is_used: Cell<bool>,
}

impl Inside {
    /// Creates the inside of a tunnel to `authority`.
    pub fn new(authority: Authority, tls: bool) -> Self {
        let text = authority.to_string().into_bytes().into();
        Self { authority, text, tls, is_used: Cell::new(false) }
    }

    /// Returns `true` if `host`, the value of a `Host` field, names the tunnel's own authority.
    pub fn is_named_by(&self, host: &[u8]) -> bool {
        let named = || Authority::parse(host, Some(default_port(self.tls)));
        *host == *self.text || named().is_ok_and(|named| named == self.authority)
    }
}

/// The beginning of a redirected connection. Its client thinks that it is talking to the provider itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Redirected {
    /// Bytes for a tunnel. The gateway has put a CONNECT before them, whose response the client must not see.
    Tunnel,
    /// Requests, for the authority that the first of them names, else for this address.
    Requests(SocketAddr),
}

/// The slot of one open client connection. The acceptor has counted it for this worker.
#[derive(Debug)]
pub(crate) struct ConnectionSlot {
    worker: Rc<Worker>,
    is_counted: bool,
}

impl ConnectionSlot {
    /// Creates the slot of an accepted connection.
    pub fn new(worker: Rc<Worker>) -> Self {
        worker.counters().accepted.add(1);
        worker.counters().open.add(1);
        Self { worker, is_counted: true }
    }

    /// Creates a slot that is not counted, for internal requests.
    pub fn uncounted(worker: Rc<Worker>) -> Self {
        Self { worker, is_counted: false }
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let Self { worker, is_counted } = self;
        if !*is_counted {
            return;
        }
        worker.counters().open.sub(1);
        worker.shared.connections[worker.number].fetch_sub(1, Relaxed);
        worker.has_closed();
    }
}

impl ClientConnection {
    /// Creates a connection that `listener` accepted. The client may have proven who it is, or be one that
    /// sends a recorded request again.
    pub fn new(
        slot: ConnectionSlot,
        listener: ListenAddress,
        proven: Option<Arc<Proven>>,
        pin: Option<Box<Pin>>,
    ) -> Self {
        Self {
            worker: Rc::clone(&slot.worker),
            listener,
            listener_at: Cell::new(0),
            // A request that is sent again comes from this process.
            peer: if pin.is_some() { OnceCell::from(None) } else { OnceCell::new() },
            pin,
            local: OnceCell::new(),
            inside: OnceCell::new(),
            redirected: Cell::new(None),
            proven: RefCell::new(proven),
            requests: Cell::new(0),
            _slot: slot,
        }
    }

    /// Creates the connection of an internal call. It shows the address of the client that has caused it, if
    /// there is one.
    pub fn internal(worker: &Rc<Worker>, listener: ListenAddress, peer: Option<ClientAddress>) -> Self {
        let slot = ConnectionSlot::uncounted(Rc::clone(worker));
        Self { peer: OnceCell::from(peer), ..Self::new(slot, listener, None, None) }
    }

    /// Returns the listener that accepted it, if `plan` still has it. Plans rarely move one to another place.
    #[inline]
    pub fn listener_in<'p>(&self, plan: &'p Plan) -> Option<&'p ListenerPlan> {
        let known = plan.listeners.get(self.listener_at.get());
        known.filter(|known| known.address == self.listener).or_else(|| self.find_listener(plan))
    }

    #[cold]
    fn find_listener<'p>(&self, plan: &'p Plan) -> Option<&'p ListenerPlan> {
        let at = plan.listeners.iter().position(|listener| listener.address == self.listener)?;
        self.listener_at.set(at);
        plan.listeners.get(at)
    }

    /// Returns the tunnel whose inside the gateway serves itself. `None` on an ordinary connection.
    pub fn inside(&self) -> Option<&Inside> {
        self.inside.get().map(|inside| &**inside)
    }

    /// Notes that all further requests are sent inside a tunnel.
    pub fn enter(&self, inside: Inside) {
        // There is no tunnel inside a tunnel.
        let entered = self.inside.set(Box::new(inside));
        debug_assert!(entered.is_ok());
        self.redirected.set(None);
    }

    /// Returns the beginning of a connection that was redirected here, until its authority is known.
    pub fn redirected(&self) -> Option<Redirected> {
        self.redirected.get()
    }

    /// Notes the beginning of a redirected connection.
    pub fn redirect(&self, redirected: Redirected) {
        self.redirected.set(Some(redirected));
    }

    /// Returns `true` if the request in hand is a CONNECT that the client has not sent.
    pub fn has_sent_no_connect(&self) -> bool {
        self.inside().is_none() && self.redirected() == Some(Redirected::Tunnel)
    }

    /// Returns the client that the connection itself proves: by its certificate, or by the token of its
    /// CONNECT.
    pub fn proven(&self) -> Option<Arc<Proven>> {
        self.proven.borrow().clone()
    }

    /// Notes the client that a CONNECT has proven.
    pub fn set_proven(&self, proven: Option<Arc<Proven>>) {
        *self.proven.borrow_mut() = proven;
    }

    /// Returns the client's address, if it was noted.
    pub fn noted_peer(&self) -> Option<ClientAddress> {
        self.peer.get().copied().flatten()
    }

    /// Counts a request.
    pub fn count_request(&self) {
        self.requests.set(self.requests.get().saturating_add(1));
    }

    /// Returns `true` if no request has been received.
    pub fn is_unused(&self) -> bool {
        self.requests.get() == 0
    }

    /// Returns `true` if more requests may follow, of at most `max`; 0 means that their number is unlimited.
    pub fn may_go_on(&self, max: u32) -> bool {
        max == 0 || self.requests.get() < max
    }
}

impl ClientLeg {
    /// Creates the end of a connection without requests so far.
    pub fn new(connection: ClientConnection, leg: Leg) -> Self {
        Self::of(Rc::new(connection), leg)
    }

    /// Creates the client's end of one of the exchanges that share `connection`.
    pub fn of(connection: Rc<ClientConnection>, leg: Leg) -> Self {
        let timer = connection.worker.timers.timer();
        let now = Moment::now();
        Self { leg, timer, head_since: now, last_active: now, closed: Moment::NEVER, connection }
    }

    /// Returns the address that the client connected to.
    pub fn local_address(&self) -> Option<SocketAddr> {
        match self.connection.local.get() {
            Some(noted) => *noted,
            None => self.leg.socket()?.local_addr().ok(),
        }
    }

    /// Notes both addresses for the streams of the connection, which have no socket of their own.
    pub fn note_addresses(&self) {
        self.peer_address();
        self.connection.local.get_or_init(|| self.leg.socket()?.local_addr().ok());
    }

    /// Returns the client's address.
    pub fn peer_address(&self) -> Option<ClientAddress> {
        *self.connection.peer.get_or_init(|| self.leg.socket()?.peer().ok())
    }

    /// Returns the client's IP address. The client of a Unix socket has none.
    pub fn peer_ip(&self) -> Option<IpAddr> {
        self.peer_address()?.ip()
    }

    /// Returns the arrival of the first byte of the request that `begun` belongs to.
    pub fn request_since(&self, begun: Moment) -> Moment {
        // A time before the last exchange's end belongs to an earlier request.
        if self.head_since > self.last_active { self.head_since } else { begun }
    }

    /// Returns `true` if the client is known to have closed the connection or its sending side.
    pub fn has_closed(&self) -> bool {
        self.closed != Moment::NEVER
    }

    /// Notes that the client has closed the connection, unless that is known.
    pub fn note_closed(&mut self, now: Moment) {
        self.closed = self.closed.min(now);
    }

    /// Aborts the connection of a client that reads too slowly. An orderly close would let it go on for as
    /// long as before, because the kernel still holds data for it.
    pub fn give_up(&self) {
        debug!("a client reads its response too slowly (`limits.body_rate`)");
        self.leg.abort();
    }

    /// Returns the maximum number of bytes that the client may have read without a report.
    pub fn hidden_bytes(&self) -> u64 {
        let of_stream = || if self.leg.is_stream() { STREAM_HIDDEN_BYTES } else { 0 };
        self.leg.socket().map_or_else(of_stream, hidden_bytes)
    }

    /// Returns `true` if the client has read nothing, or too little, for too long. Bytes wait for it if
    /// `waits`; otherwise more are still to come. If it returns `false`, the task is woken for the next
    /// check.
    pub fn is_lost(&self, patience: &mut Patience, cx: &Context<'_>, waits: bool) -> bool {
        let rate = self.connection.worker.view().plan.limits.body_rate.bytes();
        let verdict = patience.judge(&self.timer, cx, waits, rate, || self.hidden_bytes());
        if verdict == Verdict::TooSlow {
            self.give_up();
        }
        verdict != Verdict::KeepsUp
    }

    /// Sends all of `bytes`. Returns `false` if the client is gone, accepts nothing for too long
    /// (`timeouts.idle`) or reads too slowly (`limits.body_rate`).
    pub async fn send_all(&mut self, bytes: &[u8]) -> bool {
        let rest = |sent: u64| {
            let sent = usize::try_from(sent).unwrap_or(usize::MAX);
            smallvec![IoSlice::new(bytes.get(sent..).unwrap_or_default())]
        };
        let (is_sent, _) = self.send_message(bytes.len() as u64, rest).await;
        if is_sent {
            self.connection.worker.counters().sent_bytes.add(bytes.len() as u64);
        }
        is_sent
    }

    /// Sends a message in memory, of `total` bytes. `rest` returns those after the first ones, as many as one
    /// vectored write takes. Returns `true` if the client has received all of them, and the number sent.
    pub async fn send_message<'b>(
        &mut self,
        total: u64,
        rest: impl Fn(u64) -> SmallVec<[IoSlice<'b>; SLICES_MAX]>,
    ) -> (bool, u64) {
        let idle = self.connection.worker.view().plan.timeouts.idle;
        let mut patience = Patience::new(&self.timer, idle, now::turned());
        let mut sent = 0;
        let is_sent = poll_fn(|cx| {
            let polled = loop {
                if sent == total {
                    break self.leg.poll_backlog(cx, &mut 0);
                }
                match self.leg.poll_send_bytes(cx, &rest(sent)) {
                    Poll::Ready(Ok(count)) => {
                        sent += count;
                        if sent < total {
                            patience.note_taken(&self.timer, count);
                        }
                    }
                    Poll::Ready(Err(gone)) => break Poll::Ready(Err(gone)),
                    Poll::Pending => break Poll::Pending,
                }
            };
            match polled {
                Poll::Pending if self.is_lost(&mut patience, cx, true) => Poll::Ready(false),
                polled => polled.map(|ended| ended.is_ok()),
            }
        })
        .await;
        (is_sent, sent)
    }
}
