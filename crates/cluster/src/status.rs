//! The state of the membership, for people and metrics.

use std::sync::Arc;
use std::time::Duration;

use egret_clock::boot_us;
use parking_lot::Mutex;

/// Upper bounds of the buckets of [`ClusterStatus::renewals`], in microseconds. A renewal that takes longer
/// than the last of them has failed.
pub const RENEWAL_BOUNDS_US: [u64; 10] =
    [100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 100_000, 250_000];

/// The state of the membership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClusterStatus {
    /// The cluster's name.
    pub cluster: Arc<str>,
    /// The member's name.
    pub member: Arc<str>,
    /// Time since the member joined.
    pub age: Duration,
    /// Minimum length of the recovery window of a store that has lost its state.
    pub learn_for: Duration,
    /// The shards. There is one, or [`SHARDS`](super::SHARDS) in a Redis Cluster.
    pub shards: Vec<ShardStatus>,
}

/// The state of a shard.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ShardStatus {
    /// The process of the member in this shard.
    pub instance: u64,
    /// `true` if the last call to the store was answered.
    pub is_up: bool,
    /// The reason why it was not.
    pub error: Option<String>,
    /// The address of the master, while connected.
    pub master: Option<String>,
    /// Number of members, by the last reply.
    pub members: u64,
    /// Number of groups whose units this gateway shares.
    pub groups: usize,
    /// Number of answered calls to the store.
    pub calls: u64,
    /// Number of failures of the store.
    pub failures: u64,
    /// Number of answered calls in each bucket of [`RENEWAL_BOUNDS_US`] and above the last, by the time from
    /// the call to its reply.
    pub renewals: [u64; RENEWAL_BOUNDS_US.len() + 1],
    /// Sum of these times, in microseconds.
    pub renewals_us: u64,
    /// Time of the lease's clock at which the recovery window ends, by the last reply, in milliseconds.
    pub recovery_until_ms: u64,
}

impl ShardStatus {
    /// Counts an answered call.
    pub(super) fn count(&mut self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.calls += 1;
        self.renewals[RENEWAL_BOUNDS_US.partition_point(|bound| *bound < took_us)] += 1;
        self.renewals_us = self.renewals_us.saturating_add(took_us);
    }

    /// Notes the remaining recovery window of a group.
    pub(super) fn recovers_for(&mut self, recovery_ms: u64) {
        let until_ms = (boot_us() / 1_000).saturating_add(recovery_ms);
        self.recovery_until_ms = if recovery_ms == 0 { 0 } else { until_ms };
    }

    /// Remaining recovery window, in milliseconds.
    pub fn recovery_ms(&self) -> u64 {
        self.recovery_until_ms.saturating_sub(boot_us() / 1_000)
    }
}

impl ClusterStatus {
    /// Returns `true` if all shards work.
    pub fn is_up(&self) -> bool {
        self.shards.iter().all(|shard| shard.is_up)
    }

    /// The reason why one of the shards does not work.
    pub fn error(&self) -> Option<&str> {
        self.shards.iter().find_map(|shard| shard.error.as_deref())
    }

    /// Number of members, this one included.
    pub fn members(&self) -> u64 {
        self.shards.iter().map(|shard| shard.members).max().unwrap_or(0)
    }

    /// Number of answered calls to the store.
    pub fn calls(&self) -> u64 {
        self.shards.iter().map(|shard| shard.calls).sum()
    }

    /// Number of failures of the store.
    pub fn failures(&self) -> u64 {
        self.shards.iter().map(|shard| shard.failures).sum()
    }

    /// Number of answered calls in each bucket of [`RENEWAL_BOUNDS_US`] and above the last.
    pub fn renewals(&self) -> [u64; RENEWAL_BOUNDS_US.len() + 1] {
        std::array::from_fn(|at| self.shards.iter().map(|shard| shard.renewals[at]).sum())
    }

    /// Sum of the times from these calls to their replies, in microseconds.
    pub fn renewals_us(&self) -> u64 {
        self.shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.renewals_us))
    }

    /// Longest remaining recovery window of a shard, in milliseconds.
    pub fn recovery_ms(&self) -> u64 {
        self.shards.iter().map(ShardStatus::recovery_ms).max().unwrap_or(0)
    }

    /// Returns `true` if the gateway can serve: every shard has answered, or they had the time to.
    pub fn is_ready(&self) -> bool {
        self.age >= self.learn_for || self.shards.iter().all(|shard| shard.calls > 0)
    }
}

/// The state of a shard, shared with the thread.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedStatus(Arc<Mutex<ShardStatus>>);

impl SharedStatus {
    pub(super) fn get(&self) -> ShardStatus {
        self.0.lock().clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut ShardStatus)) {
        change(&mut self.0.lock());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(calls: [u64; 2], age_ms: u64) -> ClusterStatus {
        let shards = calls.map(|calls| ShardStatus { calls, is_up: calls > 0, ..ShardStatus::default() });
        ClusterStatus {
            cluster: "payments".into(),
            member: "a".into(),
            age: Duration::from_millis(age_ms),
            learn_for: Duration::from_secs(10),
            shards: shards.into(),
        }
    }

    #[test]
    fn a_gateway_is_ready_once_all_segments_answered() {
        assert!(!status([1, 0], 500).is_ready());
        assert!(status([1, 2], 500).is_ready());
        assert!(status([1, 0], 10_000).is_ready());
        assert!(!status([1, 0], 10_000).is_up());
    }

    #[test]
    fn renewals_are_counted_in_the_bucket_of_their_time() {
        let mut shard = ShardStatus::default();
        for micros in [100, 101, 250_000, 250_001] {
            shard.count(Duration::from_micros(micros));
        }
        assert_eq!(shard.renewals, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((shard.calls, shard.renewals_us), (4, 500_202));
    }

    #[test]
    fn the_recovery_window_passes_without_a_call() {
        let mut shard = ShardStatus::default();
        shard.recovers_for(9_000);
        assert!((8_000..=9_000).contains(&shard.recovery_ms()));
        shard.recovers_for(0);
        assert_eq!(shard.recovery_ms(), 0);
    }
}
