//! The running gateway as its owner sees it: start, reload, statistics and drain.

pub(crate) mod acceptor;
#[cfg(feature = "simulated")]
pub(crate) mod simulated;
pub(crate) mod thread;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{self, Receiver, TryRecvError};
use std::time::{Duration, Instant};
use std::{fmt, io};

use egret_cache::CacheDisk;
use egret_clients::Issuer;
use egret_clock::{Moment, Timestamp};
use egret_config::Problem;
use egret_diagnosis::{Discovered, Pin, Traffic};
use egret_export::access_log::AccessLog;
use egret_flow::{FlowsSnapshot, HandedFlows, UnknownFault, UnknownFlow};
use egret_message::authority::{Authority, Host};
use egret_message::{ListenAddress, UnixPath, default_port};
use egret_net::descriptors::OpenFiles;
use egret_net::dns::{Addresses, DnsError, NoAddress, Resolver};
use egret_net::event_loop::EventLoop;
use egret_net::listen::{self, SocketFile};
use egret_net::os::kernel::{SockRef, TcpListener, pair};
use egret_net::policy::{EgressTarget, Verdict};
use egret_observe::counters;
use egret_observe::stats::{InterceptionSnapshot, StatsSnapshot};
use egret_plan::Plan;
use egret_plan::config::{GatewayConfig, LimitsConfig, Parts};
use egret_quota::{Balance, Inheritance, Lending};
use egret_remedy::FaultSwitch;
use egret_store::entries::Purge;
use egret_store::shared::Purged;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::{info, warn};

use crate::exchange::stop::OTHER_GENERATION;
use crate::worker::{Backlog, Inbox, Shared, StopAccepting, WorkerMessage};

/// Maximum time for the workers to apply a new configuration, before the reload counts as done. They take
/// microseconds, unless the machine is so busy that one of them does not run.
const APPLIED_MAX: Duration =
    if cfg!(feature = "simulated") { Duration::ZERO } else { Duration::from_secs(10) };

/// Maximum time for the workers to handle their messages while the gateway is handed over.
const HANDLED_MAX: Duration = Duration::from_millis(50);

/// A running gateway. Dropping it does not stop it; [`drain`](Self::drain) does.
#[derive(Debug)]
pub struct Gateway {
    shared: Arc<Shared>,
    started: Instant,
    own: Vec<SocketAddr>,
    state: Mutex<GatewayState>,
    /// Receives a message from each worker that has ended.
    ended: Mutex<Receiver<()>>,
}

/// The state that a reload changes.
#[derive(Debug)]
struct GatewayState {
    plan: Arc<Plan>,
    listeners: Vec<Listener>,
    /// Stops the acceptors of adopted sockets.
    adopted: Vec<Stop>,
    /// Sockets of `listeners` on which nothing is accepted until the gateway is opened.
    unopened: Vec<TcpListener>,
}

/// Stops an acceptor, which confirms that it has ended.
type Stop = oneshot::Sender<StopAccepting>;

/// A bound listener.
#[derive(Debug)]
struct Listener {
    /// The configured address, whose port may be 0.
    requested: ListenAddress,
    bound: ListenAddress,
    /// Stops the acceptor.
    stop: Option<Stop>,
    /// A handle of the socket, for another process. Clients are accepted on it until it is closed.
    socket: Option<TcpListener>,
    /// The file of a Unix socket, unless somebody else has made it. It goes when no client is accepted.
    file: Option<SocketFile>,
}

/// A question to every worker, which each answers by dropping its sender.
#[derive(Debug)]
pub struct Pulse(Receiver<Infallible>);

impl Pulse {
    /// Returns `true` once every worker has handled the question, or has ended.
    pub fn is_answered(&self) -> bool {
        self.0.try_recv() == Err(TryRecvError::Disconnected)
    }

    /// Waits until every worker has handled the question, or has ended, but at most for this time.
    fn wait(&self, max: Duration) {
        // Nothing is ever sent, so each error ends the wait.
        let _ = self.0.recv_timeout(max);
    }
}

