//! What a cache is counted with: by each worker for itself.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use egret_store::entries::{DiskStats, EntryStats};

/// What has become of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheEvent {
    /// It was answered from what is stored.
    Hit,
    /// So, with what is no longer fresh.
    Stale,
    /// The provider has said that what is stored still holds.
    Revalidated,
    /// The provider was asked, since nothing was stored that would do.
    Miss,
    /// The cache is not for it.
    Bypass,
    /// It waited for the answer to another, whatever became of it then.
    Collapsed,
    /// The provider's answer was stored.
    Stored,
    /// What was stored went since something was changed.
    Invalidated,
}

impl CacheEvent {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Hit,
        Self::Stale,
        Self::Revalidated,
        Self::Miss,
        Self::Bypass,
        Self::Collapsed,
        Self::Stored,
        Self::Invalidated,
    ];

    /// Its name in metrics.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Hit => "hit",
            Self::Stale => "stale",
            Self::Revalidated => "revalidated",
            Self::Miss => "miss",
            Self::Bypass => "bypass",
            Self::Collapsed => "collapsed",
            Self::Stored => "stored",
            Self::Invalidated => "invalidated",
        }
    }
}

/// Upper bounds of the classes of ages, in seconds; the last class has none.
pub const AGE_BOUNDS_S: [u64; 9] = [1, 5, 15, 60, 300, 900, 3_600, 21_600, 86_400];

/// Counters of one cache.
#[derive(Debug)]
pub(crate) struct Counts {
    /// One for each worker, so that none writes where another does.
    workers: Box<[Cells]>,
}

#[derive(Debug, Default)]
#[repr(align(128))]
struct Cells {
    counts: [AtomicU64; CacheEvent::ALL.len()],
    ages: [AtomicU64; AGE_BOUNDS_S.len() + 1],
    ages_s: AtomicU64,
}

/// What a cache has done so far, and what it holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CacheSnapshot {
    /// In the order of [`CacheEvent::ALL`].
    pub counts: [u64; CacheEvent::ALL.len()],
    /// Ages of what was served from it, by the class of [`AGE_BOUNDS_S`] that they fall into; the last one above all bounds.
    pub ages: [u64; AGE_BOUNDS_S.len() + 1],
    /// The sum of these ages, in seconds.
    pub ages_s: u64,
    /// What is stored.
    pub entries: EntryStats,
    /// What is on its disk, if it has one.
    pub disk: Option<DiskStats>,
}

impl Counts {
    /// Nothing counted yet by any of `workers` workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: (0..workers).map(|_| Cells::default()).collect() }
    }

    /// Counts one.
    pub fn count(&self, worker: usize, what: CacheEvent) {
        self.count_many(worker, what, 1);
    }

    /// Counts several.
    pub fn count_many(&self, worker: usize, what: CacheEvent, count: u64) {
        if let Some(cells) = self.workers.get(worker) {
            add(&cells.counts[what as usize], count);
        }
    }

    /// Counts that something of that age was served.
    pub fn served(&self, worker: usize, age: Duration) {
        let Some(cells) = self.workers.get(worker) else { return };
        let age_s = age.as_secs();
        add(&cells.ages[AGE_BOUNDS_S.partition_point(|bound| *bound < age_s)], 1);
        add(&cells.ages_s, age_s);
    }

    /// The sums over all workers.
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

/// A plain load and store: each cell has one writer.
fn add(cell: &AtomicU64, count: u64) {
    cell.store(cell.load(Relaxed).wrapping_add(count), Relaxed);
}
