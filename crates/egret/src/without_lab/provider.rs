//! `egret provider` in a build without the lab.

pub use crate::absent::AnyArguments as ProviderArguments;

use crate::absent;
use crate::failure::Failure;

/// Fails: this build has no such command.
pub fn run(_: ProviderArguments) -> Result<(), Failure> {
    Err(absent::absent("provider"))
}
