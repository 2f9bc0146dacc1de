//! One worker's connections to providers: opens them, keeps idle ones, checks them before reuse, and lends
//! them to other workers. Connections that speak HTTP/2 are in `shared`, the choice among the endpoints of a
//! provider in `endpoints`, the hosts that a worker reaches in `view`, and the target of a call in `target`.

mod endpoints;
mod line;
mod shared;
mod target;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::{Moment, planted};
use egret_http1::HeadLimits;
use egret_http2::{Bounds, ClientConnection};
use egret_leg::Leg;
use egret_net::dial::{DialError, DialOptions, Dialed, dial};
use egret_net::dns::{DnsError, Resolver};
use egret_net::event_loop::{self, spawn};
use egret_net::policy::{EgressTarget, Reason};
use egret_net::proxy::handshake::HandshakeError;
use egret_net::proxy::{self, Proxy, ProxyError, Tunnel};
use egret_net::stream::{Detached, Stream};
use egret_observe::counters::{ProviderCounters, WorkerCounters};
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::config::HttpVersions;
use egret_plan::{OpenPlace, UpstreamPlan};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

pub use self::endpoints::EndpointCall;
use self::endpoints::EndpointHealth;
use self::line::{Answer, Dial};
use self::shared::{NewConnection, Offer, SharedConnections, StreamPlace};
pub use self::target::{CallTarget, EmptyPath, KeptHost};
pub use self::view::{HostOwner, NamedHosts, View};

/// Subtracted from a provider's `Keep-Alive: timeout`, whose clock started before the response arrived here.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_millis(500);

/// Time for which the protocol of a provider is remembered that differs from the expected one.
const KNOWN_FOR: Duration = Duration::from_hours(1);
/// Number of bytes that a field counts more than it has (RFC 9113 §6.5.2).
const FIELD_OVERHEAD_BYTES: usize = 32;

/// The version of HTTP that a request needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needs {
    /// Either version of HTTP.
    Any,
    /// HTTP/1.1: it upgrades.
    Http1,
    /// HTTP/1.1, or HTTP/2 if the provider opens WebSockets in streams (RFC 8441).
    WebSocket,
    /// HTTP/2: it is a call of gRPC.
    Http2,
}

/// A protocol that a provider turned out to speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SpokenProtocol {
    Nothing,
    /// It does not speak HTTP/2, up to this time.
    Http1(Moment),
    /// It speaks nothing but HTTP/2, up to this time.
    Http2(Moment),
}

/// A provider, or another host, with this worker's connections to it.
#[derive(Debug)]
pub struct Upstream {
    /// Its plan.
    pub plan: Arc<UpstreamPlan>,
    worker: usize,
    /// The most recently used connection is last and is taken first, so the others can expire.
    idle: RefCell<VecDeque<Idle>>,
    /// The connections that speak HTTP/2.
    shared: Rc<SharedConnections>,
    known: Cell<SpokenProtocol>,
    /// The provider at its other endpoints.
    endpoints: Box<[Rc<Self>]>,
    health: EndpointHealth,
}

#[derive(Debug)]
struct Idle {
    connection: Box<Connection>,
    until: Moment,
}

/// A connection to a provider, owned by one exchange, or a stream of a shared one. Boxed, because an exchange
/// moves it about half a dozen times.
#[derive(Debug)]
pub struct Connection {
    /// The leg of the exchange.
    pub leg: Leg,
    /// A number that no other connection of this process has.
    pub id: u64,
    /// The address of the peer.
    pub peer: SocketAddr,
    /// `true` if it has carried an exchange before, so the provider may have closed it meanwhile.
    pub reused: bool,
    /// Dropped behind the leg.
    place: Place,
}

/// The place of a connection among those that may be open.
#[derive(Debug)]
enum Place {
    /// Its own.
    Own { _counted: Counted, open: OpenPlace },
    /// A stream's, on a shared connection.
    Shared(StreamPlace),
}

impl Connection {
    /// Returns `true` if the place of the call does not hold any more.
    fn is_taken_back(&self) -> bool {
        matches!(&self.place, Place::Shared(call) if call.is_taken_back())
    }
}

/// One connection in this worker's gauge.
#[derive(Debug)]
struct Counted {
    plan: Arc<UpstreamPlan>,
    worker: usize,
}

impl Counted {
    fn new(plan: &Arc<UpstreamPlan>, worker: usize) -> Self {
        plan.stats.of(worker).connections_open.add(1);
        Self { plan: Arc::clone(plan), worker }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if !planted!(ConnectionKept) {
            self.plan.stats.of(self.worker).connections_open.sub(1);
        }
    }
}

