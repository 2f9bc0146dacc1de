//! `egret bench` in a build without the lab.

pub use crate::absent::AnyArguments as BenchArgs;

use crate::absent;
use crate::failure::Failure;

/// Fails: this build has no such command.
pub fn run(_: BenchArgs) -> Result<(), Failure> {
    Err(absent::absent("bench"))
}
