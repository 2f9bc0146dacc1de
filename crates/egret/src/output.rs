//! Standard output of the commands.

use egret_measure::streams;

use crate::failure::Failure;

/// Prints to standard output.
pub fn print(text: &str) -> Result<(), Failure> {
    streams::print(text).map_err(|error| Failure::Failed(format!("cannot write to standard output: {error}")))
}