/// A connection that is handed from one worker to another.
#[derive(Debug)]
pub struct Lent {
    stream: Detached,
    id: u64,
    peer: SocketAddr,
    open: OpenPlace,
}

/// A request from one worker to another for an idle connection to the provider of `plan`.
#[derive(Debug)]
pub struct LoanRequest {
    /// The provider's plan.
    pub plan: Arc<UpstreamPlan>,
    /// Takes the connection, or `None` if there is none.
    pub reply: oneshot::Sender<Option<Lent>>,
}

/// The means to connect that all workers share: the resolver, and the other workers' idle connections.
#[derive(Debug)]
pub struct Network {
    /// Looks up the names of hosts.
    pub resolver: Resolver,
    /// By worker: the queue of requests for its idle connections. Bounded by the number of exchanges.
    pub lenders: Box<[mpsc::UnboundedSender<LoanRequest>]>,
    /// By worker: the counters that do not belong to a provider.
    pub counters: Box<[WorkerCounters]>,
}

impl Network {
    /// Counts and logs a target that report mode allowed.
    pub fn report_denial(&self, worker: usize, target: &EgressTarget<'_>, reason: Reason) {
        self.counters[worker].denial(reason);
        warn!(target = %target.authority, reason = reason.slug(), "egress policy would deny this target (mode: report)");
    }

    /// Counts and logs a denied target, and returns the error for the client.
    pub fn denied(&self, worker: usize, target: &EgressTarget<'_>, reason: Reason) -> Failure {
        self.counters[worker].denial(reason);
        warn!(target = %target.authority, reason = reason.slug(), "egress policy denied a target");
        denied(target, reason)
    }

    /// Returns the client's error for a failed dial.
    fn dial_failure(&self, worker: usize, target: &EgressTarget<'_>, error: DialError) -> Failure {
        let kind = match &error {
            DialError::Denied(reason) => return self.denied(worker, target, *reason),
            DialError::Dns(DnsError::Timeout) => ErrorKind::DnsTimeout,
            DialError::Dns(_) => ErrorKind::DnsFailed,
            DialError::Timeout => ErrorKind::ConnectTimeout,
            _ => ErrorKind::ConnectFailed,
        };
        debug!(target = %target.authority, %error, "cannot connect");
        Failure::new(kind, format!("cannot connect to {}: {error}", target.authority))
    }
}

/// Returns the client's error for a tunnel that a proxy did not open.
fn proxy_failure(proxy: &Proxy, target: &EgressTarget<'_>, error: &ProxyError) -> Failure {
    let kind = match error {
        ProxyError::Target(_) | ProxyError::Unreachable(_) | ProxyError::Tls(_) => {
            ErrorKind::ProxyUnreachable
        }
        ProxyError::Timeout => ErrorKind::ProxyTimeout,
        ProxyError::Closed => ErrorKind::ProxyClosed,
        ProxyError::Handshake(HandshakeError::HttpCredentials | HandshakeError::SocksCredentials) => {
            ErrorKind::ProxyCredentials
        }
        ProxyError::Handshake(HandshakeError::HttpStatus(_) | HandshakeError::SocksReply(_)) => {
            ErrorKind::ProxyRefused
        }
        ProxyError::Handshake(_) => ErrorKind::ProxyBadResponse,
    };
    debug!(target = %target.authority, %proxy, %error, "cannot connect through a proxy");
    Failure::new(kind, format!("cannot reach {} through the proxy {proxy}: {error}", target.authority))
}

/// Returns the client's error for a denied target.
pub fn denied(target: &EgressTarget<'_>, reason: Reason) -> Failure {
    let detail = format!("connections to {} are not allowed: {reason}", target.authority);
    Failure::new(ErrorKind::EgressDenied, detail)
}

/// Durations of the steps of connecting. Zero for an idle connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct DialTimes {
    /// The look-up of the host's name.
    pub dns: Duration,
    /// The TCP connection.
    pub connect: Duration,
    /// The TLS handshake.
    pub tls: Duration,
}

impl DialTimes {
    /// Returns the sum of the durations.
    pub fn total_nanos(&self) -> u64 {
        u64::try_from((self.dns + self.connect + self.tls).as_nanos()).unwrap_or(u64::MAX)
    }
}

/// The source of connection numbers.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

