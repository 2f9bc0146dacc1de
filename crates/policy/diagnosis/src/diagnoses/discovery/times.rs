//! Histogram of times for percentiles. The width of a bucket is at most an eighth of its lower bound.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Times below this limit have one bucket per microsecond; above it, each power of two has eight.
const EXACT_US: u64 = 16;
/// The last power of two. Its last bucket also counts longer times (nineteen hours or more).
const DOUBLING_MAX: u32 = 35;
pub(crate) const CLASSES: usize = 16 + 8 * (DOUBLING_MAX as usize - 3);

/// Counts by bucket. The vector is only as long as the longest time requires.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TimeHistogram(Vec<u32>);

impl TimeHistogram {
    /// Creates a histogram with these counts.
    pub fn of(counts: &[u32; CLASSES]) -> Self {
        let len = counts.iter().rposition(|count| *count > 0).map_or(0, |last| last + 1);
        Self(counts[..len].to_vec())
    }

    /// Counts a time.
    pub fn count(&mut self, time_us: u64) {
        self.add(class(time_us), 1);
    }

    /// Adds all counts of another histogram.
    pub fn join(&mut self, other: &Self) {
        for (class, count) in other.0.iter().enumerate().filter(|(_, count)| **count > 0) {
            self.add(class, *count);
        }
    }

    /// Returns a time that `share` of all times do not exceed, at most an eighth too long. `None` if no times
    /// are counted.
    pub fn quantile_us(&self, share: f64) -> Option<u64> {
        let all: u64 = self.0.iter().map(|count| u64::from(*count)).sum();
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a count is at most the count"
        )]
        let wanted = ((all as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.0.iter().enumerate().find_map(|(class, count)| {
            seen += u64::from(*count);
            (seen >= wanted).then(|| last_us(class))
        })
    }

    fn add(&mut self, class: usize, count: u32) {
        if self.0.len() <= class {
            self.0.resize(class + 1, 0);
        }
        self.0[class] = self.0[class].saturating_add(count);
    }
}

/// Returns the bucket of a time, below [`CLASSES`].
pub(crate) fn class(time_us: u64) -> usize {
    let time_us = time_us.min((1 << (DOUBLING_MAX + 1)) - 1);
    if time_us < EXACT_US {
        return usize::try_from(time_us).unwrap_or_default();
    }
    let doubling = time_us.ilog2();
    let eighth = time_us >> (doubling - 3) & 7;
    16 + 8 * (doubling as usize - 4) + usize::try_from(eighth).unwrap_or_default()
}

/// Returns the longest time of a bucket.
fn last_us(class: usize) -> u64 {
    let Some(above) = class.checked_sub(16) else { return class as u64 };
    let (doubling, eighth) = (above / 8 + 4, above as u64 % 8);
    ((8 + eighth + 1) << (doubling - 3)) - 1
}

/// Serializes only buckets with counts, to keep the file short.
impl Serialize for TimeHistogram {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().enumerate().filter(|(_, count)| **count > 0))
    }
}

impl<'de> Deserialize<'de> for TimeHistogram {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut times = Self::default();
        for (class, count) in BTreeMap::<usize, u32>::deserialize(deserializer)? {
            if class < CLASSES {
                times.add(class, count);
            }
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_counted() {
        let mut times = TimeHistogram::default();
        assert_eq!(times.quantile_us(0.5), None);
        for time_us in 1..=1_000 {
            times.count(time_us);
        }
        for (share, exact_us) in [(0.5, 500), (0.9, 900), (0.99, 990), (1.0, 1_000)] {
            let quantile_us = times.quantile_us(share).unwrap();
            assert!((exact_us..=exact_us * 9 / 8).contains(&quantile_us), "{share}: {quantile_us}");
        }
    }

    proptest! {
        #[test]
        fn a_class_is_near_its_times(time_us in 0_u64..1 << 36) {
            let last_us = last_us(class(time_us));
            prop_assert!(last_us >= time_us && last_us <= time_us + time_us / 8, "{}", last_us);
            prop_assert!(class(last_us) == class(time_us) && class(time_us) < CLASSES);
        }

        #[test]
        fn times_are_read_as_they_were_written(all in prop::collection::vec(any::<u64>(), 0..50)) {
            let mut times = TimeHistogram::default();
            for time_us in &all {
                times.count(*time_us);
            }
            let text = serde_json::to_string(&times).unwrap();
            prop_assert_eq!(serde_json::from_str::<TimeHistogram>(&text).unwrap(), times);
        }
    }
}
