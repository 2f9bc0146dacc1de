//! A small seeded random number generator for reproducible draws. Not suitable for secrets.

/// `SplitMix64` (Steele, Lea and Flood, 2014): one addition and three mixing steps per number, good enough
/// for resampling and delays.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// Creates a generator that always yields the same numbers for the same seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a uniformly distributed number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number from 0 up to but excluding `end`; 0 if `end` is 0.
    pub fn below(&mut self, end: usize) -> usize {
        // The high half of the product is uniform, up to a bias of `end` in 2^64.
        let product = u128::from(self.next_u64()) * u128::try_from(end).unwrap_or(u128::MAX >> 64);
        usize::try_from(product >> 64).unwrap_or(0)
    }

    /// Returns a number from 0 up to but excluding 1.
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit exactly")]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}
