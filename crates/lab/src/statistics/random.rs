//! A small seeded generator of random numbers, for draws that come out the same each time. Not for secrets.

/// `SplitMix64` (Steele, Lea and Flood, 2014): one addition and three mixes a number, good enough to draw rounds and delays.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// A generator that always gives the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number, all equally likely.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number from 0 to `end`, without `end`; 0 where `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The high half of the product: equally likely but for one part in 2^64 / end.
        let product = u128::from(self.next_u64()) * u128::try_from(end).unwrap_or(u128::MAX >> 64);
        usize::try_from(product >> 64).unwrap_or(0)
    }

    /// A number from 0 to 1, without 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
