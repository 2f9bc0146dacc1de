//! The version of this program, for people and support tickets.

use std::env::consts::{ARCH, OS};

/// The commit that the program was built from, which `make package` sets.
pub const COMMIT: Option<&str> = option_env!("EGRET_COMMIT");

/// Returns the line that `egret version` prints: the version, the commit if it is known, and the machine.
pub fn line() -> String {
    let commit = COMMIT.map(|commit| format!("{commit}, ")).unwrap_or_default();
    format!("egret {} ({commit}{ARCH}-{OS})\n", env!("CARGO_PKG_VERSION"))
}
