//! Resolves host names for all workers.
//!
//! One thread, `egret-dns`, owns the cache and asks the name servers. Workers ask it over a channel. So a
//! name is looked up once for all workers and connections, and no lock is shared. A worker asks only when it
//! dials, which is rare compared with exchanges over pooled connections, so the hop between threads does not
//! matter.

mod cache;
mod lookup;
mod message;
#[cfg(feature = "simulated")]
pub mod simulated;

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use cache::Cache;
use lookup::{Lookup, SystemLookup};
pub use message::{DnsQuestion, NoAddress};
use tokio::runtime::{Builder, LocalOptions};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use crate::config::DnsConfig;
use crate::counter::{Counter, DnsSnapshot};

/// Maximum number of look-ups in progress. Further names are queued.
const LOOKUPS_MAX: usize = 128;

/// Maximum number of queued names. Further ones fail with [`DnsError::Busy`].
const QUEUE_MAX: usize = 4_096;

/// Maximum number of waiters over all names. Further ones fail with [`DnsError::Busy`].
const WAITERS_MAX: usize = 65_536;

/// Maximum number of requests in the channel to the thread. Further ones fail with [`DnsError::Busy`].
const CHANNEL_MAX: usize = 8_192;

/// The reason why a name could not be resolved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum DnsError {
    /// The name does not exist or has no addresses.
    #[error("the host name does not exist or has no addresses")]
    NotFound,
    /// The name servers refuse, fail, or cannot be reached.
    #[error("the name servers failed or could not be reached")]
    Failed,
    /// No response within `gateway.dns.timeout`.
    #[error("the name servers did not respond in time")]
    Timeout,
    /// Too many look-ups are waiting.
    #[error("too many host names are being looked up already")]
    Busy,
    /// The gateway is stopping.
    #[error("the resolver has stopped")]
    Stopped,
}

/// The addresses of a name, never empty.
pub type Addresses = Arc<[IpAddr]>;

type LookupOutcome = Result<Addresses, DnsError>;

/// A handle to the resolver's thread, cloned into each worker. The thread ends with the last handle.
#[derive(Debug, Clone)]
pub struct Resolver {
    asks: mpsc::Sender<Ask>,
    config: watch::Sender<DnsConfig>,
    counters: Arc<Counters>,
}

#[derive(Debug)]
struct Ask {
    host: Box<str>,
    answer: oneshot::Sender<LookupOutcome>,
}

/// Written only by the resolver's thread, except `turned_away`.
#[derive(Debug, Default)]
struct Counters {
    lookups: Counter,
    hits: Counter,
    coalesced: Counter,
    failures: Counter,
    entries: AtomicU64,
    turned_away: AtomicU64,
}

impl Resolver {
    /// Starts the thread. Fails if the system has no thread or epoll instance left.
    pub fn start(config: &DnsConfig) -> io::Result<Self> {
        let (resolver, receivers) = Self::new(config);
        let counters = resolver.counters.clone();
        let config = config.clone();
        // The runtime cannot move between threads, so the thread creates it and reports the result.
        let (report, started) = std::sync::mpsc::sync_channel(1);
        std::thread::Builder::new().name("egret-dns".to_owned()).spawn(move || {
            match Builder::new_current_thread().enable_all().build_local(LocalOptions::default()) {
                Ok(runtime) => {
                    let _ = report.send(Ok(()));
                    runtime.block_on(serve(SystemLookup::new(&config), receivers, counters));
                }
                Err(error) => {
                    let _ = report.send(Err(error));
                }
            }
        })?;
        started.recv().unwrap_or_else(|_| Err(io::Error::other("the resolver's thread ended")))?;
        Ok(resolver)
    }

    fn new(config: &DnsConfig) -> (Self, Receivers) {
        let (asks, receiver) = mpsc::channel(CHANNEL_MAX);
        let (sender, watch) = watch::channel(config.clone());
        let resolver = Self { asks, config: sender, counters: Arc::default() };
        (resolver, Receivers { asks: receiver, config: watch })
    }

