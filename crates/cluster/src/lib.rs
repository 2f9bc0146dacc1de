//! The membership of a gateway in a cluster: a thread that calls Redis or Valkey, which workers never do.
//!
//! Groups of quotas reach the thread through a [`GroupSink`], which never blocks. The protocol is a state
//! machine in the room `store`; here are its clock, its random numbers and its connections.

mod config;
mod connection;
mod link;
mod masters;
mod segment;
mod sentinel;
mod sink;
mod status;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use std::{fmt, io};

use egret_store::shared::{GroupSink, Member, Segment, Terms};
use redis::PushInfo;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;

pub use config::{ClusterConfig, RedisConfig, RedisTlsConfig, SEGMENTS, SentinelConfig};
use link::LinkSender;
use masters::Masters;
use segment::{SegmentParts, SegmentTask};
use sink::{ClusterSink, SegmentSink};
use status::SharedStatus;
pub use status::{ClusterStatus, RENEWAL_BOUNDS_US, SegmentStatus};

/// Maximum number of groups and presses that wait for the task of a segment.
const QUEUE_MAX: usize = 4_096;

/// The running thread.
pub struct ClusterThread {
    sink: Arc<dyn GroupSink>,
    monitor: ClusterMonitor,
    pushes: broadcast::Sender<PushInfo>,
    redis: Mutex<RedisConfig>,
    store: watch::Sender<Option<Arc<Masters>>>,
    thread: JoinHandle<()>,
}

/// A view of the membership.
#[derive(Debug, Clone)]
pub struct ClusterMonitor {
    cluster: Arc<str>,
    member: Arc<str>,
    joined: Instant,
    learn_for: Duration,
    segments: Arc<[SharedStatus]>,
}

/// The reason why the thread cannot start.
#[derive(Debug)]
pub struct ClusterStartError(io::Error);

impl fmt::Display for ClusterStartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the thread of the cluster cannot start: {}", self.0)
    }
}

impl std::error::Error for ClusterStartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

impl ClusterThread {
    /// Starts the member `name`. The store need not be reachable.
    pub fn start(config: &ClusterConfig, name: &str) -> Result<Self, ClusterStartError> {
        Self::start_with(config, name, config.terms())
    }

    /// Starts a member with these durations.
    pub(crate) fn start_with(
        config: &ClusterConfig,
        name: &str,
        terms: Terms,
    ) -> Result<Self, ClusterStartError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ClusterStartError)?;
        let pushes = link::pushes();
        let (store, changed) = watch::channel(Some(Arc::new(Masters::new(&config.redis, &pushes))));
        let (mut sinks, mut statuses, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        for number in 0..config.redis.segments() {
            let member = Member::new(terms, name.into(), segment::random());
            let (asks, asked) = mpsc::channel(QUEUE_MAX);
            sinks.push(SegmentSink { asks, lease: Arc::clone(member.lease()) });
            let (status, link) = (SharedStatus::default(), LinkSender::new(&pushes));
            statuses.push(status.clone());
            let segment = Segment::new(&config.name, number);
            let store = changed.clone();
            tasks.push(SegmentTask::new(SegmentParts { terms, segment, member, asked, store, status, link }));
        }
        let sink = Arc::new(ClusterSink::new(config, sinks));
        let thread = std::thread::Builder::new()
            .name("egret-cluster".into())
            .spawn(move || runtime.block_on(work(tasks)))
            .map_err(ClusterStartError)?;
        let monitor = ClusterMonitor {
            cluster: config.name.as_str().into(),
            member: name.into(),
            joined: Instant::now(),
            learn_for: config.learn_for.get(),
            segments: statuses.into(),
        };
        Ok(Self { sink, monitor, pushes, redis: Mutex::new(config.redis.clone()), store, thread })
    }

    /// The sink that quotas use.
    pub fn sink(&self) -> &Arc<dyn GroupSink> {
        &self.sink
    }

    /// A view of the membership, which may outlive the thread.
    pub fn monitor(&self) -> ClusterMonitor {
        self.monitor.clone()
    }

    /// Applies another address of the store, another user or password. The identity of the member stays.
    pub fn reconfigure(&self, config: &ClusterConfig) {
        let mut redis = self.redis.lock().unwrap_or_else(PoisonError::into_inner);
        if *redis != config.redis {
            redis.clone_from(&config.redis);
            self.store.send_replace(Some(Arc::new(Masters::new(&redis, &self.pushes))));
        }
    }

    /// Returns all units, and ends the thread. No call to a provider is in transit.
    pub fn leave(self) {
        self.store.send_replace(None);
        if self.thread.join().is_err() {
            tracing::error!(
                "the thread of the cluster has failed: the units of this gateway come back later"
            );
        }
    }
}

impl ClusterMonitor {
    /// The state of the membership.
    pub fn status(&self) -> ClusterStatus {
        ClusterStatus {
            cluster: Arc::clone(&self.cluster),
            member: Arc::clone(&self.member),
            age: self.joined.elapsed(),
            learn_for: self.learn_for,
            segments: self.segments.iter().map(SharedStatus::get).collect(),
        }
    }
}

/// Runs the tasks of all segments until they have left.
async fn work(segments: Vec<SegmentTask>) {
    let mut tasks: JoinSet<()> = segments.into_iter().map(SegmentTask::run).collect();
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err() {
            tracing::error!(
                "a task of the cluster has failed: its units come back later, and only a restart shares its quotas again"
            );
        }
    }
}
