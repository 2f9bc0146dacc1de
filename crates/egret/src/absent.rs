//! The commands of the lab in a build without it, such as the one in the container image. Each says where to
//! find it.

use std::ffi::OsString;

use clap::{Args, Subcommand};
use egret_settings::failure::Failure;

/// Describes what to do about a command that this build does not have.
pub fn absent(command: &str) -> Failure {
    Failure::Misused(format!(
        "this build of Egret has no `egret {command}`, because it was built without the lab. The deb, rpm, \
         Python and npm packages have it, and so has a build from source with the default features."
    ))
}

/// Any arguments.
#[derive(Debug, Args)]
pub struct AnyArguments {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, num_args = 0.., hide = true)]
    _arguments: Vec<OsString>,
}

/// Any command.
#[derive(Debug, Subcommand)]
pub enum AnyCommand {
    /// Its name and arguments.
    #[command(external_subcommand)]
    Any(Vec<OsString>),
}
