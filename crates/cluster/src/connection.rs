//! A connection to a server of the store.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use egret_items::opaque;
use egret_store::shared::{CALL_SCRIPT, ScriptCall};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Cmd, FromRedisValue, Pipeline, ProtocolVersion, RedisConnectionInfo, RedisError,
    RedisResult, Value, cmd, pipe,
};
use tokio::sync::broadcast;
use tokio::task::AbortHandle;
use tokio::time::timeout;

use super::config::{Address, Login, RedisConfig};
use super::dial;
use super::guard::{GuardedStream, StreamState};
use super::link::{Message, message};
use super::reply::ReplyFault;

/// Time for a connection, and for a reply.
const CONNECT_MAX: Duration = Duration::from_secs(1);
const REPLY_MAX: Duration = Duration::from_millis(250);
/// Maximum number of characters of a server's text in a message.
const SHOWN_CHARS_MAX: usize = 200;
/// Maximum length of the name of a server's process.
const RUN_BYTES_MAX: usize = 64;

/// The reason why the store cannot be used.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum StoreTrouble {
    /// An error of the client, or of a server.
    #[error("{}", shown(&.0.to_string()))]
    Redis(#[from] RedisError),
    /// A file of TLS cannot be read.
    #[error("{0}")]
    File(String),
    /// The server sent what no server of the store sends.
    #[error("{0}")]
    Refused(ReplyFault),
    /// The server is not a master.
    #[error("the server is a replica: name its master, or use `sentinel`")]
    NotMaster,
    /// No place is left to look for the master.
    #[error("no server names a master")]
    NoMaster,
    /// The sentinels know no master of this name.
    #[error("the sentinels know no master named `{0}`")]
    UnknownMaster(String),
    /// Sentinel names another master.
    #[error("Sentinel names another master")]
    Switched,
    /// The reply is not one of the script's.
    #[error("the reply is not Egret's: another program may use its keys")]
    Reply,
    /// An error at this server.
    #[error("{0}: {1}")]
    At(Address, Box<StoreTrouble>),
}

impl StoreTrouble {
    /// Adds the server to the error.
    pub(super) fn at(self, address: &Address) -> Self {
        match self {
            Self::At(..) => self,
            _ => Self::At(address.clone(), Box::new(self)),
        }
    }
}

impl From<io::Error> for StoreTrouble {
    fn from(error: io::Error) -> Self {
        Self::Redis(error.into())
    }
}

