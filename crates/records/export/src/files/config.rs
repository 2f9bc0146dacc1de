//! The config keys of exporters that write files, and the limits of rotation.

use std::path::{Path, PathBuf};

use egret_config::{Duration, Problem, Size};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Minimum size of a file. A smaller one would be mostly header and closing.
const ROTATE_MIN: Size = Size::from_kib(4);

/// Files in a local directory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FilesConfig {
    /// Directory of the files. It is created when first needed, for its owner only. Several exporters may
    /// share it.
    pub directory: PathBuf,
    /// Maximum size of a file before the next one begins. A file can exceed it by one batch. At least `4KiB`.
    #[serde(default = "egret_config::kib::<65_536>")]
    pub rotate: Size,
    /// Maximum age of a file before the next one begins; `0s` means no limit.
    #[serde(default = "egret_config::secs::<3_600>")]
    pub rotate_after: Duration,
    /// Maximum size of all files of this exporter together; the oldest are deleted. At least twice `rotate`;
    /// `0B` keeps all.
    #[serde(default = "egret_config::kib::<1_048_576>")]
    pub keep: Size,
    /// Compresses closed files.
    #[serde(default)]
    pub gzip: bool,
}

impl FilesConfig {
    pub(crate) fn problems(&self, at: &str, problems: &mut Vec<Problem>) {
        if self.directory == Path::new("") {
            problems.push(Problem::new(
                format!("{at}.directory"),
                "must not be empty; `.` is the working directory",
            ));
        }
        Rotation { rotate: self.rotate, keep: self.keep, keep_key: "keep" }.problems(at, problems);
    }
}

/// The sizes that a config sets for rotation.
#[derive(Debug, Clone, Copy)]
pub struct Rotation {
    /// Maximum size of a file.
    pub rotate: Size,
    /// Maximum size of all files together.
    pub keep: Size,
    /// Config key of `keep`.
    pub keep_key: &'static str,
}

impl Rotation {
    /// Checks the sizes: the limit for all files must leave room for the one being written beside a closed
    /// one. `at` is the path of the exporter in the config.
    pub fn problems(&self, at: &str, problems: &mut Vec<Problem>) {
        let Self { rotate, keep, keep_key } = *self;
        if rotate < ROTATE_MIN {
            problems.push(Problem::new(format!("{at}.rotate"), format!("at least `{ROTATE_MIN}`")));
        }
        if keep.bytes() > 0 && keep.bytes() < rotate.bytes().saturating_mul(2) {
            let message =
                format!("`{keep}` is less than twice `rotate`, `{rotate}`: no closed file could be kept");
            problems.push(Problem::new(format!("{at}.{keep_key}"), message));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_of_all_files_leaves_room_for_two() {
        for (rotate, keep, expected) in [
            (4, 8, &[][..]),
            (4, 0, &[]),
            (3, 8, &["e.rotate: at least `4KiB`"]),
            (4, 7, &["e.spool: `7KiB` is less than twice `rotate`, `4KiB`: no closed file could be kept"]),
        ] {
            let mut problems = Vec::new();
            let rotation =
                Rotation { rotate: Size::from_kib(rotate), keep: Size::from_kib(keep), keep_key: "spool" };
            rotation.problems("e", &mut problems);
            let problems: Vec<_> =
                problems.iter().map(|problem| format!("{}: {}", problem.path, problem.message)).collect();
            assert_eq!(problems, expected);
        }
    }
}
