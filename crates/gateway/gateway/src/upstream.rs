//! One worker's connections to providers: opens them, keeps idle ones, checks them before reuse, and lends
//! them to other workers.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_clock::Moment;
use egret_leg::Leg;
use egret_net::dial::{DialError, DialOptions, dial};
use egret_net::dns::{DnsError, Resolver};
use egret_net::event_loop;
use egret_net::policy::{EgressTarget, Reason};
use egret_net::stream::Detached;
use egret_observe::counters::{ProviderCounters, WorkerCounters};
use egret_observe::failure::{ErrorKind, Failure};
use egret_plan::{OpenPlace, UpstreamPlan};
use tokio::sync::{mpsc, oneshot};
use tracing::{debug, warn};

/// Subtracted from a provider's `Keep-Alive: timeout`, whose clock started before the response arrived here.
const KEEP_ALIVE_MARGIN: Duration = Duration::from_millis(500);

/// A provider, or another host, with this worker's connections to it.
#[derive(Debug)]
pub(crate) struct Upstream {
    pub plan: Arc<UpstreamPlan>,
    worker: usize,
    /// The most recently used connection is last and is taken first, so the others can expire.
    idle: RefCell<VecDeque<Idle>>,
}

#[derive(Debug)]
struct Idle {
    connection: Box<Connection>,
    until: Moment,
}

/// A connection to a provider, owned by one exchange. Boxed, because an exchange moves it about half a dozen
/// times.
#[derive(Debug)]
pub(crate) struct Connection {
    pub leg: Leg,
    /// A number that no other connection of this process has.
    pub id: u64,
    /// The address of the peer.
    pub peer: SocketAddr,
    /// `true` if it has carried an exchange before, so the provider may have closed it meanwhile.
    pub reused: bool,
    _counted: Counted,
    open: OpenPlace,
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
        self.plan.stats.of(self.worker).connections_open.sub(1);
    }
}

/// A connection that is handed from one worker to another.
#[derive(Debug)]
pub(crate) struct Lent {
    stream: Detached,
    id: u64,
    peer: SocketAddr,
    open: OpenPlace,
}

/// A request from one worker to another for an idle connection to the provider of `plan`.
#[derive(Debug)]
pub(crate) struct LoanRequest {
    pub plan: Arc<UpstreamPlan>,
    pub reply: oneshot::Sender<Option<Lent>>,
}

/// The means to connect that all workers share: the resolver, and the other workers' idle connections.
#[derive(Debug)]
pub(crate) struct Network {
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

/// Returns the client's error for a denied target.
pub(crate) fn denied(target: &EgressTarget<'_>, reason: Reason) -> Failure {
    let detail = format!("connections to {} are not allowed: {reason}", target.authority);
    Failure::new(ErrorKind::EgressDenied, detail)
}

/// Durations of the steps of connecting. Zero for an idle connection.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct DialTimes {
    pub dns: Duration,
    pub connect: Duration,
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
        Self { plan, worker, idle: RefCell::default() }
    }

    /// Returns this worker's counters for it.
    pub fn counters(&self) -> &ProviderCounters {
        self.plan.stats.of(self.worker)
    }

    /// Returns an idle connection that is still usable, if there is one.
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

    /// Keeps a connection for the next exchange, unless the provider's `Keep-Alive` rules that out.
    pub fn keep(
        &self,
        mut connection: Box<Connection>,
        now: Moment,
        timeout_s: Option<u32>,
        requests_left: Option<u32>,
    ) {
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
        !idle.is_empty()
    }

    /// Hands an idle connection to another worker.
    pub fn lend(&self, now: Moment) -> Option<Lent> {
        let Connection { leg, id, peer, open, .. } = *self.take_idle(now)?;
        Some(Lent { stream: leg.into_detached().ok()?, id, peer, open })
    }

    /// Returns an idle connection of another worker, or opens a new one.
    pub async fn connect(&self, network: &Network) -> Result<(Box<Connection>, DialTimes), Failure> {
        if let Some(connection) = self.borrow_from_another(network).await {
            self.counters().pool_steals.add(1);
            return Ok((connection, DialTimes::default()));
        }
        self.open(network).await
    }

    /// Closes an idle connection, possibly another worker's, if the limit is reached. A tunnel needs a new
    /// connection and cannot reuse an idle one.
    pub async fn make_room(&self, network: &Network) {
        if self.plan.is_full() && self.take_idle(Moment::now()).is_none() {
            drop(self.borrow_from_another(network).await);
        }
    }

    /// Opens a new connection.
    pub async fn open(&self, network: &Network) -> Result<(Box<Connection>, DialTimes), Failure> {
        let Some(open) = self.plan.try_open() else {
            let max = self.plan.pool.connections;
            let detail = format!(
                "all {max} connections to `{}` are in use (`pool.connections`)",
                self.plan.stats.name()
            );
            return Err(Failure::new(ErrorKind::PoolFull, detail));
        };
        let (leg, peer, times) = self.dial(network).await?;
        let counted = Counted::new(&self.plan, self.worker);
        let id = CONNECTIONS.fetch_add(1, Relaxed);
        Ok((Box::new(Connection { leg, id, peer, reused: false, _counted: counted, open }), times))
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
            return Some(Box::new(Connection { leg, id, peer, reused: true, _counted: counted, open }));
        }
        None
    }

    async fn dial(&self, network: &Network) -> Result<(Leg, SocketAddr, DialTimes), Failure> {
        let plan = &self.plan;
        let target = plan.target();
        let options = DialOptions {
            connect_timeout: plan.timeouts.connect.unwrap_or_default(),
            ..DialOptions::default()
        };
        let dialed = dial(&target, &network.resolver, &plan.policy, &options).await;
        let dialed = dialed.map_err(|error| {
            self.counters().connect_failures.add(1);
            network.dial_failure(self.worker, &target, error)
        })?;
        self.counters().connects.add(1);
        debug!(target = %target.authority, peer = %dialed.peer, "connected");
        if let Some(reason) = dialed.reported {
            network.report_denial(self.worker, &target, reason);
        }
        let peer = dialed.peer;
        let mut times = DialTimes { dns: dialed.dns, connect: dialed.connect, tls: Duration::ZERO };
        let Some(client_tls) = &plan.tls else { return Ok((Leg::plain(dialed.socket), peer, times)) };
        let started = Moment::now();
        let handshake = egret_net::tls::handshake(dialed.socket, client_tls, &plan.origin.authority.host);
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

impl Drop for Upstream {
    fn drop(&mut self) {
        self.counters().connections_idle.sub(self.idle.borrow().len() as u64);
    }
}