/// The reason why a gateway did not start, or a new configuration was not applied. Nothing has changed in
/// that case.
#[derive(Debug)]
pub enum StartError {
    /// The configuration is invalid.
    Config(Vec<Problem>),
    /// An address cannot be listened on.
    Listen(ListenAddress, io::Error),
    /// The system provides no thread, no event loop, or no access to the log file.
    System(&'static str, io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(problems) => {
                f.write_str("the configuration is invalid:")?;
                problems.iter().try_for_each(|problem| write!(f, " {}: {};", problem.path, problem.message))
            }
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::System(what, error) => write!(f, "cannot {what}: {error}"),
        }
    }
}

impl std::error::Error for StartError {}

impl Gateway {
    /// Starts the threads and the listeners. `own` holds other ports of this process, which no exchange may
    /// connect to.
    pub fn start(parts: Parts<'_>, own: &[SocketAddr]) -> Result<Arc<Self>, StartError> {
        let gateway = Self::prepare(parts, own)?;
        gateway.open();
        Ok(gateway)
    }

    /// Starts the threads and binds the listeners. Clients that connect wait until the gateway is
    /// [opened](Self::open).
    pub fn prepare(parts: Parts<'_>, own: &[SocketAddr]) -> Result<Arc<Self>, StartError> {
        OpenFiles::get();
        let dns = &parts.gateway.dns;
        let (gateway, inboxes, end) = Self::assemble(parts, own, || Resolver::start(dns))?;
        for (number, inbox) in inboxes.into_iter().enumerate() {
            let (shared, plan) = (Arc::clone(&gateway.shared), Arc::clone(&gateway.state.lock().plan));
            let end = end.clone();
            drop(EventLoop::new().map_err(|error| StartError::System("create an event loop", error))?);
            let run = move || {
                // This worked a moment ago. An event loop cannot move between threads, so it is created here.
                if let Ok(event_loop) = EventLoop::new() {
                    event_loop.block_on(thread::run(number, shared, plan, inbox));
                }
                // The receiver may be gone.
                let _ = end.send(());
            };
            let thread = std::thread::Builder::new().name(format!("egret-worker-{number}")).spawn(run);
            thread.map_err(|error| StartError::System("start a worker", error))?;
        }
        Ok(Arc::new(gateway))
    }

    /// Binds the listeners and makes everything that the workers share. Returns their inboxes, and the end by
    /// which they report that they have ended.
    fn assemble(
        parts: Parts<'_>,
        own: &[SocketAddr],
        resolver: impl FnOnce() -> io::Result<Resolver>,
    ) -> Result<(Self, Vec<Inbox>, mpsc::Sender<()>), StartError> {
        let config = parts.gateway;
        let workers = config.workers.count();
        let (listeners, sockets, bound) = bind_all(config, &[], parts.inherited)?;
        let plan = Plan::compile(Parts { gateway: &bound, ..parts }, own, workers, None)
            .map_err(StartError::Config)?;
        let plan = Arc::new(plan);
        let resolver = resolver().map_err(|error| StartError::System("start the resolver", error))?;
        let access_log = AccessLog::start(&config.access_log)
            .map_err(|error| StartError::System("open the access log", error))?;
        let (shared, boxes) = Shared::new(workers, resolver, access_log, parts.traffic);
        let shared = Arc::new(shared);
        shared.gathered.set_max(plan.gathered_bytes());
        plan.flows.accounts().put_in_force();
        let recording = shared.records.apply(&plan.flows.diagnoses);
        recording.map_err(|error| StartError::System("start the diagnosis thread", error))?;
        let (end, ended) = mpsc::channel();
        let gateway = Self {
            shared,
            started: Instant::now(),
            own: own.to_vec(),
            state: Mutex::new(GatewayState { plan, listeners, adopted: Vec::new(), unopened: sockets }),
            ended: Mutex::new(ended),
        };
        Ok((gateway, boxes, end))
    }