impl Upstream {
    /// Creates an upstream without connections.
    pub fn new(plan: Arc<UpstreamPlan>, worker: usize) -> Self {
        let at_endpoint = |plan: &Arc<UpstreamPlan>| Rc::new(Self::new(Arc::clone(plan), worker));
        Self {
            endpoints: plan.endpoints.iter().map(at_endpoint).collect(),
            shared: Rc::new(SharedConnections::new(plan.pool.streams_per_connection.max(1))),
            plan,
            worker,
            idle: RefCell::default(),
            known: Cell::new(SpokenProtocol::Nothing),
            health: EndpointHealth::default(),
        }
    }

    /// Returns this worker's counters for it.
    pub fn counters(&self) -> &ProviderCounters {
        self.plan.stats.of(self.worker)
    }

    /// Returns `true` if a request with these `needs` is sent in HTTP/2.
    #[inline]
    pub fn uses_http2(&self, needs: Needs, now: Moment) -> bool {
        match (self.plan.http, needs) {
            (HttpVersions::One, _) | (_, Needs::Http1) => false,
            (HttpVersions::Auto, Needs::Any | Needs::WebSocket) => {
                matches!(self.known.get(), SpokenProtocol::Http2(until) if until > now)
            }
            (HttpVersions::Two, _) | (HttpVersions::Auto, Needs::Http2) => {
                !matches!(self.known.get(), SpokenProtocol::Http1(until) if until > now)
            }
        }
    }

    /// Remembers that the provider wants HTTP/1.1.
    pub fn note_http1(&self) {
        self.known.set(SpokenProtocol::Http1(Moment::now() + KNOWN_FOR));
    }

    /// Returns a connection of this worker's for a request with these `needs`, if one is idle, or a stream,
    /// if there is room for one.
    #[inline]
    pub fn take(&self, now: Moment, needs: Needs) -> Option<Box<Connection>> {
        match (self.uses_http2(needs, now), needs) {
            (false, _) => self.take_idle(now),
            // The provider's settings decide, which are waited for.
            (true, Needs::WebSocket) => None,
            (true, _) => self.shared.take(),
        }
    }

    /// Returns an idle connection that is still usable, if there is one. It speaks HTTP/1.1.
    pub fn take_idle(&self, now: Moment) -> Option<Box<Connection>> {
        let mut idle = self.idle.borrow_mut();
        while let Some(mut candidate) = idle.pop_back() {
            self.counters().connections_idle.sub(1);
            if candidate.until > now && candidate.connection.leg.is_usable_idle() {
                return Some(candidate.connection);
            }
        }
        None
    }

    /// Keeps a connection for the next exchange, unless the provider's `Keep-Alive` rules that out. A stream
    /// ends with its exchange.
    pub fn keep(
        &self,
        mut connection: Box<Connection>,
        now: Moment,
        timeout_s: Option<u32>,
        requests_left: Option<u32>,
    ) {
        if connection.leg.is_stream() {
            return;
        }
        debug_assert!(!connection.leg.is_blocked());
        let mut timeout = self.plan.pool.idle_timeout.get();
        if let Some(timeout_s) = timeout_s {
            timeout = timeout.min(Duration::from_secs(timeout_s.into()).saturating_sub(KEEP_ALIVE_MARGIN));
        }
        if requests_left == Some(0) || timeout.is_zero() {
            return;
        }
        connection.reused = true;
        let mut idle = self.idle.borrow_mut();
        if idle.len() >= usize::try_from(self.plan.pool.idle).unwrap_or(usize::MAX) {
            if idle.pop_front().is_none() {
                return;
            }
            self.counters().connections_idle.sub(1);
        }
        idle.push_back(Idle { connection, until: now + timeout });
        self.counters().connections_idle.add(1);
    }

    /// Closes idle connections that have expired or that the provider has closed. Returns `true` if any
    /// remain.
    pub fn sweep(&self, now: Moment) -> bool {
        let mut idle = self.idle.borrow_mut();
        let before = idle.len();
        idle.retain_mut(|kept| kept.until > now && kept.connection.leg.is_usable_idle());
        self.counters().connections_idle.sub((before - idle.len()) as u64);
        let shared_remain = self.shared.sweep(now, self.plan.pool.idle_timeout.get());
        let mut remain = shared_remain || !idle.is_empty();
        for endpoint in &self.endpoints {
            remain |= endpoint.sweep(now);
        }
        remain
    }

