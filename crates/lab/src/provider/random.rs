//! Reproducible random numbers for load and faults. Not suitable for secrets.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// 2⁶⁴ divided by the golden ratio: the increment of `SplitMix64`.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// `SplitMix64`: well mixed, made for seeding, and valid with any number as its state.
#[derive(Debug, Clone)]
pub(super) struct Random {
    state: u64,
}

impl Random {
    /// Creates the sequence of this seed.
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Creates a sequence that cannot be reproduced.
    pub fn unseeded() -> Self {
        Self::seeded(RandomState::new().hash_one(()))
    }

    /// The next number, uniform over all values.
    pub fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(STEP);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next number from 0 up to but excluding 1.
    pub fn unit(&mut self) -> f64 {
        // The 53 bits that a float holds exactly.
        #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
        let bits = (self.next() >> 11) as f64;
        bits / 9_007_199_254_740_992.0
    }

    /// The next number of the standard normal distribution (Box–Muller).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count.next_multiple_of(8));
        while bytes.len() < count {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }
}

impl Default for Sequences {
    fn default() -> Self {
        Self::new(None)
    }
}

/// A random sequence for each call: the nth call has the nth sequence, on whichever thread it is served.
#[derive(Debug)]
pub(super) struct Sequences {
    seed: u64,
    given: AtomicU64,
}

impl Sequences {
    /// Creates the sequences of this seed, or of a random one.
    pub fn new(seed: Option<u64>) -> Self {
        Self { seed: seed.unwrap_or_else(|| Random::unseeded().next()), given: AtomicU64::new(0) }
    }

    /// The sequence of the next call.
    pub fn next(&self) -> Random {
        let number = self.given.fetch_add(1, Relaxed);
        // Mixed, because states that differ by the increment would yield the same numbers shifted by one.
        Random::seeded(Random::seeded(self.seed ^ number.rotate_left(32)).next())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_depend_on_the_seed_alone() {
        let bytes = |count, seed| Random::seeded(seed).bytes(count);
        assert_eq!(bytes(1_000, 7), bytes(1_000, 7));
        assert_eq!(bytes(1_000, 7)[..99], bytes(99, 7));
        assert_ne!(bytes(1_000, 7), bytes(1_000, 8));
    }

    #[test]
    fn normal_numbers_have_the_mean_and_deviation_of_their_name() {
        let mut random = Random::seeded(1);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn every_call_has_a_sequence_of_its_own_that_can_be_had_again() {
        let numbers = |seed| {
            let sequences = Sequences::new(Some(seed));
            (0..100).map(|_| sequences.next().next()).collect::<Vec<_>>()
        };
        let first = numbers(3);
        assert_eq!(first, numbers(3));
        assert_ne!(first, numbers(4));
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), 100);
    }
}