/// A text of a server as it is shown: short, and on one line.
fn shown(text: &str) -> String {
    let mut shown: String =
        text.chars().take(SHOWN_CHARS_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    if shown.len() < text.len() {
        shown.push('…');
    }
    shown
}

/// A connection to a server. The clones share it, and it closes with the last of them.
#[derive(Clone)]
pub(super) struct Connection {
    redis: MultiplexedConnection,
    task: Arc<ConnectionTask>,
}

/// The task of a connection.
struct ConnectionTask {
    state: Arc<StreamState>,
    task: AbortHandle,
}

impl Drop for ConnectionTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

opaque!(Connection);

impl Connection {
    /// Sends a command, and returns the reply.
    pub(super) async fn query<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, StoreTrouble> {
        self.replied(command.query_async(&mut self.redis.clone()).await)
    }

    /// Sends several commands, and returns the replies.
    async fn query_all<T: FromRedisValue>(&self, commands: &Pipeline) -> Result<T, StoreTrouble> {
        self.replied(commands.query_async(&mut self.redis.clone()).await)
    }

    /// Receives the messages of a channel from now on.
    pub(super) async fn subscribe(&self, channel: &[u8]) -> Result<(), StoreTrouble> {
        self.task.state.subscribes();
        let _: Value = self.query(cmd("SUBSCRIBE").arg(channel)).await?;
        Ok(())
    }

    /// A call that took too long ends the connection for all of its users: its reply may still come, and may
    /// be of any length.
    fn replied<T>(&self, reply: RedisResult<T>) -> Result<T, StoreTrouble> {
        reply.map_err(|error| {
            if error.is_timeout() {
                self.task.task.abort();
            }
            self.task.state.refusal().map_or(StoreTrouble::Redis(error), StoreTrouble::Refused)
        })
    }
}

/// A connection to a master. The clones share it.
#[derive(Clone)]
pub(super) struct StoreConnection {
    connection: Connection,
    /// The server's process.
    pub(super) incarnation: Arc<str>,
    /// The digest of the script.
    script: Arc<str>,
}

impl StoreConnection {
    /// Makes sure that a connection leads to a master, and prepares it for calls.
    pub(super) async fn to_master(connection: Connection) -> Result<Self, StoreTrouble> {
        let mut commands = pipe();
        commands.cmd("ROLE").cmd("INFO").arg("server").cmd("INFO").arg("memory");
        commands.cmd("SCRIPT").arg("LOAD").arg(CALL_SCRIPT);
        let (role, info, memory, script): (Vec<Value>, String, String, String) =
            connection.query_all(&commands).await?;
        if !matches!(role.first(), Some(Value::BulkString(role)) if role == b"master") {
            return Err(StoreTrouble::NotMaster);
        }
        let incarnation = run_id(&info).ok_or(StoreTrouble::Reply)?.into();
        if let Some(policy) = field(&memory, "maxmemory_policy").filter(|policy| *policy != "noeviction") {
            warn_of_eviction(&shown(policy));
        }
        Ok(Self { connection, incarnation, script: script.into() })
    }

    /// The connection, for other commands than calls.
    pub(super) fn connection(&self) -> &Connection {
        &self.connection
    }

    /// Applies a call. Returns the script's reply.
    pub(super) async fn call(&self, call: &ScriptCall) -> Result<Vec<u8>, StoreTrouble> {
        let evaluate = |name: &str, script: &str| {
            let mut command = Cmd::new();
            command.arg(name).arg(script).arg(call.keys.len()).arg(&call.keys).arg(&call.arguments);
            command
        };
        match self.connection.query(&evaluate("EVALSHA", &self.script)).await {
            Err(StoreTrouble::Redis(error)) if error.code() == Some("NOSCRIPT") => {
                self.connection.query(&evaluate("EVAL", CALL_SCRIPT)).await
            }
            reply => reply,
        }
    }
}

/// Warns once in the life of the process: all servers of a store usually have the same config.
fn warn_of_eviction(policy: &str) {
    static WARNED: std::sync::Once = std::sync::Once::new();
    WARNED.call_once(|| {
        tracing::warn!(
            policy,
            "the store may evict keys of shared quotas: set its `maxmemory-policy` to `noeviction`"
        );
    });
}

/// Connects to a server as a user. Its messages go to `messages`.
pub(super) async fn connect(
    config: &RedisConfig,
    login: Login<'_>,
    address: &Address,
    messages: &broadcast::Sender<Message>,
) -> Result<Connection, StoreTrouble> {
    let state = Arc::<StreamState>::default();
    let opened = timeout(CONNECT_MAX, open(config, login, address, messages, &state)).await;
    let opened = opened.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut).into()));
    opened.map_err(|error| state.refusal().map_or(error, StoreTrouble::Refused))
}

async fn open(
    config: &RedisConfig,
    login: Login<'_>,
    address: &Address,
    messages: &broadcast::Sender<Message>,
    state: &Arc<StreamState>,
) -> Result<Connection, StoreTrouble> {
    let mut settings =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    if let Some(username) = login.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = login.password {
        settings = settings.set_password(password.expose());
    }
    let messages = messages.clone();
    let options = AsyncConnectionConfig::new().set_response_timeout(Some(REPLY_MAX)).set_push_sender(
        // Without a receiver, nobody misses it.
        move |push| message(push).map_or(Ok(()), |message| messages.send(message).map(drop)),
    );
    let stream = GuardedStream::new(dial::open(config, address).await?, Arc::clone(state));
    let (redis, task) = MultiplexedConnection::new_with_config(&settings, stream, options).await?;
    let connection_task =
        ConnectionTask { state: Arc::clone(state), task: tokio::spawn(task).abort_handle() };
    Ok(Connection { redis, task: Arc::new(connection_task) })
}

/// Returns a field of `INFO`.
fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}

/// Returns the name of the server's process, as `INFO server` tells it.
pub(super) fn run_id(info: &str) -> Option<&str> {
    field(info, "run_id").filter(|run| run.len() <= RUN_BYTES_MAX)
}
