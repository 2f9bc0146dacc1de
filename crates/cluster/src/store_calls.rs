//! Calls that the tasks beside the leases make over the connection of their shard.

use std::sync::Arc;
use std::time::Duration;

use egret_store::shared::ScriptCall;
use redis::{FromRedisValue, cmd};
use tokio::sync::watch;

use super::connection::{Connection, StoreTrouble, run_id};

/// Time for which a call waits for a connection. A gateway that starts has none yet.
const CONNECTION_WAIT: Duration = Duration::from_secs(1);

/// A connection over which messages arrive, and the process of the store.
#[derive(Debug, Clone)]
pub(super) struct ReadyStore {
    pub connection: Connection,
    pub incarnation: Arc<str>,
}

impl ReadyStore {
    /// Subscribes to a channel.
    pub async fn subscribe(connection: Connection, channel: &[u8]) -> Result<Self, StoreTrouble> {
        connection.subscribe(channel).await?;
        let info: String = connection.query(cmd("INFO").arg("server")).await?;
        let incarnation = run_id(&info).unwrap_or_default().into();
        Ok(Self { connection, incarnation })
    }

    /// Runs a script. It is sent each time: these calls are rare.
    pub async fn evaluate<T: FromRedisValue>(
        &self,
        script: &str,
        call: &ScriptCall,
    ) -> Result<T, StoreTrouble> {
        let mut command = cmd("EVAL");
        command.arg(script).arg(call.keys.len()).arg(&call.keys).arg(&call.arguments);
        self.connection.query(&command).await
    }
}

/// Returns the connection, if there is one soon.
pub(super) async fn ready(mut store: watch::Receiver<Option<ReadyStore>>) -> Option<ReadyStore> {
    let is_ready = tokio::time::timeout(CONNECTION_WAIT, store.wait_for(Option::is_some)).await.ok()?;
    is_ready.ok()?.clone()
}
