//! One worker's connections to providers: keeps idle ones, checks them before reuse, and lends them to other
//! workers; and the target of a call. Connections are opened in `open`. Those that speak HTTP/2 are in
//! `shared`, the choice among the endpoints of a provider in `endpoints`, the hosts that a worker reaches in
//! `view`.

mod endpoints;
mod line;
mod open;
mod shared;
mod view;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use egret_clock::{Moment, planted};
use egret_http1::Span;
use egret_leg::Leg;
use egret_message::Destination;
use egret_net::stream::Detached;
use egret_observe::counters::ProviderCounters;
use egret_plan::config::HttpVersions;
use egret_plan::{OpenPlace, UpstreamPlan};
use tokio::sync::oneshot;

pub use self::endpoints::EndpointCall;
use self::endpoints::EndpointHealth;
pub use self::open::{Network, denied};
use self::shared::{SharedConnections, StreamPlace};
pub use self::view::{HostOwner, NamedHosts, View};

/// Subtracted from a provider's `Keep-Alive: timeout`, whose clock started before the response arrived here.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_millis(500);

/// Time for which the protocol of a provider is remembered that differs from the expected one.
const KNOWN_FOR: Duration = Duration::from_hours(1);

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

    /// Returns `true` if the provider has several endpoints.
    #[inline]
    pub fn has_endpoints(&self) -> bool {
        !self.endpoints.is_empty()
    }

    /// Returns the provider at each of its endpoints, this one first.
    pub fn at_all_endpoints(self: &Rc<Self>) -> impl Iterator<Item = &Rc<Self>> {
        std::iter::once(self).chain(&self.endpoints)
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.shared.close_all();
        self.counters().connections_idle.sub(self.idle.borrow().len() as u64);
    }
}

/// A call to make: the destination and the request to send. All ways of routing lead to this.
#[derive(Debug, Clone)]
pub struct CallTarget {
    /// The provider that the call belongs to, or a host that no configured provider has.
    pub upstream: Rc<Upstream>,
    /// The upstream whose base path precedes the target, if it is not `upstream`: a remedy has changed the
    /// target to one that belongs to another provider.
    pub based_on: Option<Rc<Upstream>>,
    /// Path and query, relative to the provider's URL: a part of the received target.
    pub target: Span,
    /// The way in which an empty path is sent.
    pub empty_path: EmptyPath,
    /// `true` if the target differs from the received one.
    pub new_target: bool,
    /// The `Host` sent to the provider, if the client chose one that is not the provider's own.
    pub kept_host: Option<Box<KeptHost>>,
    /// `true` if the received `Host` is the provider's own.
    pub has_own_host: bool,
    /// `true` if the client named the provider by base URL, so the response is rewritten to match.
    pub is_rewritten: bool,
}

/// The form in which an empty path, relative to the provider's URL, is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmptyPath {
    /// A slash behind the base path.
    Slash,
    /// Nothing: the client requested the base path itself, without a slash at its end.
    Bare,
    /// An asterisk: the request is about the server as a whole (RFC 9112 §3.2.4).
    Asterisk,
}

/// A host that the client chose for a provider with a different one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptHost {
    /// The host as the client wrote it.
    pub sent: Span,
    /// The host in lower case.
    pub name: Box<str>,
    /// The port.
    pub port: u16,
    /// `true` if the config lists the host as one of the provider's.
    pub is_known: bool,
}

impl CallTarget {
    /// Creates a call of `target`, the whole target, at `upstream`.
    pub fn whole(upstream: Rc<Upstream>, target: Span) -> Self {
        Self {
            upstream,
            based_on: None,
            target,
            empty_path: EmptyPath::Slash,
            new_target: false,
            kept_host: None,
            has_own_host: false,
            is_rewritten: false,
        }
    }

    /// Returns the path that precedes the target.
    pub fn base(&self) -> &[u8] {
        &self.based_on.as_ref().unwrap_or(&self.upstream).plan.path_prefix
    }

    /// Returns the `Host` to send to the provider, if it differs from the received one.
    pub fn host_field<'a>(&'a self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match &self.kept_host {
            Some(kept) => Some(kept.sent.of(bytes)),
            None if self.has_own_host => None,
            None => Some(&self.upstream.plan.host_field),
        }
    }

    /// Returns the destination as flows see it.
    pub fn destination(&self) -> Destination<'_> {
        let plan = &self.upstream.plan;
        let kept = self.kept_host.as_ref();
        Destination {
            provider: plan.provider(),
            tls: plan.origin.tls,
            host: plan.host_text(),
            port: plan.origin.authority.port,
            base: self.base(),
            has_bare_base: self.empty_path == EmptyPath::Bare,
            kept_host: kept.map(|kept| (&*kept.name, kept.port)),
            takes_credentials: kept.is_none_or(|kept| kept.is_known),
        }
    }
}
