//! Histograms of times, and of any numbers.

use std::sync::Arc;

use crate::family::SampleValue;

/// Observed times.
#[derive(Debug)]
pub(super) struct Histogram {
    counts: Box<[u64]>,
    sum_us: u64,
}

impl Histogram {
    /// Creates a histogram with this number of bounds.
    pub fn new(bounds: usize) -> Self {
        Self { counts: vec![0; bounds + 1].into(), sum_us: 0 }
    }

    pub fn count(&mut self, bounds_us: &[u64], value_us: u64) {
        self.counts[bounds_us.partition_point(|bound| *bound < value_us)] += 1;
        self.sum_us = self.sum_us.saturating_add(value_us);
    }

    /// Returns the observations in seconds, as are the `bounds`.
    pub fn sample(&self, bounds: &Arc<[f64]>) -> SampleValue {
        let (bounds, counts, sum) = (Arc::clone(bounds), self.counts.to_vec(), in_seconds(self.sum_us));
        SampleValue::Histogram { bounds, counts, sum }
    }
}

/// Observed numbers.
#[derive(Debug)]
pub(super) struct Distribution {
    counts: Box<[u64]>,
    sum: f64,
}

impl Distribution {
    /// Creates a distribution with these bounds.
    pub fn new(bounds: &[f64]) -> Self {
        Self { counts: vec![0; bounds.len() + 1].into(), sum: 0.0 }
    }

    pub fn count(&mut self, bounds: &[f64], value: f64) {
        self.counts[bounds.partition_point(|bound| *bound < value)] += 1;
        self.sum = added(self.sum, value);
    }

    /// Returns the observations.
    pub fn sample(&self, bounds: &Arc<[f64]>) -> SampleValue {
        let (bounds, counts) = (Arc::clone(bounds), self.counts.to_vec());
        SampleValue::Histogram { bounds, counts, sum: self.sum }
    }
}

/// Adds to a sum. It stays finite: infinity would stay in it for ever.
pub(super) fn added(sum: f64, number: f64) -> f64 {
    (sum + number).clamp(f64::MIN, f64::MAX)
}

/// Returns bounds in seconds.
pub(super) fn seconds(bounds_us: &[u64]) -> Arc<[f64]> {
    bounds_us.iter().map(|bound| in_seconds(*bound)).collect()
}

#[expect(clippy::cast_precision_loss, reason = "2^53 microseconds are 285 years")]
fn in_seconds(us: u64) -> f64 {
    us as f64 / 1e6
}
