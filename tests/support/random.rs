//! Numbers that are a function of a seed, so that one run can be made again.

/// The generator `SplitMix64`: small, and even seeds that follow each other give different numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The numbers of the part `number` of a run with this seed: one message, one thread.
    #[must_use]
    pub fn of(seed: u64, number: u64) -> Self {
        let mut random = Self(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        random.draw();
        random
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut value = self.0;
        value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number below `bound`, or 0 if that is 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.draw() >> 33).unwrap_or_default() % bound.max(1)
    }

    /// `true` in one of `times` cases.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of them.
    pub fn one<'a, T: ?Sized>(&mut self, of: &[&'a T]) -> &'a T {
        of[self.below(of.len())]
    }

    /// One of the parts of a text, between which `¦` stands.
    pub fn part<'a>(&mut self, of: &'a str) -> &'a str {
        of.split('¦').nth(self.below(of.split('¦').count())).unwrap_or_default()
    }
}
