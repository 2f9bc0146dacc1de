//! `egret provider` in a build without the lab.

pub use crate::absent::AnyArguments as Arguments;

use crate::absent;
use crate::failure::Failure;

/// Fails: this build has no such command.
pub fn run(_: Arguments) -> Result<(), Failure> {
    Err(absent::absent("provider"))
}
