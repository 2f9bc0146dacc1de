//! The state of the membership, for people and metrics.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use egret_clock::boot_us;

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
    /// Minimum time for which a store that has lost its state only learns.
    pub learn_for: Duration,
    /// The segments. There is one, or [`SEGMENTS`](super::SEGMENTS) in a Redis Cluster.
    pub segments: Vec<SegmentStatus>,
}

/// The state of a segment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SegmentStatus {
    /// The process of the member in this segment.
    pub instance: u64,
    /// `true` if the last call to the store was answered.
    pub is_up: bool,
    /// The reason why it was not.
    pub error: Option<String>,
    /// The address of the master, while connected.
    pub master: Option<String>,
    /// Number of members, as the store told last.
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
    /// Time of the lease's clock until which the store only learns, as told last, in milliseconds.
    pub learns_until_ms: u64,
}

impl SegmentStatus {
    /// Counts an answered call.
    pub(super) fn count(&mut self, took: Duration) {
        let took_us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.calls += 1;
        self.renewals[RENEWAL_BOUNDS_US.partition_point(|bound| *bound < took_us)] += 1;
        self.renewals_us = self.renewals_us.saturating_add(took_us);
    }

    /// Notes that a group only learns for this time.
    pub(super) fn learns_for(&mut self, learning_ms: u64) {
        let until_ms = (boot_us() / 1_000).saturating_add(learning_ms);
        self.learns_until_ms = if learning_ms == 0 { 0 } else { until_ms };
    }

    /// Remaining time for which the store only learns, in milliseconds.
    pub fn learning_ms(&self) -> u64 {
        self.learns_until_ms.saturating_sub(boot_us() / 1_000)
    }
}

impl ClusterStatus {
    /// Returns `true` if all segments work.
    pub fn is_up(&self) -> bool {
        self.segments.iter().all(|segment| segment.is_up)
    }

    /// The reason why one of the segments does not work.
    pub fn error(&self) -> Option<&str> {
        self.segments.iter().find_map(|segment| segment.error.as_deref())
    }

    /// Number of members, this one included.
    pub fn members(&self) -> u64 {
        self.segments.iter().map(|segment| segment.members).max().unwrap_or(0)
    }

    /// Number of answered calls to the store.
    pub fn calls(&self) -> u64 {
        self.segments.iter().map(|segment| segment.calls).sum()
    }

    /// Number of failures of the store.
    pub fn failures(&self) -> u64 {
        self.segments.iter().map(|segment| segment.failures).sum()
    }

    /// Number of answered calls in each bucket of [`RENEWAL_BOUNDS_US`] and above the last.
    pub fn renewals(&self) -> [u64; RENEWAL_BOUNDS_US.len() + 1] {
        std::array::from_fn(|at| self.segments.iter().map(|segment| segment.renewals[at]).sum())
    }

    /// Sum of the times from these calls to their replies, in microseconds.
    pub fn renewals_us(&self) -> u64 {
        self.segments.iter().fold(0, |sum, segment| sum.saturating_add(segment.renewals_us))
    }

    /// Longest remaining time for which a segment only learns, in milliseconds.
    pub fn learning_ms(&self) -> u64 {
        self.segments.iter().map(SegmentStatus::learning_ms).max().unwrap_or(0)
    }

    /// Returns `true` if the gateway can serve: every segment has answered, or they had the time to.
    pub fn is_ready(&self) -> bool {
        self.age >= self.learn_for || self.segments.iter().all(|segment| segment.calls > 0)
    }
}

/// The state of a segment, shared with the thread.
#[derive(Debug, Clone, Default)]
pub(super) struct SharedStatus(Arc<Mutex<SegmentStatus>>);

impl SharedStatus {
    pub(super) fn get(&self) -> SegmentStatus {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut SegmentStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(calls: [u64; 2], age_ms: u64) -> ClusterStatus {
        let segments =
            calls.map(|calls| SegmentStatus { calls, is_up: calls > 0, ..SegmentStatus::default() });
        ClusterStatus {
            cluster: "payments".into(),
            member: "a".into(),
            age: Duration::from_millis(age_ms),
            learn_for: Duration::from_secs(10),
            segments: segments.into(),
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
        let mut segment = SegmentStatus::default();
        for micros in [100, 101, 250_000, 250_001] {
            segment.count(Duration::from_micros(micros));
        }
        assert_eq!(segment.renewals, [1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]);
        assert_eq!((segment.calls, segment.renewals_us), (4, 500_202));
    }

    #[test]
    fn the_time_of_learning_passes_without_a_call() {
        let mut segment = SegmentStatus::default();
        segment.learns_for(9_000);
        assert!((8_000..=9_000).contains(&segment.learning_ms()));
        segment.learns_for(0);
        assert_eq!(segment.learning_ms(), 0);
    }
}
