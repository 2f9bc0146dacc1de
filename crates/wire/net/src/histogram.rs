//! Histograms of microseconds that one worker writes and any thread reads.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde::Serialize;

use crate::counter::Counter;

/// Upper bounds of the histogram buckets, in microseconds. A last bucket holds the rest.
///
/// The bounds are fine in the range of a gateway's footprint (tens of microseconds) and coarse in the range
/// of providers' latencies.
pub const BOUNDS_US: [u64; 26] = [
    10,
    20,
    30,
    50,
    75,
    100,
    150,
    250,
    500,
    1_000,
    2_500,
    5_000,
    10_000,
    25_000,
    50_000,
    100_000,
    150_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    30_000_000,
    60_000_000,
    300_000_000,
];

/// For each number of binary digits, less one: the first bucket whose bound is not below the smallest value
/// of that many digits.
const FIRST_BUCKETS: [u8; u64::BITS as usize] = {
    let mut first = [0; u64::BITS as usize];
    let (mut digits, mut bucket) = (0, 0);
    while digits < first.len() {
        while (bucket as usize) < BOUNDS_US.len() && BOUNDS_US[bucket as usize] < 1 << digits {
            bucket += 1;
        }
        first[digits] = bucket;
        digits += 1;
    }
    first
};

/// Number of fine buckets of each doubling: none is wider than this part of its smallest value.
const FINE: u32 = 32;
/// Number of doublings, which go up to 71 minutes; the last bucket holds the rest. The first one begins at 0.
const DOUBLINGS: usize = 28;

/// A histogram of microseconds with one writer: with fixed buckets, for Prometheus, and with fine ones, for
/// quantiles. Fine buckets have memory only for doublings that contain a value, at most 7 KiB.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
    fine: [OnceLock<Box<[Counter; FINE as usize]>>; DOUBLINGS],
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, value_us: u64) {
        // From the first bound that can hold it: a step or two, since bounds are about a factor of two apart.
        let mut bucket = usize::from(FIRST_BUCKETS[value_us.checked_ilog2().unwrap_or_default() as usize]);
        while BOUNDS_US.get(bucket).is_some_and(|bound| *bound < value_us) {
            bucket += 1;
        }
        self.buckets[bucket].add(1);
        self.sum_us.add(value_us);
        let (doubling, fine) = place(value_us);
        self.fine[doubling].get_or_init(Box::default)[fine].add(1);
    }

    /// Adds the counts to `total`.
    pub fn add_to(&self, total: &mut HistogramSnapshot) {
        for (bucket, counter) in total.buckets.iter_mut().zip(&self.buckets) {
            *bucket += counter.get();
        }
        total.sum_us += self.sum_us.get();
        for (doubling, buckets) in self.fine.iter().enumerate() {
            for (fine, counter) in buckets.get().into_iter().flat_map(|buckets| buckets.iter()).enumerate() {
                if counter.get() > 0 {
                    *total.values_us.entry(middle_us(doubling, fine)).or_default() += counter.get();
                }
            }
        }
    }
}

/// Returns the doubling of a value, and its bucket there.
fn place(value_us: u64) -> (usize, usize) {
    let value = u32::try_from(value_us).unwrap_or(u32::MAX);
    let doubling = (value | 1).ilog2().saturating_sub(FINE.ilog2() - 1);
    (doubling as usize, ((value >> doubling.saturating_sub(1)) % FINE) as usize)
}

/// Returns the middle of a bucket, which is at most 1/64 off each of its values.
fn middle_us(doubling: usize, bucket: usize) -> u64 {
    let Some(shift) = doubling.checked_sub(1) else { return bucket as u64 };
    let width = 1 << shift;
    (u64::from(FINE) + bucket as u64) * width + width / 2
}

/// A histogram at one point in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistogramSnapshot {
    /// Number of values per bucket of [`BOUNDS_US`], and last those above all bounds. Not cumulative.
    pub buckets: Vec<u64>,
    /// Sum of all values, in microseconds.
    pub sum_us: u64,
    /// Number of values near each of these, in microseconds. None is more than 1/64 off.
    pub values_us: BTreeMap<u64, u64>,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self { buckets: vec![0; BOUNDS_US.len() + 1], sum_us: 0, values_us: BTreeMap::new() }
    }
}

