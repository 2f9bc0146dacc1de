//! Reproducible random numbers for load and faults. Not suitable for secrets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use egret_clock::Random;

/// Draws from distributions that the provider needs beyond whole numbers.
pub(crate) trait Draw {
    /// Returns the next number from 0 up to but excluding 1.
    fn unit(&mut self) -> f64;

    /// Returns the next number of the standard normal distribution (Box–Muller).
    fn normal(&mut self) -> f64;

    /// Returns the next `count` bytes.
    fn bytes(&mut self, count: usize) -> Vec<u8>;
}

impl Draw for Random {
    fn unit(&mut self) -> f64 {
        egret_clock::unit_interval(self.draw())
    }

    fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count.next_multiple_of(8));
        while bytes.len() < count {
            bytes.extend_from_slice(&self.draw().to_le_bytes());
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
pub(crate) struct Sequences {
    seed: u64,
    given: AtomicU64,
}

impl Sequences {
    /// Creates the sequences of this seed, or of a random one.
    pub fn new(seed: Option<u64>) -> Self {
        Self { seed: seed.unwrap_or_else(|| Random::default().draw()), given: AtomicU64::new(0) }
    }

    /// The sequence of the next call.
    pub fn next(&self) -> Random {
        let number = self.given.fetch_add(1, Relaxed);
        // Mixed, because states that differ by the increment would yield the same numbers shifted by one.
        Random::new(Random::new(self.seed ^ number.rotate_left(32)).draw())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_depend_on_the_seed_alone() {
        let bytes = |count, seed| Random::new(seed).bytes(count);
        assert_eq!(bytes(1_000, 7), bytes(1_000, 7));
        assert_eq!(bytes(1_000, 7)[..99], bytes(99, 7));
        assert_ne!(bytes(1_000, 7), bytes(1_000, 8));
    }

    #[test]
    fn the_bytes_of_a_seed_never_change() {
        // Tests of clients compare them, so they are part of the interface.
        let bytes = Random::new(7).bytes(12);
        assert_eq!(bytes, [0xd7, 0x0d, 0x32, 0x59, 0xe4, 0xe1, 0xcb, 0x63, 0x1c, 0x66, 0x3c, 0xf4]);
    }

    #[test]
    fn normal_numbers_have_the_mean_and_deviation_of_their_name() {
        let mut random = Random::new(1);
        let numbers: Vec<f64> = (0..100_000).map(|_| random.normal()).collect();
        let mean = numbers.iter().sum::<f64>() / 1e5;
        let variance = numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
    }

    #[test]
    fn every_call_has_its_own_repeatable_sequence() {
        let numbers = |seed| {
            let sequences = Sequences::new(Some(seed));
            (0..100).map(|_| sequences.next().draw()).collect::<Vec<_>>()
        };
        let first = numbers(3);
        assert_eq!(first, numbers(3));
        assert_ne!(first, numbers(4));
        let distinct: std::collections::BTreeSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), 100);
    }
}
