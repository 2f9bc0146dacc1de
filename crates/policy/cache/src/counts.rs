//! Counters of a cache, kept by each worker separately.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_items::words;
use egret_store::entries::{DiskStats, EntryStats};

words! {
    /// An event that a cache counts. Its word is the name in metrics.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum CacheEvent: word {
        /// A request was served from the cache.
        Hit => "hit",
        /// A request was served from the cache with a stale response.
        Stale => "stale",
        /// The provider confirmed that a stored response is still valid.
        Revalidated => "revalidated",
        /// The provider was called because no stored response was suitable.
        Miss => "miss",
        /// The cache does not apply to the request.
        Bypass => "bypass",
        /// The request waited for the response to another one, with any result.
        Collapsed => "collapsed",
        /// A response was stored.
        Stored => "stored",
        /// A change removed stored responses.
        Invalidated => "invalidated",
    }
}

/// Upper bounds of the age buckets, in seconds; the last bucket has none.
pub const AGE_BOUNDS_S: [u64; 9] = [1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400];

/// Counters of one cache.
#[derive(Debug)]
pub struct CacheCounts {
    /// One set per worker, so no two workers write to the same one.
    workers: Box<[Cells]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Cells {
    counts: [AtomicU64; CacheEvent::ALL.len()],
    ages: [AtomicU64; AGE_BOUNDS_S.len() + 1],
    ages_s: AtomicU64,
}

/// The totals of a cache, and its current size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheSnapshot {
    /// Counts, in the order of [`CacheEvent::ALL`].
    pub counts: [u64; CacheEvent::ALL.len()],
    /// Number of served responses by age, in the buckets of [`AGE_BOUNDS_S`]; the last one is above all
    /// bounds.
    pub ages: [u64; AGE_BOUNDS_S.len() + 1],
    /// The sum of these ages, in seconds.
    pub ages_s: u64,
    /// The responses in memory.
    pub entries: EntryStats,
    /// The responses on disk, if the cache has a disk.
    pub disk: Option<DiskStats>,
}

impl CacheCounts {
    /// Creates zeroed counters for `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Cells::default()).collect() }
    }

    /// Counts one event.
    pub fn count(&self, worker: usize, what: CacheEvent) {
        self.count_many(worker, what, 1);
    }

    /// Counts several events of one kind.
    pub fn count_many(&self, worker: usize, what: CacheEvent, count: u64) {
        if let Some(cells) = self.workers.get(worker) {
            add(&cells.counts[what as usize], count);
        }
    }

    /// Counts a served response of that age.
    pub fn served(&self, worker: usize, age: Duration) {
        let Some(cells) = self.workers.get(worker) else { return };
        let age_s = age.as_secs();
        add(&cells.ages[AGE_BOUNDS_S.partition_point(|bound| *bound < age_s)], 1);
        add(&cells.ages_s, age_s);
    }

    /// Returns the sums over all workers.
    pub fn snapshot(&self, entries: EntryStats) -> CacheSnapshot {
        let mut sums = CacheSnapshot { entries, ..CacheSnapshot::default() };
        for cells in &self.workers {
            for (sum, cell) in sums.counts.iter_mut().zip(&cells.counts) {
                *sum += cell.load(Relaxed);
            }
            for (sum, cell) in sums.ages.iter_mut().zip(&cells.ages) {
                *sum += cell.load(Relaxed);
            }
            sums.ages_s += cells.ages_s.load(Relaxed);
        }
        sums
    }
}

/// Adds without an atomic read-modify-write: each cell has one writer.
fn add(cell: &AtomicU64, count: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
}
