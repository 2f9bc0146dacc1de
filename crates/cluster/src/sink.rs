//! The way of groups to the thread.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use egret_clock::boot_us;
use egret_store::shared::{Farewell, GroupKey, GroupSink, SharedGroup, SharedLease};
use tokio::sync::mpsc::Sender;

use super::config::ClusterConfig;

/// Number of bytes of a digest in a key.
const DIGEST_BYTES: usize = 16;

/// A message to the thread.
pub(super) enum Ask {
    /// Call about this group soon.
    Group(Arc<dyn SharedGroup>),
    /// This group was dropped.
    Farewell(Farewell),
}

/// Makes numbers that stand for names in the store.
pub(super) struct Digester {
    key: hmac::Key,
    is_keyed: bool,
}

impl Digester {
    pub(super) fn new(config: &ClusterConfig) -> Self {
        let secret = config.key.as_ref().map_or(config.name.as_str(), |key| key.expose());
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Self { key, is_keyed: config.key.is_some() }
    }

    /// Returns `true` if only those who know the cluster's key can make the numbers.
    pub(super) fn is_keyed(&self) -> bool {
        self.is_keyed
    }

    /// A number that stands for `name`.
    pub(super) fn digest(&self, name: &[u8]) -> u128 {
        let tag = hmac::sign(&self.key, name);
        u128::from_be_bytes(tag.as_ref().first_chunk::<DIGEST_BYTES>().copied().unwrap_or_default())
    }
}

pub(super) struct ClusterSink {
    asks: Sender<Ask>,
    lease: Arc<SharedLease>,
    digester: Digester,
    members_min: u64,
}

impl ClusterSink {
    pub(super) fn new(config: &ClusterConfig, asks: Sender<Ask>, lease: Arc<SharedLease>) -> Self {
        Self { asks, lease, digester: Digester::new(config), members_min: config.members_expected }
    }
}

impl fmt::Debug for ClusterSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterSink")
    }
}

impl GroupSink for ClusterSink {
    fn now_us(&self) -> u64 {
        boot_us()
    }

    fn digest(&self, name: &[u8]) -> String {
        format!("{:032x}", self.digester.digest(name))
    }

    fn members_min(&self) -> u64 {
        self.members_min
    }

    fn lease(&self, _: &GroupKey) -> Arc<SharedLease> {
        Arc::clone(&self.lease)
    }

    fn ask(&self, group: Arc<dyn SharedGroup>) -> bool {
        self.asks.try_send(Ask::Group(group)).is_ok()
    }

    fn farewell(&self, farewell: Farewell) {
        // If the thread is too busy, the store gets the units back when this gateway leaves.
        let _ = self.asks.try_send(Ask::Farewell(farewell));
    }
}
