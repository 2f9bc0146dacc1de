//! The master's address, as Sentinel names it.

use std::time::Duration;

use egret_clock::Random;
use redis::cmd;
use tokio::sync::broadcast;

use super::config::{Address, Login, RedisConfig, SentinelConfig};
use super::connection::{Connection, StoreTrouble, connect};
use super::link::Message;

/// The channel on which a sentinel tells that a master was replaced.
const SWITCH_CHANNEL: &str = "+switch-master";
/// Time between two questions whether the sentinel still names the master. A message may have been lost.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Number of messages of a sentinel that wait.
const MESSAGES_MAX: usize = 16;
/// Maximum length of a host that a sentinel names.
const HOST_BYTES_MAX: usize = 255;

/// Asks the sentinels for the master, in an order of chance, until one names it.
pub(super) async fn master(
    config: &RedisConfig,
    sentinel: &SentinelConfig,
    messages: &broadcast::Sender<Message>,
    random: &mut Random,
) -> Result<Address, StoreTrouble> {
    let mut nodes = config.nodes();
    let first = usize::try_from(random.draw()).unwrap_or(0) % nodes.len().max(1);
    nodes.rotate_left(first);
    let mut trouble = StoreTrouble::NoMaster;
    for node in nodes {
        match ask_at(config, sentinel, &node, messages).await {
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
    messages: &broadcast::Sender<Message>,
) -> Result<Address, StoreTrouble> {
    ask(&connect(config, login(sentinel), node, messages).await?, sentinel).await
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
    let (messages, mut received) = broadcast::channel::<Message>(MESSAGES_MAX);
    let connection = connect(config, login(sentinel), node, &messages).await?;
    connection.subscribe(SWITCH_CHANNEL.as_bytes()).await?;
    while ask(&connection, sentinel).await? == *master {
        // Without a message, it is asked all the same.
        let _ = tokio::time::timeout(ASK_EVERY, received.recv()).await;
    }
    Ok(())
}

async fn ask(connection: &Connection, sentinel: &SentinelConfig) -> Result<Address, StoreTrouble> {
    let mut command = cmd("SENTINEL");
    command.arg("get-master-addr-by-name").arg(&sentinel.master);
    let asked: Option<(String, u16)> = connection.query(&command).await?;
    let (host, port) = asked.ok_or_else(|| StoreTrouble::UnknownMaster(sentinel.master.clone()))?;
    if host.len() > HOST_BYTES_MAX {
        return Err(StoreTrouble::Reply);
    }
    Ok(Address::Tcp(host, port))
}

fn login(sentinel: &SentinelConfig) -> Login<'_> {
    Login { username: sentinel.username.as_deref(), password: sentinel.password.as_ref() }
}
