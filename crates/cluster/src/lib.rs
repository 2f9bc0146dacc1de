//! The membership of a gateway in a cluster: a thread that calls Redis or Valkey, which workers never do.
//!
//! Groups of quotas reach the thread through a [`GroupSink`], which never blocks. The protocol is a state
//! machine in the room `store`; here are its clock, its random numbers and its connections.

mod claims;
mod config;
mod connection;
mod dial;
mod facts;
mod guard;
mod known_generation;
mod link;
mod marks;
mod masters;
mod purges;
mod reply;
mod seal;
mod sentinel;
mod shard;
mod sink;
mod status;
mod store_calls;
mod token_files;
mod tokens;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use egret_store::SharedState;
use egret_store::marks::MarkSink;
use egret_store::shared::{GroupSink, Member, Shard, SharedPurges, SharedTokens, Terms};
use parking_lot::Mutex;
use tokio::sync::{broadcast, mpsc, watch};
use tokio::task::JoinSet;

pub use claims::{ClaimOutcome, ClusterClaims};
pub use config::{ClusterConfig, RedisConfig, RedisTlsConfig, SHARDS, SentinelConfig};
use facts::QUEUE_MAX;
use known_generation::KnownGeneration;
use link::{LinkSender, Message};
use masters::Masters;
use seal::ClusterKey;
use shard::{ShardParts, ShardTask};
use sink::{ClusterSink, Digester, ShardSink};
use status::SharedStatus;
pub use status::{ClusterStatus, RENEWAL_BOUNDS_US, ShardStatus};
use token_files::TokenFiles;
use tokens::ClusterTokens;

/// Directory of the tokens on disk, in that of the gateway's data.
const TOKENS_DIRECTORY: &str = "tokens";
/// Begin of the names of files with the generation of a shard, there too.
const GENERATION_FILE: &str = "cluster-generation-";

/// The running thread.
pub struct ClusterThread {
    sink: Arc<dyn GroupSink>,
    handles: Handles,
    monitor: ClusterMonitor,
    messages: broadcast::Sender<Message>,
    redis: Mutex<RedisConfig>,
    store: watch::Sender<Option<Arc<Masters>>>,
    thread: JoinHandle<()>,
}

/// The sides of the tasks that share other state than quotas.
struct Handles {
    marks: Arc<dyn MarkSink>,
    /// Without a key, tokens are not shared. The second one is for accounts.
    tokens: Option<(Arc<ClusterTokens>, Arc<dyn SharedTokens>)>,
    purges: Arc<dyn SharedPurges>,
    claims: ClusterClaims,
}

impl Handles {
    /// Spawns the tasks on the runtime that was entered. They use the connection of `link`.
    fn spawn(
        config: &ClusterConfig,
        data_dir: &Path,
        terms: Terms,
        link: &LinkSender,
    ) -> Result<Self, ClusterStartError> {
        let shard = Shard::new(&config.name, 0);
        let derive = |secret| ClusterKey::new(&config.name, secret).map_err(io::Error::other);
        let key = || config.key.as_ref().map(derive).transpose().map_err(ClusterStartError);
        let marks = marks::spawn(shard.clone(), Digester::new(config), shard::random(), link.subscribe());
        let claims = claims::spawn(shard.clone(), Digester::new(config), link.subscribe());
        let purges = purges::spawn(shard.clone(), key()?, shard::random(), link.subscribe());
        let (learn, files) =
            (Duration::from_millis(terms.recovery_ms), TokenFiles(data_dir.join(TOKENS_DIRECTORY)));
        let tokens = key()?.map(|key| {
            let tokens = tokens::spawn(shard, key, learn, files, link);
            (Arc::clone(&tokens), tokens as Arc<dyn SharedTokens>)
        });
        Ok(Self { marks, tokens, purges, claims })
    }
}

/// A view of the membership.
#[derive(Debug, Clone)]
pub struct ClusterMonitor {
    cluster: Arc<str>,
    member: Arc<str>,
    joined: Instant,
    learn_for: Duration,
    shards: Arc<[SharedStatus]>,
}

