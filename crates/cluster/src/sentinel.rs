//! The master's address, as Sentinel names it.

use std::time::Duration;

use egret_clock::Random;
use redis::aio::MultiplexedConnection;
use redis::{PushInfo, RedisError, Value, cmd};
use tokio::sync::broadcast;

use super::config::{Address, Login, RedisConfig, SentinelConfig};
use super::connection::{StoreTrouble, connect};
use super::link::message;

/// The channel on which a sentinel tells that a master was replaced.
const SWITCH_CHANNEL: &str = "+switch-master";
/// Time between two questions whether the sentinel still names the master. A message may have been lost.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Number of messages of a sentinel that wait.
const PUSHES_MAX: usize = 16;

/// Asks the sentinels for the master, in an order of chance, until one names it.
pub(super) async fn master(
    config: &RedisConfig,
    sentinel: &SentinelConfig,
    pushes: &broadcast::Sender<PushInfo>,
    random: &mut Random,
) -> Result<Address, StoreTrouble> {
    let mut nodes = config.nodes();
    let first = usize::try_from(random.draw()).unwrap_or(0) % nodes.len().max(1);
    nodes.rotate_left(first);
    let mut trouble = StoreTrouble::NoMaster;
    for node in nodes {
        match ask_at(config, sentinel, &node, pushes).await {
            Ok(master) => return Ok(master),
            Err(error) => trouble = error.at(&node),
        }
    }
    Err(trouble)
}

async fn ask_at(
    config: &RedisConfig,
    sentinel: &SentinelConfig,
    node: &Address,
    pushes: &broadcast::Sender<PushInfo>,
) -> Result<Address, StoreTrouble> {
    ask(&mut connect(config, login(sentinel), node, pushes).await?, sentinel).await
}

/// Returns once a sentinel names another master than this. If one cannot be asked, the next is.
pub(super) async fn switched(
    config: &RedisConfig,
    sentinel: &SentinelConfig,
    master: &Address,
) -> StoreTrouble {
    let mut nodes = config.nodes().into_iter().cycle();
    loop {
        let Some(node) = nodes.next() else { return StoreTrouble::NoMaster };
        if watch(config, sentinel, &node, master).await.is_ok() {
            return StoreTrouble::Switched;
        }
        tokio::time::sleep(ASK_EVERY).await;
    }
}

/// Returns once this sentinel names another master.
async fn watch(
    config: &RedisConfig,
    sentinel: &SentinelConfig,
    node: &Address,
    master: &Address,
) -> Result<(), StoreTrouble> {
    let (pushes, mut received) = broadcast::channel(PUSHES_MAX);
    let mut redis = connect(config, login(sentinel), node, &pushes).await?;
    let _: Value = cmd("SUBSCRIBE").arg(SWITCH_CHANNEL).query_async(&mut redis).await?;
    while ask(&mut redis, sentinel).await? == *master {
        let switched = async {
            while let Ok(push) = received.recv().await {
                if message(&push).is_some() {
                    return;
                }
            }
        };
        let _ = tokio::time::timeout(ASK_EVERY, switched).await;
    }
    Ok(())
}

async fn ask(redis: &mut MultiplexedConnection, sentinel: &SentinelConfig) -> Result<Address, StoreTrouble> {
    let asked: Result<Option<(String, u16)>, RedisError> =
        cmd("SENTINEL").arg("get-master-addr-by-name").arg(&sentinel.master).query_async(redis).await;
    let (host, port) = asked?.ok_or_else(|| StoreTrouble::UnknownMaster(sentinel.master.clone()))?;
    Ok(Address::Tcp(host, port))
}

fn login(sentinel: &SentinelConfig) -> Login<'_> {
    Login { username: sentinel.username.as_deref(), password: sentinel.password.as_ref() }
}
