//! The membership of a gateway in a cluster: a thread that calls Redis or Valkey, which workers never do.
//!
//! Groups of quotas reach the thread through a [`GroupSink`], which never blocks. The protocol is a state
//! machine in the room `store`; here are its clock, its random numbers and its connection.

mod config;
mod connection;
mod link;
mod marks;
mod segment;
mod sink;

use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use egret_store::SharedState;
use egret_store::marks::MarkSink;
use egret_store::shared::{GroupSink, Member, Terms};
use tokio::sync::{mpsc, watch};

pub use config::{ClusterConfig, RedisConfig, RedisTlsConfig, SentinelConfig};
use link::LinkSender;
use segment::SegmentTask;
use sink::{ClusterSink, Digester};

/// Maximum number of groups and presses that wait for the thread.
const QUEUE_MAX: usize = 4_096;
/// Time for the last call.
const LEAVE_MAX: Duration = Duration::from_secs(1);

/// The running thread.
pub struct ClusterThread {
    sink: Arc<dyn GroupSink>,
    marks: Arc<dyn MarkSink>,
    status: Arc<Mutex<ClusterStatus>>,
    config: watch::Sender<Option<Arc<ClusterConfig>>>,
    thread: JoinHandle<()>,
}

/// The state of the membership, for people and metrics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterStatus {
    /// `true` if the last call to the store was answered.
    pub is_up: bool,
    /// The reason why it was not.
    pub error: Option<String>,
    /// Number of members, as the store told last.
    pub members: u64,
    /// Number of groups whose units this gateway shares.
    pub groups: usize,
    /// Number of calls to the store.
    pub calls: u64,
    /// Time from the last call to its reply, in microseconds.
    pub call_us: u64,
    /// Remaining time for which the store only learns, as told last, in milliseconds.
    pub learning_ms: u64,
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
        let status = Arc::new(Mutex::new(ClusterStatus::default()));
        let (sender, receiver) = watch::channel(Some(Arc::new(config.clone())));
        let (asks, asked) = mpsc::channel(QUEUE_MAX);
        let member = Member::new(terms, name.into(), segment::random());
        let sink = Arc::new(ClusterSink::new(config, asks, Arc::clone(member.lease())));
        let link = LinkSender::new();
        let (marks, marks_task) =
            marks::marks(&config.name, Digester::new(config), segment::random(), link.subscribe());
        let task = SegmentTask::new(config, terms, member, asked, receiver, Arc::clone(&status), link);
        runtime.spawn(marks_task.run());
        let thread = std::thread::Builder::new()
            .name("egret-cluster".into())
            .spawn(move || runtime.block_on(task.run()))
            .map_err(ClusterStartError)?;
        Ok(Self { sink, marks, status, config: sender, thread })
    }

    /// The sink that quotas use.
    pub fn sink(&self) -> &Arc<dyn GroupSink> {
        &self.sink
    }

    /// The ways in which state besides quotas is shared.
    pub fn shared(&self) -> SharedState<'_> {
        SharedState { marks: Some(&self.marks) }
    }

    /// The state of the membership.
    pub fn status(&self) -> ClusterStatus {
        self.status.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies another address of the store, another user or password. The identity of the member stays.
    pub fn reconfigure(&self, config: &ClusterConfig) {
        self.config.send_replace(Some(Arc::new(config.clone())));
    }

    /// Returns all units, and ends the thread. No call to a provider is in transit.
    pub fn leave(self) {
        self.config.send_replace(None);
        if self.thread.join().is_err() {
            tracing::error!(
                "the thread of the cluster has failed: the units of this gateway come back later"
            );
        }
    }
}
