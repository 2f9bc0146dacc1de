//! The tokens of a call, and their sums over calls.

use std::ops::AddAssign;

use serde::Serialize;

/// The tokens that a call is billed for. Sums include their parts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Cost {
    pub input: u64,
    /// Input read from a cache.
    pub cache_read: u64,
    /// Input written to a cache.
    pub cache_write: u64,
    /// Input written to a cache for an hour, a part of `cache_write`.
    pub cache_write_1h: u64,
    pub output: u64,
    /// Output that the client does not see.
    pub reasoning: u64,
}

impl AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.input += other.input;
        self.cache_read += other.cache_read;
        self.cache_write += other.cache_write;
        self.cache_write_1h += other.cache_write_1h;
        self.output += other.output;
        self.reasoning += other.reasoning;
    }
}

impl Cost {
    /// Input that neither was read from a cache nor written to one.
    pub fn uncached(self) -> u64 {
        self.input - self.cache_read - self.cache_write
    }

    /// Input and output.
    pub fn total(self) -> u64 {
        self.input + self.output
    }
}