    /// Begins to accept clients. Later calls have no effect.
    pub fn open(&self) {
        let clients_max = OpenFiles::get().clients_max();
        self.shared.clients_max.store(clients_max, Relaxed);
        let mut state = self.state.lock();
        let configured = state.plan.limits.connections;
        if configured > clients_max && configured == LimitsConfig::default().connections {
            info!(
                clients_max,
                "the limit of open files (`ulimit -Hn`) permits fewer clients than `gateway.limits.connections` by default"
            );
        } else if configured > clients_max {
            warn!(
                configured,
                clients_max,
                "`gateway.limits.connections` does not fit the limit of open files (`ulimit -Hn`), so fewer are accepted"
            );
        }
        let (listeners, sockets) =
            (std::mem::take(&mut state.listeners), std::mem::take(&mut state.unopened));
        state.listeners = self.listen(listeners, sockets);
    }

    /// Returns handles of the listening sockets, for a process that takes over.
    pub fn listening_sockets(&self) -> io::Result<Vec<TcpListener>> {
        self.state
            .lock()
            .listeners
            .iter()
            .filter_map(|one| one.socket.as_ref())
            .map(TcpListener::try_clone)
            .collect()
    }

    /// Returns the listening addresses, in the order of the configuration, with the real ports in place of 0.
    pub fn addresses(&self) -> Vec<ListenAddress> {
        self.state.lock().listeners.iter().map(|listener| listener.bound).collect()
    }

    /// Also accepts clients on a socket that the caller has made, in another network namespace for instance.
    /// They are served as those of listener number `listener`.
    ///
    /// # Errors
    ///
    /// Fails if there is no such listener, or if the socket cannot be prepared.
    pub fn adopt(&self, socket: TcpListener, listener: usize) -> io::Result<()> {
        listen::prepare(&SockRef::from(&socket))?;
        let mut state = self.state.lock();
        let found = state.listeners.get(listener).map(|listener| listener.bound);
        let bound = found.ok_or_else(|| io::Error::other(format!("there is no listener {listener}")))?;
        let (stop, stopped) = oneshot::channel();
        self.shared.send(0, WorkerMessage::Listen(socket, bound, stopped));
        state.adopted.push(stop);
        Ok(())
    }

    /// Looks up the addresses of a host for a client that is about to call it. The policy decides before a
    /// name server is asked.
    pub async fn look_up(&self, host: &str) -> Result<Addresses, NoAddress> {
        let name = Host::parse(host.as_bytes()).map_err(|_| NoAddress::Dns(DnsError::NotFound))?;
        let plan = Arc::clone(&self.state.lock().plan);
        let is_allowed = [true, false].into_iter().any(|tls| {
            let authority = Authority { host: name.clone(), port: default_port(tls) };
            let configured = plan.table.by_authority(&authority).is_some();
            let target = EgressTarget { authority: &authority, configured };
            !matches!(plan.other_hosts.policy().check_host(&target), Verdict::Deny(_))
        });
        if !is_allowed {
            return Err(NoAddress::Denied);
        }
        self.shared.network.resolver.resolve(&name.to_string()).await.map_err(NoAddress::Dns)
    }

