//! A connection to a server of the store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use egret_store::shared::{CALL_SCRIPT, ScriptCall};
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ClientTlsConfig, Cmd, ConnectionAddr, IntoConnectionInfo, ProtocolVersion,
    PushInfo, RedisConnectionInfo, RedisError, TlsCertificates, Value, cmd, pipe,
};
use tokio::sync::broadcast;

use super::config::{Address, Login, RedisConfig, RedisTlsConfig};

/// Time for a connection, and for a reply.
const CONNECT_MAX: Duration = Duration::from_secs(1);
const REPLY_MAX: Duration = Duration::from_millis(250);

/// The reason why the store cannot be used.
#[derive(Debug, Clone)]
pub(super) enum StoreTrouble {
    /// An error of the client, or of a server.
    Redis(RedisError),
    /// A file of TLS cannot be read.
    File(String),
    /// The server is not a master.
    NotMaster,
    /// No place is left to look for the master.
    NoMaster,
    /// The sentinels know no master of this name.
    UnknownMaster(String),
    /// Sentinel names another master.
    Switched,
    /// The reply is not one of the script's.
    Reply,
    /// An error at this server.
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

impl fmt::Display for StoreTrouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Redis(error) => write!(f, "{error}"),
            Self::File(error) => f.write_str(error),
            Self::NotMaster => f.write_str("the server is a replica: name its master, or use `sentinel`"),
            Self::NoMaster => f.write_str("no server names a master"),
            Self::UnknownMaster(name) => write!(f, "the sentinels know no master named `{name}`"),
            Self::Switched => f.write_str("Sentinel names another master"),
            Self::Reply => f.write_str("the reply is not Egret's: another program may use its keys"),
            Self::At(address, trouble) => write!(f, "{address}: {trouble}"),
        }
    }
}

impl From<RedisError> for StoreTrouble {
    fn from(error: RedisError) -> Self {
        Self::Redis(error)
    }
}

/// A connection to a master. The clones share it.
#[derive(Clone)]
pub(super) struct StoreConnection {
    redis: MultiplexedConnection,
    /// The server's process.
    pub(super) run: Arc<str>,
    /// The digest of the script.
    script: Arc<str>,
}

impl StoreConnection {
    /// Makes sure that a connection leads to a master, and prepares it for calls.
    pub(super) async fn to_master(mut redis: MultiplexedConnection) -> Result<Self, StoreTrouble> {
        let (role, info, memory, script): (Vec<Value>, String, String, String) = pipe()
            .cmd("ROLE")
            .cmd("INFO")
            .arg("server")
            .cmd("INFO")
            .arg("memory")
            .cmd("SCRIPT")
            .arg("LOAD")
            .arg(CALL_SCRIPT)
            .query_async(&mut redis)
            .await?;
        if !matches!(role.first(), Some(Value::BulkString(role)) if role == b"master") {
            return Err(StoreTrouble::NotMaster);
        }
        let run = field(&info, "run_id").ok_or(StoreTrouble::Reply)?.into();
        if let Some(policy) = field(&memory, "maxmemory_policy").filter(|policy| *policy != "noeviction") {
            warn_of_eviction(policy);
        }
        Ok(Self { redis, run, script: script.into() })
    }

    /// The connection, for other commands than calls.
    pub(super) fn redis(&self) -> MultiplexedConnection {
        self.redis.clone()
    }

    /// Receives the messages of a channel from now on.
    pub(super) async fn subscribe(&mut self, channel: &[u8]) -> Result<(), StoreTrouble> {
        let _: Value = cmd("SUBSCRIBE").arg(channel).query_async(&mut self.redis).await?;
        Ok(())
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

/// Connects to a server as a user. Its messages go to `pushes`.
pub(super) async fn connect(
    config: &RedisConfig,
    login: Login<'_>,
    address: &Address,
    pushes: &broadcast::Sender<PushInfo>,
) -> Result<MultiplexedConnection, StoreTrouble> {
    let has_tls = config.has_tls();
    let place = match address {
        Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        Address::Tcp(host, port) if has_tls => {
            ConnectionAddr::TcpTls { host: host.clone(), port: *port, insecure: false, tls_params: None }
        }
        Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
    };
    let mut settings =
        RedisConnectionInfo::default().set_protocol(ProtocolVersion::RESP3).set_skip_set_lib_name();
    if let Some(username) = login.username {
        settings = settings.set_username(username);
    }
    if let Some(password) = login.password {
        settings = settings.set_password(password.expose());
    }
    let info = place.into_connection_info()?.set_redis_settings(settings);
    let client = if has_tls {
        // The client of Redis uses the provider of the process, and panics without one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
        Client::build_with_tls(info, certificates(config.tls.as_ref())?)?
    } else {
        Client::open(info)?
    };
    let options = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_MAX))
        .set_response_timeout(Some(REPLY_MAX))
        .set_push_sender(pushes.clone());
    Ok(client.get_multiplexed_async_connection_with_config(&options).await?)
}

fn certificates(tls: Option<&RedisTlsConfig>) -> Result<TlsCertificates, StoreTrouble> {
    let read = |path: &std::path::PathBuf| {
        std::fs::read(path).map_err(|error| StoreTrouble::File(format!("{}: {error}", path.display())))
    };
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
