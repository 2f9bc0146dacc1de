//! The way of groups to the thread.

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::hmac;
use egret_clock::{boot_us, turned_boot_us};
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

pub(super) struct ClusterSink {
    asks: Sender<Ask>,
    lease: Arc<SharedLease>,
    key: hmac::Key,
    members_min: u64,
}

impl ClusterSink {
    pub(super) fn new(config: &ClusterConfig, asks: Sender<Ask>, lease: Arc<SharedLease>) -> Self {
        let secret = config.key.as_ref().map_or(config.name.as_str(), |key| key.expose());
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Self { asks, lease, key, members_min: config.members_expected }
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

    fn turned_us(&self) -> u64 {
        turned_boot_us()
    }

    fn digest(&self, name: &[u8]) -> String {
        let tag = hmac::sign(&self.key, name);
        let digest = tag.as_ref().first_chunk::<DIGEST_BYTES>().copied().unwrap_or_default();
        format!("{:032x}", u128::from_be_bytes(digest))
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
