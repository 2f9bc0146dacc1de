//! The way of groups to the thread.

use std::sync::Arc;

use aws_lc_rs::hmac;
use egret_clock::{boot_us, turned_boot_us};
use egret_items::opaque;
use egret_store::shared::{GroupKey, GroupSink, LeaveMessage, SharedGroup, SharedLease};
use tokio::sync::mpsc::Sender;

use super::config::ClusterConfig;

/// Number of bytes of a digest in a key.
const DIGEST_BYTES: usize = 16;

/// A message to the thread.
pub(super) enum Ask {
    /// Call about this group soon.
    Group(Arc<dyn SharedGroup>),
    /// This group was dropped.
    Leave(LeaveMessage),
}

/// The way to the task of a shard, and its lease.
pub(super) struct ShardSink {
    pub asks: Sender<Ask>,
    pub lease: Arc<SharedLease>,
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
    /// There is at least one.
    shards: Vec<ShardSink>,
    digester: Digester,
    members_min: u64,
}

impl ClusterSink {
    pub(super) fn new(config: &ClusterConfig, shards: Vec<ShardSink>) -> Self {
        Self { shards, digester: Digester::new(config), members_min: config.members_expected }
    }

    fn shard(&self, key: &[u8]) -> &ShardSink {
        &self.shards[shard_of(key, self.shards.len())]
    }
}

/// The shard of a group, by FNV-1a and the finalizer of splitmix64, which spreads keys that are alike. All
/// members of a cluster must find the same.
fn shard_of(key: &[u8], shards: usize) -> usize {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    let hash = key.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let mixed = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    usize::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap_or(0) % shards.max(1)
}

opaque!(ClusterSink);

impl GroupSink for ClusterSink {
    fn now_us(&self) -> u64 {
        boot_us()
    }

    fn turned_us(&self) -> u64 {
        turned_boot_us()
    }

    fn digest(&self, name: &[u8]) -> String {
        format!("{:032x}", self.digester.digest(name))
    }

    fn members_min(&self) -> u64 {
        self.members_min
    }

    fn lease(&self, key: &GroupKey) -> Arc<SharedLease> {
        Arc::clone(&self.shard(key).lease)
    }

    fn ask(&self, group: Arc<dyn SharedGroup>) -> bool {
        let asks = self.shard(&group.key()).asks.clone();
        asks.try_send(Ask::Group(group)).is_ok()
    }

    fn leave(&self, message: LeaveMessage) {
        // If the thread is too busy, the store gets the units back when this gateway leaves.
        let _ = self.shard(&message.call.key).asks.try_send(Ask::Leave(message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_spread_over_the_segments_and_stay_there() {
        assert_eq!(shard_of(b"stripe:1:w", 1), 0);
        // Another value would split the groups of a rolling update.
        assert_eq!(shard_of(b"stripe:1:w", 16), 12);
        let mut counts = [0; 16];
        for group in 0..16_000 {
            counts[shard_of(format!("stripe:1:n{group}").as_bytes(), 16)] += 1;
        }
        assert!(counts.iter().all(|count| (800..1_200).contains(count)), "{counts:?}");
    }
}