    /// Hands an idle connection to another worker.
    pub fn lend(&self, now: Moment) -> Option<Lent> {
        let Connection { leg, id, peer, place, .. } = *self.take_idle(now)?;
        let Place::Own { open, .. } = place else { return None };
        Some(Lent { stream: leg.into_detached().ok()?, id, peer, open })
    }

    /// Obtains a connection for a request with these `needs` that this worker does not have. `limits` are
    /// those of heads. A `fresh` one has not been idle.
    pub async fn obtain(
        self: Rc<Self>,
        network: &Arc<Network>,
        needs: Needs,
        limits: HeadLimits,
        fresh: bool,
    ) -> Result<(Box<Connection>, DialTimes), Failure> {
        if !self.uses_http2(needs, Moment::now()) {
            let opened = if fresh { self.open(network).await } else { self.connect(network).await };
            // The provider may have turned out to speak nothing else.
            if opened.is_ok() || !self.uses_http2(needs, Moment::now()) {
                return opened;
            }
        }
        match self.obtain_place(network, needs, limits).await? {
            Offer::Connection(mut connection, times) => {
                connection.reused &= !fresh;
                Ok((connection, times))
            }
            Offer::Http1 if fresh => self.open(network).await,
            Offer::Http1 => match self.take_idle(Moment::now()) {
                Some(connection) => Ok((connection, DialTimes::default())),
                None => self.connect(network).await,
            },
        }
    }

    /// Obtains a place on a connection that speaks HTTP/2, or waits for it: as long as for a connection to
    /// open, and in the order in which calls have begun to wait. The request is to be sent at once, before
    /// the provider can change its maximum.
    async fn obtain_place(
        self: &Rc<Self>,
        network: &Arc<Network>,
        needs: Needs,
        limits: HeadLimits,
    ) -> Result<Offer, Failure> {
        let deadline = self.plan.timeouts.connect.map(|timeout| Moment::now() + timeout);
        let number = self.shared.next_number();
        let mut offer = if let Some(connection) = self.shared.take() {
            Offer::Connection(connection, DialTimes::default())
        } else {
            let waiting = self.shared.wait(number, self.dialer(network, limits));
            self.await_place(waiting, number, deadline).await?
        };
        while let Offer::Connection(connection, _) = &mut offer {
            if needs == Needs::WebSocket && !self.opens_websockets(&mut connection.leg).await {
                return Ok(Offer::Http1);
            }
            if !connection.is_taken_back() {
                break;
            }
            if deadline.is_some_and(|deadline| deadline <= Moment::now()) {
                return Err(self.no_place());
            }
            // It waits before it gives its place up, so that others do not overtake it.
            let waiting = self.shared.wait(number, self.dialer(network, limits));
            drop(offer);
            offer = self.await_place(waiting, number, deadline).await?;
        }
        Ok(offer)
    }

    /// Waits for a place up to the `deadline`, if there is one, and longer if a connection is being opened.
    async fn await_place(
        &self,
        mut waiting: oneshot::Receiver<Answer<Offer>>,
        number: u64,
        deadline: Option<Moment>,
    ) -> Answer<Offer> {
        let gone = || Failure::new(ErrorKind::ConnectFailed, "the connection to the provider was given up");
        if let Some(deadline) = deadline {
            let left = deadline.since(Moment::now());
            if let Ok(answer) = event_loop::timeout(left, &mut waiting).await {
                return answer.unwrap_or_else(|_| Err(gone()));
            }
            self.shared.note_overdue(number, self.no_place());
        }
        waiting.await.unwrap_or_else(|_| Err(gone()))
    }

    /// Returns the error of a call for which there was no place in time.
    fn no_place(&self) -> Failure {
        if self.plan.is_full() && self.shared.calls_expected() > 0 {
            return self.pool_full();
        }
        let detail = format!(
            "`{}` admits no further call on its connections (SETTINGS_MAX_CONCURRENT_STREAMS, `timeouts.connect`)",
            self.plan.stats.name()
        );
        Failure::new(ErrorKind::ConnectTimeout, detail)
    }

    /// Waits until the provider's settings say whether a WebSocket can be opened. A provider that sends none
    /// in the time for connecting does not.
    async fn opens_websockets(&self, leg: &mut Leg) -> bool {
        let answer = poll_fn(|cx| leg.poll_opens_websockets(cx));
        match self.plan.timeouts.connect {
            Some(timeout) => event_loop::timeout(timeout, answer).await.unwrap_or(false),
            None => answer.await,
        }
    }

