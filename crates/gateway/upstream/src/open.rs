//! Opens connections to providers, directly or through a proxy, or borrows those of other workers.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::Moment;
use egret_http1::HeadLimits;
use egret_http2::{Bounds, ClientConnection};
use egret_leg::Leg;
use egret_net::dial::{DialError, DialOptions, Dialed, dial};
use egret_net::dns::{DnsError, Resolver};
use egret_net::event_loop::{self, spawn};
use egret_net::policy::{EgressTarget, Reason};
use egret_net::proxy::handshake::HandshakeError;
use egret_net::proxy::{self, Proxy, ProxyError, Tunnel};
use egret_net::stream::Stream;
use egret_observe::counters::WorkerCounters;
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::OpenPlace;
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

use crate::line::{Answer, Dial};
use crate::shared::{NewConnection, Offer};
use crate::{
    Connection, Counted, DialTimes, KNOWN_FOR, Lent, LoanRequest, Needs, Place, SpokenProtocol, Upstream,
};

/// Number of bytes that a field counts more than it has (RFC 9113 §6.5.2).
const FIELD_OVERHEAD_BYTES: usize = 32;

/// The source of connection numbers.
static CONNECTIONS: AtomicU64 = AtomicU64::new(1);

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

impl Upstream {
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
