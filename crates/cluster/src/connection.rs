//! A connection to the master of a segment, and the search for it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egret_store::shared::{CALL_SCRIPT, ScriptCall, Segment};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisError, TlsCertificates, Value, cmd,
};
use tokio::sync::broadcast;

use super::config::{Address, RedisConfig, SentinelConfig};

/// Time for a connection, and for a reply.
const CONNECT_MAX: Duration = Duration::from_secs(1);
const REPLY_MAX: Duration = Duration::from_millis(250);
/// Maximum number of nodes of a Redis Cluster asked for a master.
const REDIRECTS_MAX: usize = 4;

/// The reason why the store cannot be used.
#[derive(Debug)]
pub(super) enum StoreTrouble {
    /// An error of the client, or of the server.
    Redis(RedisError),
    /// A file of TLS cannot be read.
    File(String),
    /// The server is not a master.
    NotMaster,
    /// No place is left to look for the master.
    NoMaster,
    /// The reply is not one of the script's.
    Reply,
}

impl fmt::Display for StoreTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(error) => write!(f, "{error}"),
            Self::File(error) => f.write_str(error),
            Self::NotMaster => f.write_str("the server is not a master"),
            Self::NoMaster => f.write_str("no server names a master"),
            Self::Reply => f.write_str("the reply is not Egret's: another program may use its keys"),
        }
    }
}

impl From<RedisError> for StoreTrouble {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// A connection to a master.
pub(super) struct StoreConnection {
    redis: MultiplexedConnection,
    /// The server's process.
    pub(super) run: Arc<str>,
    /// The digest of the script.
    script: String,
}

impl StoreConnection {
    /// Connects to the master that has the keys of `segment`. Its messages go to `pushes`.
    pub(super) async fn open(
        config: &RedisConfig,
        segment: &Segment,
        pushes: &broadcast::Sender<PushInfo>,
    ) -> Result<Self, StoreTrouble> {
        let mut trouble = StoreTrouble::NoMaster;
        for address in config.addresses() {
            let master = match &config.sentinel {
                Some(sentinel) => master_of(config, sentinel, &address).await,
                None => Ok(address),
            };
            let opened = match master {
                Ok(master) => Self::at(config, master, segment, pushes).await,
                Err(trouble) => Err(trouble),
            };
            match opened {
                Ok(connection) => return Ok(connection),
                Err(error) => trouble = error,
            }
        }
        Err(trouble)
    }

    /// Connects to this server, or to the one that it names.
    async fn at(
        config: &RedisConfig,
        address: Address,
        segment: &Segment,
        pushes: &broadcast::Sender<PushInfo>,
    ) -> Result<Self, StoreTrouble> {
        let mut address = address;
        for _ in 0..REDIRECTS_MAX {
            let mut redis = connect(config, &address, Some(pushes)).await?;
            let asked: Result<Value, RedisError> =
                cmd("EXISTS").arg(segment.members()).query_async(&mut redis).await;
            match asked {
                Ok(_) => return Self::to_master(redis, segment).await,
                Err(error) => {
                    let moved =
                        error.redirect_node().and_then(|(node, _)| super::config::host_and_port(node));
                    let (host, port) = moved.ok_or(error)?;
                    address = Address::Tcp(host, port);
                }
            }
        }
        Err(StoreTrouble::NoMaster)
    }