/// The reason why the thread cannot start.
#[derive(Debug, thiserror::Error)]
#[error("the thread of the cluster cannot start: {0}")]
pub struct ClusterStartError(#[source] io::Error);

impl ClusterThread {
    /// Starts the member `name`, which keeps in `data_dir` refresh tokens, and what it knows of the store.
    /// The store need not be reachable. No unit of a quota counts for longer than `cool_down` after its call.
    pub fn start(
        config: &ClusterConfig,
        name: &str,
        data_dir: &Path,
        cool_down: Duration,
    ) -> Result<Self, ClusterStartError> {
        let terms = config.terms();
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(ClusterStartError)?;
        let messages = link::messages();
        let (store, changed) = watch::channel(Some(Arc::new(Masters::new(&config.redis, &messages))));
        let (mut sinks, mut statuses, mut tasks) = (Vec::new(), Vec::new(), Vec::new());
        // All state besides quotas is in the first shard.
        let first = LinkSender::new(&messages);
        let handles = {
            let _entered = runtime.enter();
            Handles::spawn(config, data_dir, terms, &first)?
        };
        let mut first = Some(first);
        for number in 0..config.redis.shards() {
            let known = KnownGeneration::new(data_dir.join(format!("{GENERATION_FILE}{number}")));
            let member = Member::new(terms, name.into(), shard::random()).knowing(known.read(cool_down));
            let (asks, asked) = mpsc::channel(QUEUE_MAX);
            sinks.push(ShardSink { asks, lease: Arc::clone(member.lease()) });
            let link = first.take().unwrap_or_else(|| LinkSender::new(&messages));
            let status = SharedStatus::default();
            statuses.push(status.clone());
            let shard = Shard::new(&config.name, number);
            let store = changed.clone();
            tasks.push(ShardTask::new(ShardParts {
                terms,
                shard,
                member,
                known,
                asked,
                store,
                status,
                link,
            }));
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
            shards: statuses.into(),
        };
        let redis = Mutex::new(config.redis.clone());
        Ok(Self { sink, handles, monitor, messages, redis, store, thread })
    }

    /// The sink that quotas use.
    pub fn sink(&self) -> &Arc<dyn GroupSink> {
        &self.sink
    }

    /// The shared state besides quotas.
    pub fn shared(&self) -> SharedState<'_> {
        SharedState {
            marks: Some(&self.handles.marks),
            tokens: self.handles.tokens.as_ref().map(|(_, tokens)| tokens),
            purges: Some(&self.handles.purges),
        }
    }

    /// The claims of the cluster.
    pub fn claims(&self) -> &ClusterClaims {
        &self.handles.claims
    }

    /// A view of the membership, which may outlive the thread.
    pub fn monitor(&self) -> ClusterMonitor {
        self.monitor.clone()
    }

    /// Applies another address of the store, another user or password. The identity of the member stays.
    pub fn reconfigure(&self, config: &ClusterConfig) {
        let mut redis = self.redis.lock();
        if *redis != config.redis {
            redis.clone_from(&config.redis);
            self.store.send_replace(Some(Arc::new(Masters::new(&redis, &self.messages))));
        }
    }

    /// Returns all units, and ends the thread. No call to a provider is in transit.
    pub fn leave(self) {
        if let Some((tokens, _)) = &self.handles.tokens {
            tokens.leave();
        }
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
            shards: self.shards.iter().map(SharedStatus::get).collect(),
        }
    }
}

/// Runs the tasks of all shards until they have left.
async fn work(shards: Vec<ShardTask>) {
    let mut tasks: JoinSet<()> = shards.into_iter().map(ShardTask::run).collect();
    while let Some(ended) = tasks.join_next().await {
        if ended.is_err() {
            tracing::error!(
                "a task of the cluster has failed: its units come back later, and only a restart shares its quotas again"
            );
        }
    }
}