impl HistogramSnapshot {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the `quantile` (0 to 1) in microseconds, at most 1/64 off. Returns `None` if there are no
    /// values.
    pub fn quantile_us(&self, quantile: f64) -> Option<u64> {
        let count: u64 = self.values_us.values().sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of exchanges fits"
        )]
        let rank = (quantile * count as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.values_us.iter().find_map(|(value_us, count)| {
            seen += count;
            (seen >= rank).then_some(*value_us)
        })
    }

    /// Adds the values of another histogram.
    pub fn join(&mut self, other: &Self) {
        for (bucket, count) in self.buckets.iter_mut().zip(&other.buckets) {
            *bucket += count;
        }
        self.sum_us += other.sum_us;
        for (value_us, count) in &other.values_us {
            *self.values_us.entry(*value_us).or_default() += count;
        }
    }

    /// Removes the values that the histogram had `before`.
    pub fn subtract(&mut self, before: &Self) {
        for (bucket, count) in self.buckets.iter_mut().zip(&before.buckets) {
            *bucket = bucket.saturating_sub(*count);
        }
        self.sum_us = self.sum_us.saturating_sub(before.sum_us);
        for (value_us, count) in &mut self.values_us {
            *count = count.saturating_sub(before.values_us.get(value_us).copied().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lands_in_the_bucket_whose_bound_it_does_not_exceed() {
        let histogram = Histogram::default();
        for value_us in [0, 10, 11, 300_000_000, 300_000_001] {
            histogram.record(value_us);
        }
        let mut snapshot = HistogramSnapshot::default();
        histogram.add_to(&mut snapshot);
        assert_eq!((snapshot.buckets[0], snapshot.buckets[1]), (2, 1));
        assert_eq!((snapshot.buckets[25], snapshot.buckets[26]), (1, 1));
        assert_eq!((snapshot.count(), snapshot.sum_us), (5, 600_000_022));
        assert_eq!(snapshot.quantile_us(0.5), Some(11));
        let before = snapshot.clone();
        histogram.record(7);
        histogram.add_to(&mut snapshot);
        snapshot.subtract(&before);
        snapshot.subtract(&before);
        assert_eq!((snapshot.count(), snapshot.sum_us, snapshot.quantile_us(1.0)), (1, 7, Some(7)));
        snapshot.join(&before);
        assert_eq!((snapshot.count(), snapshot.sum_us), (6, 600_000_029));
    }

    #[test]
    fn a_quantile_is_at_most_a_64th_off() {
        for value_us in
            (0..40).chain((0..32).flat_map(|power| [-1, 0, 1, 77].map(|more| (1_i64 << power) + more)))
        {
            let value_us = value_us.unsigned_abs().min(u64::from(u32::MAX));
            let (histogram, mut snapshot) = (Histogram::default(), HistogramSnapshot::default());
            histogram.record(value_us);
            histogram.add_to(&mut snapshot);
            let found_us = snapshot.quantile_us(0.5).unwrap();
            assert!(64 * found_us.abs_diff(value_us) <= value_us, "{found_us} for {value_us}");
        }
        assert_eq!((place(u64::MAX), HistogramSnapshot::default().quantile_us(0.5)), ((27, 31), None));
    }

    #[test]
    fn a_value_lands_in_the_bucket_that_a_search_finds() {
        let powers = (0..64).map(|digits| 1_u64 << digits);
        for value_us in BOUNDS_US.into_iter().chain(powers).flat_map(|at| [at - 1, at, at.saturating_add(1)])
        {
            let histogram = Histogram::default();
            histogram.record(value_us);
            let mut snapshot = HistogramSnapshot::default();
            histogram.add_to(&mut snapshot);
            let bucket = BOUNDS_US.partition_point(|bound| *bound < value_us);
            assert_eq!(snapshot.buckets.iter().position(|count| *count == 1), Some(bucket), "{value_us}");
        }
    }
}
