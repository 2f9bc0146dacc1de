//! `egret lab` in a build without the lab.

pub use crate::absent::AnyCommand as Lab;

use egret_settings::failure::Failure;

use crate::absent;

impl Lab {
    /// Fails: this build has no such command.
    pub fn run(self) -> Result<(), Failure> {
        let Self::Any(words) = self;
        drop(words);
        Err(absent::absent("lab"))
    }
}
