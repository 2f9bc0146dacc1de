//! `egret provider` in a build without the lab.

pub use crate::absent::AnyArguments as ProviderArguments;

use egret_settings::failure::Failure;

use crate::absent;

/// Fails: this build has no such command.
pub fn run(_: ProviderArguments) -> Result<(), Failure> {
    Err(absent::absent("provider"))
}