    /// Applies a new configuration completely, or returns an error and changes nothing. Exchanges in progress
    /// keep the old one; those that begin after the return have the new one. Connections, counters and
    /// look-ups stay if nothing about them changes. The number of workers stays. Blocks for a few
    /// milliseconds. If a worker is held up for ten seconds, it gets the new one later.
    pub fn reload(&self, parts: Parts<'_>) -> Result<(), StartError> {
        let config = parts.gateway;
        let mut state = self.state.lock();
        let (listeners, sockets, bound) = bind_all(config, &state.listeners, parts.inherited)?;
        let workers = self.shared.network.counters.len();
        let mut plan =
            Plan::compile(Parts { gateway: &bound, ..parts }, &self.own, workers, Some(&state.plan))
                .map_err(StartError::Config)?;
        plan.generation = self.shared.generation.load(Relaxed);
        let reopened = self.shared.access_log.reconfigure(&config.access_log);
        reopened.map_err(|error| StartError::System("open the access log", error))?;
        self.shared.network.resolver.reconfigure(&config.dns);
        plan.flows.accounts().put_in_force();
        let recording = self.shared.records.apply(&plan.flows.diagnoses);
        recording.map_err(|error| StartError::System("start the diagnosis thread", error))?;
        state.plan = Arc::new(plan);
        self.shared.gathered.set_max(state.plan.gathered_bytes());
        self.shared.broadcast(|| WorkerMessage::Plan(Arc::clone(&state.plan)));
        let mut listeners = self.listen(listeners, sockets);
        for before in &mut state.listeners {
            // Listeners that stay pass their handle on. Dropping the other handles stops their acceptors.
            if let Some(kept) = listeners.iter_mut().find(|listener| listener.bound == before.bound) {
                kept.stop = kept.stop.take().or(before.stop.take());
                kept.socket = kept.socket.take().or(before.socket.take());
                kept.file = kept.file.take().or(before.file.take());
            }
        }
        for (file, listener) in listeners.iter().map(|listener| &listener.file).zip(&config.listen) {
            if let (Some(file), Ok(Some(rights))) = (file, listener.unix_rights())
                && let Err(error) = file.permit(rights)
            {
                warn!(address = %listener.address, %error, "the permissions of a Unix socket stay as they were");
            }
        }
        state.listeners = listeners;
        drop(state);
        self.pulse().wait(APPLIED_MAX);
        self.shared.reloads.fetch_add(1, Relaxed);
        Ok(())
    }

    /// Counts a configuration that was rejected before [`reload`](Self::reload).
    pub fn count_refused_reload(&self) {
        self.shared.reloads_refused.fetch_add(1, Relaxed);
    }

    /// Returns all counters, summed over all workers.
    pub fn stats(&self) -> StatsSnapshot {
        let plan = Arc::clone(&self.state.lock().plan);
        let workers = &self.shared.network.counters;
        let moment = Moment::now();
        let now = self.shared.clock.timestamp(moment);
        let providers = plan.providers.iter().map(|provider| provider.snapshot(moment));
        let (diagnoses_shedding, diagnoses_sheds) = self.shared.records.shedding();
        StatsSnapshot {
            diagnoses_shedding,
            diagnoses_sheds,
            uptime_s: self.started.elapsed().as_secs(),
            providers: providers.chain(plan.other_hosts.stats.snapshot()).collect(),
            clients: counters::clients(workers),
            interception: InterceptionSnapshot {
                refusing: self.shared.refusals.hosts(),
                ca_expires_s: plan.interception.as_ref().map(|plan| plan.expires_s(now)),
                ..counters::interception(workers)
            },
            generated: counters::generated(workers),
            dns: self.shared.network.resolver.snapshot(),
            denials: counters::denials(workers),
            unproven: counters::unproven(workers),
            floods: counters::floods(workers),
            reloads: self.shared.reloads.load(Relaxed),
            reloads_refused: self.shared.reloads_refused.load(Relaxed),
            access_log_dropped: workers.iter().map(|worker| worker.access_log_dropped.get()).sum(),
            gathered_bytes: self.shared.gathered.taken() as u64,
        }
    }

    /// Returns the counters of the flows, and the state of their quotas and accounts, with at most
    /// `groups_max` groups per quota.
    pub fn flows(&self, groups_max: usize) -> FlowsSnapshot {
        let plan = Arc::clone(&self.state.lock().plan);
        plan.flows.snapshot(self.shared.clock.timestamp(Moment::now()), groups_max)
    }

    /// Returns the issuers whose tokens prove clients. Their keys have to be fetched.
    pub fn issuers(&self) -> Vec<Arc<Issuer>> {
        self.state.lock().plan.issuers()
    }

    /// Returns the endpoints that diagnoses have discovered, and after them those of all exchanges, unless
    /// the config switches that off.
    pub fn discovered(&self) -> Vec<Discovered> {
        let plan = Arc::clone(&self.state.lock().plan);
        let all = plan.discovers.then(|| self.shared.tallies.discovered(&self.shared.clock));
        plan.flows.diagnoses.discovered().into_iter().chain(all).collect()
    }

    /// Returns the list of failed exchanges.
    pub fn failures(&self) -> &Arc<Traffic> {
        &self.shared.failures
    }