    async fn to_master(mut redis: MultiplexedConnection, segment: &Segment) -> Result<Self, StoreTrouble> {
        let role: Vec<Value> = cmd("ROLE").query_async(&mut redis).await?;
        let is_master = matches!(role.first(), Some(Value::BulkString(role)) if role == b"master");
        if !is_master {
            return Err(StoreTrouble::NotMaster);
        }
        let info: String = cmd("INFO").arg("server").query_async(&mut redis).await?;
        let run = field(&info, "run_id").ok_or(StoreTrouble::Reply)?.into();
        let memory: String = cmd("INFO").arg("memory").query_async(&mut redis).await?;
        if let Some(policy) = field(&memory, "maxmemory_policy").filter(|policy| *policy != "noeviction") {
            tracing::warn!(
                policy,
                "the store may evict keys of shared quotas: set its `maxmemory-policy` to `noeviction`"
            );
        }
        let script: String = cmd("SCRIPT").arg("LOAD").arg(CALL_SCRIPT).query_async(&mut redis).await?;
        let _: Value = cmd("SUBSCRIBE").arg(segment.channel()).query_async(&mut redis).await?;
        Ok(Self { redis, run, script })
    }

    /// The connection, for other commands than calls.
    pub(super) fn redis(&self) -> MultiplexedConnection {
        self.redis.clone()
    }

    /// Applies a call. Returns the script's reply.
    pub(super) async fn call(&mut self, call: &ScriptCall) -> Result<Vec<u8>, StoreTrouble> {
        let evaluate = |name: &str, script: &str| {
            let mut command = Cmd::new();
            command.arg(name).arg(script).arg(call.keys.len()).arg(&call.keys).arg(&call.arguments);
            command
        };
        let reply: Result<Vec<u8>, RedisError> =
            evaluate("EVALSHA", &self.script).query_async(&mut self.redis).await;
        match reply {
            Err(error) if error.code() == Some("NOSCRIPT") => {
                Ok(evaluate("EVAL", CALL_SCRIPT).query_async(&mut self.redis).await?)
            }
            reply => Ok(reply?),
        }
    }
}

/// Asks a sentinel for the master.
async fn master_of(
    config: &RedisConfig,
    sentinel: &SentinelConfig,
    address: &Address,
) -> Result<Address, StoreTrouble> {
    let plain = RedisConfig { username: None, password: None, ..config.clone() };
    let mut redis = connect(&plain, address, None).await?;
    let master: Option<(String, u16)> =
        cmd("SENTINEL").arg("get-master-addr-by-name").arg(&sentinel.master).query_async(&mut redis).await?;
    let (host, port) = master.ok_or(StoreTrouble::NoMaster)?;
    Ok(Address::Tcp(host, port))
}

async fn connect(
    config: &RedisConfig,
    address: &Address,
    pushes: Option<&broadcast::Sender<PushInfo>>,
) -> Result<MultiplexedConnection, StoreTrouble> {
    let has_tls = config.has_tls();
    let address = match address {
        Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        Address::Tcp(host, port) if has_tls => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
        Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
    };
    let mut settings =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    if let Some(username) = &config.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = &config.password {
        settings = settings.set_password(password.expose());
    }
    let info = address.into_connection_info()?.set_redis_settings(settings);
    let client =
        if has_tls { Client::build_with_tls(info, certificates(config)?)? } else { Client::open(info)? };
    let options = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_MAX))
        .set_response_timeout(Some(REPLY_MAX));
    let options = match pushes {
        Some(pushes) => options.set_push_sender(pushes.clone()),
        None => options,
    };
    Ok(client.get_multiplexed_async_connection_with_config(&options).await?)
}

fn certificates(config: &RedisConfig) -> Result<TlsCertificates, StoreTrouble> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|error| StoreTrouble::File(format!("{}: {error}", path.display())))
    };
    let tls = config.tls.as_ref();
    let root_cert = tls.and_then(|tls| tls.ca.as_ref()).map(read).transpose()?;
    let client_cert = tls.and_then(|tls| tls.certificate.as_ref()).map(read).transpose()?;
    let client_key = tls.and_then(|tls| tls.key.as_ref()).map(|key| key.expose().as_bytes().to_vec());
    let client_tls = client_cert
        .zip(client_key)
        .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
    Ok(TlsCertificates { client_tls, root_cert })
}

/// Returns a field of `INFO`.
pub(super) fn field<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
}