    /// Returns the addresses of `host`, a name in normal form or an address. They are in the name server's
    /// order, IPv6 before IPv4.
    ///
    /// `localhost` and names below it are loopback without a look-up (RFC 6761 §6.3).
    pub async fn resolve(&self, host: &str) -> Result<Addresses, DnsError> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok([ip].into());
        }
        if host == "localhost" || host.ends_with(".localhost") {
            return Ok([Ipv6Addr::LOCALHOST.into(), Ipv4Addr::LOCALHOST.into()].into());
        }
        let (answer, receiver) = oneshot::channel();
        self.asks.try_send(Ask { host: host.into(), answer }).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => {
                self.counters.turned_away.fetch_add(1, Relaxed);
                DnsError::Busy
            }
            mpsc::error::TrySendError::Closed(_) => DnsError::Stopped,
        })?;
        receiver.await.unwrap_or(Err(DnsError::Stopped))
    }

    /// Applies a new configuration from the next look-up on. Cached entries stay until they expire.
    pub fn reconfigure(&self, config: &DnsConfig) {
        self.config.send_replace(config.clone());
    }

    /// Returns the counters since the start.
    pub fn snapshot(&self) -> DnsSnapshot {
        let turned_away = self.counters.turned_away.load(Relaxed);
        DnsSnapshot {
            lookups: self.counters.lookups.get() + turned_away,
            hits: self.counters.hits.get(),
            coalesced: self.counters.coalesced.get(),
            failures: self.counters.failures.get() + turned_away,
            entries: self.counters.entries.load(Relaxed),
        }
    }
}

/// The receiving ends of the thread.
struct Receivers {
    asks: mpsc::Receiver<Ask>,
    config: watch::Receiver<DnsConfig>,
}

/// Serves requests until the last handle is dropped.
async fn serve<L: Lookup>(lookup: L, mut receivers: Receivers, counters: Arc<Counters>) {
    let config = receivers.config.borrow_and_update().clone();
    let service = Rc::new(Service {
        state: RefCell::new(ResolverState {
            lookup,
            cache: Cache::new(config.entries),
            config,
            waiting: HashMap::new(),
            waiters: 0,
            queue: VecDeque::new(),
            under_way: 0,
        }),
        counters,
    });
    while let Some(ask) = receivers.asks.recv().await {
        if receivers.config.has_changed().unwrap_or(false) {
            service.reconfigure(receivers.config.borrow_and_update().clone());
        }
        service.ask(ask);
    }
    // There are no waiters left, and look-ups dropped with the runtime must not start others.
    service.state.borrow_mut().queue.clear();
}

/// The cache and the look-ups in progress. The state is never borrowed over an `await`.
struct Service<L> {
    state: RefCell<ResolverState<L>>,
    counters: Arc<Counters>,
}

struct ResolverState<L> {
    lookup: L,
    config: DnsConfig,
    cache: Cache,
    /// The waiters of each name. A name is here from the first request to the result.
    waiting: HashMap<Arc<str>, Vec<oneshot::Sender<LookupOutcome>>>,
    /// Number of waiters over all names.
    waiters: usize,
    /// Names whose look-up has not started, with the time of the request.
    queue: VecDeque<(Arc<str>, Instant)>,
    under_way: usize,
}

impl<L: Lookup> Service<L> {
    fn reconfigure(&self, config: DnsConfig) {
        let mut state = self.state.borrow_mut();
        state.lookup.reconfigure(&config);
        state.cache.resize(config.entries);
        state.config = config;
        self.counters.entries.store(state.cache.len(), Relaxed);
    }