    /// Returns the list of recent exchanges.
    pub fn traffic(&self) -> &Arc<Traffic> {
        &self.shared.traffic
    }

    /// Records exchanges for the list of recent exchanges from now on, or stops that and empties the list.
    pub fn watch_traffic(&self, is_open: bool) {
        // A plan that is applied at the same time must not undo this.
        let _state = self.state.lock();
        if !self.shared.traffic.set_open(is_open) {
            return;
        }
        if let Err(error) = self.shared.records.watch() {
            warn!(%error, "cannot start the diagnosis thread: live traffic shows nothing");
        }
        self.shared.broadcast(|| WorkerMessage::Traffic);
    }

    /// Returns the details of an exchange on one of these lists as JSON, if it is still there.
    pub fn details(&self, list: &Traffic, id: u64) -> Option<Vec<u8>> {
        let plan = Arc::clone(&self.state.lock().plan);
        list.details(id, &|flow, remedy| plan.flows.describe_remedy(flow, remedy))
    }

    /// Begins a new generation of the config with the next [`reload`](Self::reload). A request that was
    /// recorded under another one is not sent again: the new config could tell somebody what is in it.
    pub fn begin_generation(&self) {
        self.shared.generation.fetch_add(1, Relaxed);
    }

    /// Returns a connection within the process for a recorded request that is sent again. It is served like
    /// that of a client of `listener`, within the bounds of `pin`. Nobody else can reach it.
    ///
    /// # Errors
    ///
    /// Fails if the system has no sockets left, and with `PermissionDenied` if the request was recorded under
    /// another [generation](Self::begin_generation) of the config.
    pub fn resend(&self, listener: ListenAddress, pin: Pin) -> io::Result<UnixStream> {
        if pin.routed.generation != self.state.lock().plan.generation {
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, OTHER_GENERATION));
        }
        let (own, served) = pair()?;
        let worker = self.shared.least_loaded();
        self.shared.connections[worker].fetch_add(1, Relaxed);
        self.shared.send(worker, WorkerMessage::Resent(served, listener, Box::new(pin)));
        Ok(own)
    }

    /// Removes the responses that `purge` selects from all caches, or from those of one flow, and tells the
    /// other gateways of a cluster.
    ///
    /// # Errors
    ///
    /// Fails if there is no such flow.
    pub fn purge(&self, flow: Option<&str>, purge: Purge<'_>) -> Result<Purged, UnknownFlow> {
        let plan = Arc::clone(&self.state.lock().plan);
        plan.flows.purge(flow, purge)
    }

    /// Switches faults. See [`Flows::switch_faults`](egret_flow::Flows::switch_faults).
    ///
    /// # Errors
    ///
    /// Fails if there is no such fault.
    pub fn switch_faults(
        &self,
        flow: Option<&str>,
        remedy: Option<&str>,
        switch: FaultSwitch,
    ) -> Result<usize, UnknownFault> {
        let plan = Arc::clone(&self.state.lock().plan);
        let now = self.shared.clock.timestamp(Moment::now());
        plan.flows.switch_faults(flow, remedy, now, switch)
    }

    /// Returns the disks of all caches that have one. Each needs a thread to work.
    pub fn cache_disks(&self) -> Vec<CacheDisk> {
        self.state.lock().plan.flows.cache_disks()
    }

    /// Returns unused lent units of quotas to the store. Call it after [`drain`](Self::drain), when nothing
    /// draws from the quotas any more.
    pub fn give_quotas_back(&self) {
        self.state.lock().plan.flows.quotas.give_back();
    }

    /// Asks every worker to show that its event loop turns. Does not wait for them.
    pub fn pulse(&self) -> Pulse {
        let (sender, pulse) = mpsc::channel();
        self.shared.broadcast(|| WorkerMessage::Pulse(sender.clone()));
        Pulse(pulse)
    }

    /// Returns `true` if the gateway has been told to stop.
    pub fn is_draining(&self) -> bool {
        self.shared.draining.load(Relaxed)
    }

    /// Stops the gateway: accepts no new connections, and waits for the exchanges in progress, at most
    /// `timeouts.drain`, and for their records to be written. Returns `true` if all exchanges ended in time.
    /// Blocks.
    pub fn drain(&self) -> bool {
        self.shared.draining.store(true, Relaxed);
        let timeout = self.state.lock().plan.timeouts.drain;
        let deadline = timeout.map(|timeout| Instant::now() + timeout);
        for is_done in self.stop_accepting(Backlog::Serve) {
            // An error means that the acceptor has already ended.
            let _ = is_done.blocking_recv();
        }
        // Queued in every inbox behind the last accepted client.
        self.shared.broadcast(|| WorkerMessage::Drain);
        let ended = self.ended.lock();
        let have_ended = (0..self.shared.network.counters.len()).all(|_| match deadline {
            Some(deadline) => ended.recv_timeout(deadline.saturating_duration_since(Instant::now())).is_ok(),
            None => ended.recv_timeout(Duration::MAX).is_ok(),
        });
        self.shared.records.stop(deadline);
        have_ended
    }

    /// Stops all acceptors. Returns the ends by which they say that they have stopped.
    fn stop_accepting(&self, backlog: Backlog) -> Vec<oneshot::Receiver<()>> {
        let stops: Vec<Stop> = {
            let mut state = self.state.lock();
            let adopted = std::mem::take(&mut state.adopted);
            let stop = |listener: &mut Listener| {
                (listener.socket, listener.file) = (None, None);
                listener.stop.take()
            };
            adopted.into_iter().chain(state.listeners.iter_mut().filter_map(stop)).collect()
        };
        let ask = |stop: Stop| {
            let (done, is_done) = oneshot::channel();
            stop.send(StopAccepting { done, backlog }).ok().map(|()| is_done)
        };
        stops.into_iter().filter_map(ask).collect()
    }

    /// Makes the first worker accept on newly bound sockets.
    fn listen(&self, mut listeners: Vec<Listener>, sockets: Vec<TcpListener>) -> Vec<Listener> {
        for socket in sockets {
            let Ok(bound) = listen::address(&socket) else { continue };
            let (stop, stopped) = oneshot::channel();
            let handle = socket.try_clone().ok();
            self.shared.send(0, WorkerMessage::Listen(socket, bound, stopped));
            if let Some(listener) = listeners.iter_mut().find(|listener| listener.bound == bound) {
                listener.stop = Some(stop);
                listener.socket = handle;
            }
        }
        listeners
    }
}

