//! The membership of a gateway in a cluster: a thread that calls Redis or Valkey, which workers never do.
//!
//! Groups of quotas reach the thread through a [`GroupSink`], which never blocks. The protocol is a state
//! machine in the room `store`; here are its clock, its random numbers and its connection.

mod config;
mod connection;
mod link;
mod purges;
mod seal;
mod segment;
mod sink;
mod store_calls;
mod token_files;
mod tokens;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{fmt, io};

use egret_store::SharedState;
use egret_store::shared::{GroupSink, Member, Segment, SharedPurges, SharedTokens, Terms};
use tokio::sync::{mpsc, watch};

pub use config::{ClusterConfig, RedisConfig, RedisTlsConfig, SentinelConfig};
use link::LinkSender;
use seal::ClusterKey;
use segment::SegmentTask;
use sink::ClusterSink;
use token_files::TokenFiles;
use tokens::ClusterTokens;

/// Maximum number of groups and presses that wait for the thread.
const QUEUE_MAX: usize = 4_096;
/// Time for the last call.
const LEAVE_MAX: Duration = Duration::from_secs(1);
/// Directory of the tokens on disk, in that of the gateway's data.
const TOKENS_DIRECTORY: &str = "tokens";

/// The running thread.
pub struct ClusterThread {
    sink: Arc<dyn GroupSink>,
    /// Without a key, tokens are not shared. The second one is for accounts.
    tokens: Option<(Arc<ClusterTokens>, Arc<dyn SharedTokens>)>,
    purges: Arc<dyn SharedPurges>,
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
    /// Starts the member `name`, which keeps refresh tokens in `data_dir`. The store need not be reachable.
    pub fn start(config: &ClusterConfig, name: &str, data_dir: &Path) -> Result<Self, ClusterStartError> {
        Self::start_with(config, name, data_dir, config.terms())
    }

    /// Starts a member with these durations.
    pub(crate) fn start_with(
        config: &ClusterConfig,
        name: &str,
        data_dir: &Path,
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
        let segment = Segment::new(&config.name, 0);
        let derive = |secret| ClusterKey::new(&config.name, secret).map_err(io::Error::other);
        let key = || config.key.as_ref().map(derive).transpose().map_err(ClusterStartError);
        let (purges, purging) = purges::purges(segment.clone(), key()?, member.instance(), link.subscribe());
        let (learn, files) =
            (Duration::from_millis(terms.learn_ms), TokenFiles(data_dir.join(TOKENS_DIRECTORY)));
        let tokens = key()?.map(|key| tokens::tokens(segment, key, learn, files, link.subscribe()));
        let (tokens, sharing) = tokens.unzip();
        let task = SegmentTask::new(config, terms, member, asked, receiver, Arc::clone(&status), link);
        let work = async move {
            tokio::spawn(purging.run());
            if let Some(sharing) = sharing {
                tokio::spawn(sharing.run());
            }
            task.run().await;
        };
        let thread = std::thread::Builder::new()
            .name("egret-cluster".into())
            .spawn(move || runtime.block_on(work))
            .map_err(ClusterStartError)?;
        let tokens = tokens.map(|tokens| (Arc::clone(&tokens), tokens as Arc<dyn SharedTokens>));
        Ok(Self { sink, tokens, purges, status, config: sender, thread })
    }

    /// The sink that quotas use.
    pub fn sink(&self) -> &Arc<dyn GroupSink> {
        &self.sink
    }

    /// The ways in which other state than quotas is shared.
    pub fn shared(&self) -> SharedState<'_> {
        SharedState { tokens: self.tokens.as_ref().map(|(_, tokens)| tokens), purges: Some(&self.purges) }
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
        if let Some((tokens, _)) = &self.tokens {
            tokens.leave();
        }
        self.config.send_replace(None);
        if self.thread.join().is_err() {
            tracing::error!(
                "the thread of the cluster has failed: the units of this gateway come back later"
            );
        }
    }
}
