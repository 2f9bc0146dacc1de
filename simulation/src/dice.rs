//! The choices of a world, all from its seed.

use std::time::Duration;

use egret_clock::Random;

/// A source of choices.
#[derive(Debug, Clone)]
pub struct Dice(Random, pub(crate) Scale);

/// The size of messages and of the room for them. Large ones in small rooms would take too many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Up to two kilobytes, in rooms and pieces of a few bytes.
    Small,
    /// Up to sixty kilobytes, in rooms and pieces of some kilobytes.
    Large,
}

impl Dice {
    /// The choices of a seed.
    pub fn new(seed: u64, scale: Scale) -> Self {
        Self(Random::new(seed), scale)
    }

    /// A number from `low` to `high`, inclusive.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.0.up_to(high - low)
    }

    /// `true` with this chance of 100.
    pub fn percent(&mut self, chance: u64) -> bool {
        self.0.up_to(99) < chance
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[usize::try_from(self.0.up_to(of.len() as u64 - 1)).unwrap_or_default()]
    }

    /// A length: mostly short, sometimes long.
    pub fn length(&mut self) -> usize {
        let most = match self.1 {
            Scale::Small => self.pick(&[0, 1, 40, 700, 2_000]),
            Scale::Large => self.pick(&[0, 40, 700, 5_000, 20_000, 60_000]),
        };
        usize::try_from(self.0.up_to(most)).unwrap_or_default()
    }

    /// The number of bytes of a room, or of a piece.
    pub fn room(&mut self) -> usize {
        match self.1 {
            Scale::Small => self.pick(&[60, 200, 1_000, 64_000]),
            Scale::Large => self.pick(&[2_000, 16_000, 64_000, 1_000_000]),
        }
    }

    /// A time of at most this many milliseconds, often none.
    pub fn pause(&mut self, most_ms: u64) -> Duration {
        if self.percent(50) { Duration::ZERO } else { Duration::from_micros(self.0.up_to(most_ms * 1_000)) }
    }

    /// A number of chance.
    pub fn seed(&mut self) -> u64 {
        self.0.draw()
    }

    /// Another source of the same scale.
    pub fn split(&mut self) -> Self {
        Self::new(self.seed(), self.1)
    }
}
