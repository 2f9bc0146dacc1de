//! Calls that the tasks beside the leases make over the connection of their segment.

use std::sync::Arc;
use std::time::Duration;

use egret_store::shared::ScriptCall;
use redis::aio::MultiplexedConnection;
use redis::{FromRedisValue, RedisError, Value, cmd};
use tokio::sync::watch;

use super::connection::field;

/// Time for which a call waits for a connection. A gateway that starts has none yet.
const CONNECTION_WAIT: Duration = Duration::from_secs(1);

/// A connection over which messages arrive, and the process of the store.
#[derive(Debug, Clone)]
pub(super) struct ReadyStore {
    pub redis: MultiplexedConnection,
    pub run: Arc<str>,
}

impl ReadyStore {
    /// Subscribes to a channel.
    pub async fn subscribe(mut redis: MultiplexedConnection, channel: &[u8]) -> Result<Self, RedisError> {
        let _: Value = cmd("SUBSCRIBE").arg(channel).query_async(&mut redis).await?;
        let info: String = cmd("INFO").arg("server").query_async(&mut redis).await?;
        let run = field(&info, "run_id").unwrap_or_default().into();
        Ok(Self { redis, run })
    }

    /// Runs a script. It is sent each time: these calls are rare.
    pub async fn evaluate<T: FromRedisValue>(
        &self,
        script: &str,
        call: &ScriptCall,
    ) -> Result<T, RedisError> {
        let mut command = cmd("EVAL");
        command.arg(script).arg(call.keys.len()).arg(&call.keys).arg(&call.arguments);
        command.query_async(&mut self.redis.clone()).await
    }
}

/// Returns the connection, if there is one soon.
pub(super) async fn ready(store: &watch::Sender<Option<ReadyStore>>) -> Option<ReadyStore> {
    let mut store = store.subscribe();
    let is_ready = tokio::time::timeout(CONNECTION_WAIT, store.wait_for(Option::is_some)).await.ok()?;
    is_ready.ok()?.clone()
}
