//! Metrics of diagnoses, in the form of Prometheus.

use std::borrow::Cow;
use std::sync::Arc;

/// Metrics of one name, as in Prometheus.
#[derive(Debug, Clone, PartialEq)]
pub struct Family {
    /// Name, including the unit, and the prefix `egret_` unless a convention has another one.
    pub name: String,
    /// Help text.
    pub help: String,
    /// Type of the metric.
    pub kind: FamilyKind,
    /// Samples.
    pub samples: Vec<Sample>,
}

/// The type of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FamilyKind {
    /// A value that only grows.
    Counter,
    /// A sum that goes up and down. Prometheus knows it as a gauge.
    UpDownCounter,
    /// A value that goes up and down.
    Gauge,
    /// Counts by bucket.
    Histogram,
}

impl FamilyKind {
    /// Returns the word used by Prometheus.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::UpDownCounter | Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// One sample of a metric.
#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// Labels: names and values.
    pub labels: Vec<(Cow<'static, str>, String)>,
    /// Value.
    pub value: SampleValue,
}

/// The value of a sample.
#[derive(Debug, Clone, PartialEq)]
pub enum SampleValue {
    /// A number.
    Number(f64),
    /// A histogram.
    Histogram {
        /// Upper bounds of the buckets; the last bucket has none.
        bounds: Arc<[f64]>,
        /// Number of observations per bucket. It has one element more than `bounds`.
        counts: Vec<u64>,
        /// Sum of all observations.
        sum: f64,
    },
}
