//! Histograms of microseconds that one worker writes and any thread reads.

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

/// A histogram of microseconds with fixed buckets and one writer.
#[derive(Debug, Default)]
pub struct Histogram {
    buckets: [Counter; BOUNDS_US.len() + 1],
    sum_us: Counter,
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
    }

    /// Adds the counts to `total`.
    pub fn add_to(&self, total: &mut HistogramSnapshot) {
        for (bucket, counter) in total.buckets.iter_mut().zip(&self.buckets) {
            *bucket += counter.get();
        }
        total.sum_us += self.sum_us.get();
    }
}

/// A histogram at one point in time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct HistogramSnapshot {
    /// Number of values per bucket of [`BOUNDS_US`], and last those above all bounds. Not cumulative.
    pub buckets: Vec<u64>,
    /// Sum of all values, in microseconds.
    pub sum_us: u64,
}

impl Default for HistogramSnapshot {
    fn default() -> Self {
        Self { buckets: vec![0; BOUNDS_US.len() + 1], sum_us: 0 }
    }
}

impl HistogramSnapshot {
    /// Returns the number of values.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the upper bound, in microseconds, of the bucket that contains the `quantile` (0 to 1). Returns
    /// `None` if there are no values, or the quantile is above the last bound.
    pub fn quantile_us(&self, quantile: f64) -> Option<u64> {
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of exchanges fits"
        )]
        let rank = (quantile * self.count() as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        let bucket = self.buckets.iter().position(|count| {
            seen += count;
            seen >= rank
        })?;
        BOUNDS_US.get(bucket).copied()
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
        assert_eq!(snapshot.quantile_us(0.5), Some(20));
        assert_eq!(snapshot.quantile_us(1.0), None);
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
