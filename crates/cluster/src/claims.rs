//! Claims: of all gateways of a cluster, one does something, such as telling an alert.

use std::sync::Arc;
use std::sync::mpsc::{self, SyncSender};
use std::time::Duration;

use egret_items::opaque;
use egret_store::shared::Shard;
use redis::cmd;
use tokio::sync::mpsc::Sender;

use super::facts::{self, SharedFacts, StoreResult};
use super::link::Link;
use super::sink::Digester;
use super::store_calls::ReadyStore;

/// Maximum wait for the store.
const REPLY_MAX: Duration = Duration::from_secs(2);

/// The holder of a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimOutcome {
    /// This gateway has it.
    Own,
    /// Another gateway has it, or this one in an earlier life.
    Taken,
    /// The store has not responded.
    Unknown,
}

/// A message to the task.
pub(super) struct ClaimAsk {
    key: Vec<u8>,
    keep_ms: u64,
    reply: SyncSender<ClaimOutcome>,
}

/// The way of claims to the task. Clones use the same task.
#[derive(Clone)]
pub struct ClusterClaims {
    shard: Shard,
    digester: Arc<Digester>,
    asks: Sender<ClaimAsk>,
}

opaque!(ClusterClaims);

impl ClusterClaims {
    /// Claims `name`, which may contain a secret, for this gateway. The store forgets the claim after `keep`.
    /// Waits for the store for two seconds at most.
    pub fn claim(&self, name: &[u8], keep: Duration) -> ClaimOutcome {
        let key = self.shard.claim(self.digester.digest(name));
        let keep_ms = u64::try_from(keep.as_millis()).unwrap_or(u64::MAX).max(1);
        let (reply, replied) = mpsc::sync_channel(1);
        match self.asks.try_send(ClaimAsk { key, keep_ms, reply }) {
            Ok(()) => replied.recv_timeout(REPLY_MAX).unwrap_or(ClaimOutcome::Unknown),
            Err(_) => ClaimOutcome::Unknown,
        }
    }
}

/// The claims of the cluster, which only the store keeps.
struct Claims(Shard);

/// Spawns the task, and returns the way to it.
pub(super) fn spawn(shard: Shard, digester: Digester, link: Link) -> ClusterClaims {
    let asks = facts::spawn(link, |_| Claims(shard.clone()));
    ClusterClaims { shard, digester: Arc::new(digester), asks }
}

impl SharedFacts for Claims {
    type Ask = ClaimAsk;

    const NAME: &'static str = "claims";

    /// Nothing is told on it.
    fn channel(&self) -> Vec<u8> {
        self.0.claim_channel()
    }

    async fn asked(&mut self, asks: Vec<ClaimAsk>, store: Option<&ReadyStore>) -> StoreResult {
        for ClaimAsk { key, keep_ms, reply } in asks {
            let outcome = match store {
                None => Ok(ClaimOutcome::Unknown),
                Some(store) => claim(store, &key, keep_ms).await,
            };
            // Nobody may wait any more.
            let _ = reply.send(*outcome.as_ref().unwrap_or(&ClaimOutcome::Unknown));
            outcome?;
        }
        Ok(())
    }

    async fn told(&mut self, _: &[u8], _: &ReadyStore) -> StoreResult {
        Ok(())
    }

    async fn sync(&mut self, _: &ReadyStore) -> StoreResult {
        Ok(())
    }
}

async fn claim(store: &ReadyStore, key: &[u8], keep_ms: u64) -> StoreResult<ClaimOutcome> {
    let mut command = cmd("SET");
    command.arg(key).arg("").arg("NX").arg("PX").arg(keep_ms);
    let set: Option<String> = store.connection.query(&command).await?;
    Ok(if set.is_some() { ClaimOutcome::Own } else { ClaimOutcome::Taken })
}
