//! Counters that one worker writes and any thread reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use serde::Serialize;

/// A counter or gauge with one writer. An update is a plain load and store. Readers on other threads see it
/// soon.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`. Only the owning worker may call it.
    pub fn add(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_add(amount), Relaxed);
    }

    /// Subtracts `amount` from a gauge. Only the owning worker may call it.
    pub fn sub(&self, amount: u64) {
        self.0.store(self.0.load(Relaxed).wrapping_sub(amount), Relaxed);
    }

    /// Returns the current value.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }
}

/// Look-ups of host names.
#[derive(Debug, Clone, Default, Serialize)]
pub struct DnsSnapshot {
    /// Look-ups requested.
    pub lookups: u64,
    /// Served from the cache.
    pub hits: u64,
    /// Joined to a look-up that was already in progress.
    pub coalesced: u64,
    /// Failed, including cached failures.
    pub failures: u64,
    /// Names in the cache now.
    pub entries: u64,
}