/// The state that one process hands over to the next.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct HandedState {
    /// A moment by the clock that both processes read, in nanoseconds.
    moment_ns: u64,
    /// The same moment by the clock of the process that hands over, in microseconds since 1970.
    now_us: u64,
    flows: HandedFlows,
    /// The Unix sockets whose files the next process is to remove.
    #[serde(default)]
    files: Vec<String>,
}

/// The hand-over from one process to the next.
impl Gateway {
    /// Stops accepting clients, so that another process accepts them on the same sockets, and returns the
    /// state that it takes over. Connections that are open close after the response in progress, or after one
    /// more. For these responses, quotas keep a reserve, which the returned state counts as used.
    /// [`drain`](Self::drain) waits for them. Blocks for a few milliseconds.
    pub fn hand_over(&self) -> HandedState {
        self.shared.draining.store(true, Relaxed);
        let leave = |listener: &mut Listener| listener.file.take().map(|file| file.leave().to_string());
        let files = self.state.lock().listeners.iter_mut().filter_map(leave).collect();
        for is_done in self.stop_accepting(Backlog::Leave) {
            let _ = is_done.blocking_recv();
        }
        // Behind the last accepted client in every inbox.
        self.shared.broadcast(|| WorkerMessage::Drain);
        self.pulse().wait(HANDLED_MAX);
        self.handed(files)
    }

