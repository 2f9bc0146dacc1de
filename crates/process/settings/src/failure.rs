//! The failure of a command, and its exit code.

use std::fmt;

/// The failure of a command.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A valid command failed: exit code 1.
    #[error("{0}")]
    Failed(String),
    /// The usage or the config is wrong: exit code 2.
    #[error("{0}")]
    Misused(String),
    /// `egret exec` did not run its command, for this reason and with this exit code.
    #[error("{0}")]
    NotRun(String, u8),
}

impl Failure {
    /// Creates the failure of a valid command.
    pub fn failed(error: impl fmt::Display) -> Self {
        Self::Failed(error.to_string())
    }

    /// Creates the failure of a wrong command or config.
    pub fn misused(error: impl fmt::Display) -> Self {
        Self::Misused(error.to_string())
    }

    /// The exit code of the program.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Misused(_) => 2,
            Self::NotRun(_, code) => *code,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misuse_has_an_exit_code_of_its_own() {
        let (failed, misused) = (Failure::failed("no disk"), Failure::misused("no file"));
        assert_eq!((failed.exit_code(), misused.exit_code()), (1, 2));
        assert_eq!(format!("{failed}, {misused}"), "no disk, no file");
    }
}