    fn ask(self: &Rc<Self>, Ask { host, answer }: Ask) {
        self.counters.lookups.add(1);
        let mut state = self.state.borrow_mut();
        let now = Instant::now();
        if let Some(outcome) = state.cache.get(&host, now) {
            self.counters.hits.add(1);
            self.reply(answer, outcome);
        } else if state.waiters >= WAITERS_MAX {
            self.reply(answer, Err(DnsError::Busy));
        } else if let Some(waiters) = state.waiting.get_mut(&*host) {
            waiters.push(answer);
            state.waiters += 1;
            self.counters.coalesced.add(1);
        } else if state.queue.len() >= QUEUE_MAX {
            self.reply(answer, Err(DnsError::Busy));
        } else {
            let host: Arc<str> = host.into();
            state.waiting.insert(host.clone(), vec![answer]);
            state.waiters += 1;
            state.queue.push_back((host, now));
            drop(state);
            self.begin();
        }
    }

    /// Starts queued look-ups up to the limit.
    fn begin(self: &Rc<Self>) {
        let mut state = self.state.borrow_mut();
        while state.under_way < LOOKUPS_MAX {
            let Some((host, since)) = state.queue.pop_front() else { return };
            state.under_way += 1;
            let timeout = state.config.timeout.get();
            let deadline = (!timeout.is_zero()).then(|| since + timeout);
            let looking_up = state.lookup.lookup(host.clone());
            let under_way = UnderWay { service: self.clone(), host, outcome: Err(DnsError::Failed) };
            tokio::task::spawn_local(async move {
                let outcome = match deadline {
                    Some(deadline) => {
                        tokio::time::timeout_at(deadline, looking_up).await.unwrap_or(Err(DnsError::Timeout))
                    }
                    None => looking_up.await,
                };
                under_way.done(outcome);
            });
        }
    }

    fn finish(self: &Rc<Self>, host: Arc<str>, outcome: Result<Answer, DnsError>) {
        let mut state = self.state.borrow_mut();
        state.under_way -= 1;
        let (outcome, lifetime) = match outcome {
            Ok(Answer { addresses, .. }) if addresses.is_empty() => {
                (Err(DnsError::NotFound), state.config.negative_ttl.get())
            }
            Ok(Answer { addresses, ttl }) => {
                let (min, max) = (state.config.ttl_min.get(), state.config.ttl_max.get());
                // Not `clamp`, which panics if the config has the minimum above the maximum.
                (Ok(addresses.into()), ttl.unwrap_or(min).min(max).max(min))
            }
            Err(error) => (Err(error), state.config.negative_ttl.get()),
        };
        let waiters = state.waiting.remove(&host).unwrap_or_default();
        state.waiters -= waiters.len();
        state.cache.insert(host, outcome.clone(), Instant::now() + lifetime);
        self.counters.entries.store(state.cache.len(), Relaxed);
        drop(state);
        for waiter in waiters {
            self.reply(waiter, outcome.clone());
        }
        self.begin();
    }

    fn reply(&self, asker: oneshot::Sender<LookupOutcome>, outcome: LookupOutcome) {
        if outcome.is_err() {
            self.counters.failures.add(1);
        }
        // The waiter may be gone.
        let _ = asker.send(outcome);
    }
}

/// A look-up in progress. It is finished on drop, so its waiters get a result even if it panics.
struct UnderWay<L: Lookup> {
    service: Rc<Service<L>>,
    host: Arc<str>,
    outcome: Result<Answer, DnsError>,
}

impl<L: Lookup> UnderWay<L> {
    fn done(mut self, outcome: Result<Answer, DnsError>) {
        self.outcome = outcome;
    }
}

impl<L: Lookup> Drop for UnderWay<L> {
    fn drop(&mut self) {
        let outcome = std::mem::replace(&mut self.outcome, Err(DnsError::Failed));
        self.service.clone().finish(self.host.clone(), outcome);
    }
}

/// The result of a look-up.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Answer {
    addresses: Vec<IpAddr>,
    /// Lifetime of the result. `None` if the source does not report one.
    ttl: Option<Duration>,
}

#[cfg(test)]
mod tests;