    /// Returns the state that the next process takes over, with the Unix sockets whose files it is to remove.
    fn handed(&self, files: Vec<String>) -> HandedState {
        let plan = Arc::clone(&self.state.lock().plan);
        let moment = Moment::now();
        let now = self.shared.clock.timestamp(moment);
        let flows = plan.flows.hand_over(now, self.shared.open_connections());
        HandedState { moment_ns: moment.as_nanos(), now_us: now.as_micros(), flows, files }
    }

    /// Takes over the state of an earlier process, before the gateway is [opened](Self::open). Returns the
    /// units of quotas that the earlier process may still use.
    pub fn inherit(&self, handed: &HandedState) -> Inheritance {
        let (moment, now) = (Moment::from_nanos(handed.moment_ns), Timestamp::from_micros(handed.now_us));
        self.shared.clock.follow(moment, now);
        let mut state = self.state.lock();
        for path in handed.files.iter().filter_map(|path| UnixPath::new(path).ok()) {
            let file = SocketFile::of(path).ok();
            let kept = state.listeners.iter_mut().find(|listener| listener.bound.unix() == Some(path));
            // A file that no listener keeps is removed here.
            if let Some(kept) = kept {
                kept.file = file;
            }
        }
        let plan = Arc::clone(&state.plan);
        drop(state);
        plan.flows.inherit(self.shared.clock.timestamp(Moment::now()), &handed.flows)
    }

    /// Reports what has become of the units that the next process holds for this one.
    pub fn report(&self) -> Vec<Balance> {
        let (plan, now) = self.plan_and_time();
        plan.flows.quotas.report(now, self.shared.open_connections())
    }

    /// Adds units of quotas that the next process has lent; `None` if it does not lend any more.
    pub fn lend(&self, lendings: Option<&[Lending]>) {
        let (plan, now) = self.plan_and_time();
        match lendings {
            Some(lendings) => plan.flows.quotas.lend(now, lendings),
            None => plan.flows.quotas.stop_lending(),
        }
    }

    /// Counts what the earlier process reports, and lends it the units that it wants.
    pub fn settle(&self, inheritance: &mut Inheritance, balances: &[Balance]) -> Vec<Lending> {
        let (plan, now) = self.plan_and_time();
        inheritance.settle(&plan.flows.quotas, now, balances)
    }

    /// Counts the units that the earlier process may have used: it has ended.
    pub fn end(&self, inheritance: Inheritance) {
        inheritance.end(self.plan_and_time().1);
    }

    fn plan_and_time(&self) -> (Arc<Plan>, Timestamp) {
        (Arc::clone(&self.state.lock().plan), self.shared.clock.timestamp(Moment::now()))
    }
}

type Bound = (Vec<Listener>, Vec<TcpListener>, GatewayConfig);

/// Binds the addresses that are not bound yet, unless a socket for them was inherited. Returns the
/// configuration with the real addresses.
fn bind_all(
    config: &GatewayConfig,
    before: &[Listener],
    inherited: &[TcpListener],
) -> Result<Bound, StartError> {
    let mut bound_config = config.clone();
    let (mut listeners, mut sockets) = (Vec::new(), Vec::new());
    for listener in &mut bound_config.listen {
        let requested = listener.address;
        let is_taken = |known: &&Listener| {
            known.requested == requested
                && listeners.iter().all(|taken: &Listener| taken.bound != known.bound)
        };
        let (bound, file) = if let Some(known) = before.iter().find(is_taken) {
            (known.bound, None)
        } else {
            let failed = |error| StartError::Listen(requested, error);
            let rights = listener.unix_rights().map_err(|error| failed(io::Error::other(error)))?;
            let (socket, bound, file) = listen::open(requested, inherited, rights).map_err(failed)?;
            sockets.push(socket);
            (bound, file)
        };
        listener.address = bound;
        listeners.push(Listener { requested, bound, stop: None, socket: None, file });
    }
    Ok((listeners, sockets, bound_config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pulse_is_answered_once_no_worker_holds_it() {
        let (sender, receiver) = mpsc::channel();
        let pulse = Pulse(receiver);
        for worker in [sender.clone(), sender] {
            assert!(!pulse.is_answered());
            drop(worker);
        }
        assert!(pulse.is_answered());
        pulse.wait(Duration::MAX);
    }
}
