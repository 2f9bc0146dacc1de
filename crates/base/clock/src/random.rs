//! Random numbers for jitter and sampling: fast, seeded, not for secrets.

/// A `SplitMix64` generator (Steele, Lea and Flood, 2014).
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates the sequence of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next 64-bit number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// Returns the next number from 0 to `max`, inclusive. The distribution is uniform within the resolution
    /// of 64 bits.
    pub fn up_to(&mut self, max: u64) -> u64 {
        let wide = u128::from(self.draw()) * (u128::from(max) + 1);
        u64::try_from(wide >> 64).unwrap_or(max)
    }
}

/// Mixes the bits: each bit of the result depends on every bit of `number`.
pub fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// Returns a number from 0 to below 1, made of the 53 upper bits of `drawn`.
#[expect(clippy::cast_precision_loss, reason = "a float holds 53 bits exactly")]
pub fn unit_interval(drawn: u64) -> f64 {
    (drawn >> 11) as f64 / (1_u64 << 53) as f64
}

/// Mixes the bits like [`mixed`] with a third of its instructions; for hashes that begin with a secret. The
/// result is the sum without carry of both halves of a product.
pub fn folded(number: u64) -> u64 {
    let (low, high) = number.carrying_mul(0x9e37_79b9_7f4a_7c15, 0);
    low ^ high
}

impl Default for Random {
    /// Seeds from the simulated world's chance.
    #[cfg(feature = "simulated")]
    fn default() -> Self {
        Self::new(crate::simulated::draw())
    }

    /// Seeds from the standard library's source of hash seeds.
    #[cfg(not(feature = "simulated"))]
    fn default() -> Self {
        use std::hash::{BuildHasher, Hasher};
        Self::new(std::hash::RandomState::new().build_hasher().finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_bounds_and_spread_over_them() {
        let mut random = Random::new(1);
        let mut counts = [0_u32; 5];
        for _ in 0..5_000 {
            counts[usize::try_from(random.up_to(4)).unwrap()] += 1;
        }
        assert!(counts.iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
        assert_eq!(random.up_to(0), 0);
        assert!((0..100).any(|_| random.up_to(u64::MAX) > u64::MAX / 2));
    }
}
