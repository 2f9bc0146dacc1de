//! `egret bench` in a build without the lab.

pub use crate::absent::AnyArguments as BenchArgs;

use egret_settings::failure::Failure;

use crate::absent;

/// Fails: this build has no such command.
pub fn run(_: BenchArgs) -> Result<(), Failure> {
    Err(absent::absent("bench"))
}