    /// Returns the means by which a call that waits opens a connection.
    fn dialer(self: &Rc<Self>, network: &Arc<Network>, limits: HeadLimits) -> Dial {
        let (upstream, network) = (Rc::downgrade(self), Arc::clone(network));
        Rc::new(move || match upstream.upgrade() {
            Some(upstream) => upstream.spawn_dial(&network, limits),
            None => Err(Failure::new(ErrorKind::ConnectFailed, "the provider is no longer in the config")),
        })
    }

    /// Opens a connection that speaks HTTP/2, in a task of its own: the call that it is for may leave. Fails
    /// if the pool has no place for one.
    fn spawn_dial(self: Rc<Self>, network: &Arc<Network>, limits: HeadLimits) -> Result<(), Failure> {
        if self.plan.is_full() {
            drop(self.take_idle(Moment::now()));
        }
        let open = self.try_open()?;
        self.shared.begin_dial();
        let network = Arc::clone(network);
        spawn(async move {
            match self.open_shared(open, &network, limits).await {
                Ok((Opened::Http2(new), times)) => self.shared.add(*new, times),
                Ok((Opened::Http1(connection), times)) => {
                    self.note_http1();
                    self.shared.give_http1(connection, times);
                }
                Err(failure) => self.shared.fail(&failure),
            }
        });
        Ok(())
    }

    /// Opens a connection that speaks HTTP/2, unless the provider chooses HTTP/1.1.
    async fn open_shared(
        &self,
        open: OpenPlace,
        network: &Network,
        limits: HeadLimits,
    ) -> Result<(Opened, DialTimes), Failure> {
        let (leg, peer, times) = self.dial(network, true).await?;
        let counted = Counted::new(&self.plan, self.worker);
        let id = CONNECTIONS.fetch_add(1, Relaxed);
        // Without TLS, the provider is known to speak it.
        if self.plan.tls.is_some() && !leg.begins_http2() {
            let place = Place::Own { _counted: counted, open };
            return Ok((Opened::Http1(Box::new(Connection { leg, id, peer, reused: false, place })), times));
        }
        let header_list = limits.head + limits.fields * FIELD_OVERHEAD_BYTES;
        let bounds = Bounds {
            streams: self.shared.calls_expected(),
            header_list: u32::try_from(header_list).unwrap_or(u32::MAX),
            fields: limits.fields,
        };
        let lost = || Failure::new(ErrorKind::ConnectFailed, "the connection to the provider was closed");
        let stream = leg.into_connection().ok_or_else(lost)?;
        let (inner, streams) = ClientConnection::begin(stream, bounds);
        Ok((Opened::Http2(Box::new(NewConnection { id, peer, inner, streams, open, counted })), times))
    }

    /// Takes a place for one more connection.
    fn try_open(&self) -> Result<OpenPlace, Failure> {
        let open = self.plan.try_open().or_else(|| {
            // The places of shared connections are free as soon as these close.
            if self.shared.close_an_idle_one() { self.plan.try_open() } else { None }
        });
        open.ok_or_else(|| self.pool_full())
    }

    fn pool_full(&self) -> Failure {
        let (max, name) = (self.plan.pool.connections, self.plan.stats.name());
        let detail = format!("all {max} connections to `{name}` are in use (`pool.connections`)");
        Failure::new(ErrorKind::PoolFull, detail)
    }

    /// Returns an idle connection of another worker, or opens a new one. It speaks HTTP/1.1.
    async fn connect(&self, network: &Network) -> Result<(Box<Connection>, DialTimes), Failure> {
        if let Some(connection) = self.borrow_from_another(network).await {
            self.counters().pool_steals.add(1);
            return Ok((connection, DialTimes::default()));
        }
        self.open(network).await
    }

    /// Closes an idle connection, possibly another worker's, if the limit is reached. A tunnel needs a new
    /// connection and cannot reuse an idle one.
    pub async fn make_room(&self, network: &Network) {
        if self.plan.is_full() && self.take_idle(Moment::now()).is_none() && !self.shared.close_an_idle_one()
        {
            drop(self.borrow_from_another(network).await);
        }
    }

    /// Opens a new connection. It speaks HTTP/1.1.
    pub async fn open(&self, network: &Network) -> Result<(Box<Connection>, DialTimes), Failure> {
        let open = self.try_open()?;
        let (leg, peer, times) = self.dial(network, false).await?;
        let counted = Counted::new(&self.plan, self.worker);
        let id = CONNECTIONS.fetch_add(1, Relaxed);
        let place = Place::Own { _counted: counted, open };
        Ok((Box::new(Connection { leg, id, peer, reused: false, place }), times))
    }

    /// Asks the other workers that seem to have idle connections. A TLS handshake costs far more than the
    /// messages.
    async fn borrow_from_another(&self, network: &Network) -> Option<Box<Connection>> {
        for other in self.plan.stats.with_idle(self.worker) {
            let (reply, loan) = oneshot::channel();
            let request = LoanRequest { plan: Arc::clone(&self.plan), reply };
            // A worker that has ended has no connections.
            let _ = network.lenders[other].send(request);
            let Some(Lent { stream, id, peer, open }) = loan.await.ok().flatten() else { continue };
            let Ok(leg) = Leg::attach(stream) else { continue };
            let counted = Counted::new(&self.plan, self.worker);
            let place = Place::Own { _counted: counted, open };
            return Some(Box::new(Connection { leg, id, peer, reused: true, place }));
        }
        None
    }

    /// Connects to the provider, directly or through its proxy. A direct connection has the form of a tunnel.
    async fn open_stream(
        &self,
        network: &Network,
        target: &EgressTarget<'_>,
        options: &DialOptions,
    ) -> Result<Tunnel, Failure> {
        let (resolver, policy) = (&network.resolver, &self.plan.policy);
        let Some(proxy) = &self.plan.proxy else {
            let dialed = dial(target, resolver, policy, options).await;
            let dialed = dialed.map_err(|error| network.dial_failure(self.worker, target, error))?;
            let Dialed { socket, peer, dns, connect, reported } = dialed;
            return Ok(Tunnel { stream: Stream::Plain(socket), peer, dns, connect, reported });
        };
        let opened = proxy::open(proxy, target, resolver, policy, options).await;
        opened.map_err(|error| match error {
            ProxyError::Target(error) => network.dial_failure(self.worker, target, error),
            error => proxy_failure(proxy, target, &error),
        })
    }

    /// Opens a connection, and offers HTTP/2 if it uses TLS and `offers_http2`.
    async fn dial(
        &self,
        network: &Network,
        offers_http2: bool,
    ) -> Result<(Leg, SocketAddr, DialTimes), Failure> {
        let plan = &self.plan;
        let target = plan.target();
        let options = DialOptions {
            connect_timeout: plan.timeouts.connect.unwrap_or_default(),
            ..DialOptions::default()
        };
        let opened = self.open_stream(network, &target, &options).await;
        let opened = opened.inspect_err(|_| self.counters().connect_failures.add(1))?;
        let Tunnel { stream, peer, dns, connect, reported } = opened;
        self.counters().connects.add(1);
        debug!(target = %target.authority, %peer, "connected");
        if let Some(reason) = reported {
            network.report_denial(self.worker, &target, reason);
        }
        let mut times = DialTimes { dns, connect, tls: Duration::ZERO };
        let Some(client_tls) = &plan.tls else {
            let leg = match stream {
                Stream::Plain(socket) => Leg::plain(socket),
                Stream::Tls(tls) => Leg::tls(tls),
            };
            return Ok((leg, peer, times));
        };
        let offering = offers_http2.then(|| client_tls.offering_http2());
        let client_tls = offering.as_ref().unwrap_or(client_tls);
        let started = Moment::now();
        let handshake = egret_net::tls::handshake(stream, client_tls, &plan.origin.authority.host);
        let stream = match plan.timeouts.tls {
            Some(timeout) => event_loop::timeout(timeout, handshake).await.ok(),
            None => Some(handshake.await),
        };
        times.tls = Moment::now().since(started);
        if let Some(Ok(stream)) = stream {
            self.counters().tls_handshakes.add(1);
            return Ok((Leg::tls(stream), peer, times));
        }
        self.counters().tls_failures.add(1);
        if matches!(&stream, Some(Err(error)) if error.is_other_protocol()) && !offers_http2 {
            self.known.set(SpokenProtocol::Http2(Moment::now() + KNOWN_FOR));
        }
        let authority = &plan.origin.authority;
        Err(match stream {
            Some(Err(error)) => Failure::new(
                ErrorKind::TlsFailed,
                format!("cannot open a TLS connection to {authority}: {error}"),
            ),
            _ => Failure::new(ErrorKind::TlsTimeout, format!("the TLS handshake with {authority} timed out")),
        })
    }
}

/// A new connection, by its protocol.
enum Opened {
    Http1(Box<Connection>),
    Http2(Box<NewConnection>),
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.close_all();
        self.counters().connections_idle.sub(self.idle.borrow().len() as u64);
    }
}
