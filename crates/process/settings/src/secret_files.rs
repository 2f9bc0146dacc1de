//! The secret files that a config refers to, systemd's credentials among them: paths and permissions.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use egret_config::{Problem, credential_path};
use serde_json::Value;

use crate::written_texts::for_each_text;

/// Maximum number of files that are watched beside a config.
const NAMED_FILES_MAX: usize = 256;

/// Permission of others to read (POSIX `S_IROTH`).
const READ_BY_OTHERS: u32 = 0o004;

/// Reports secret files, anywhere in a serialized config, that every user of the machine may read.
pub fn check_permissions(written: &Value, problems: &mut Vec<Problem>) {
    for_each_text(written, "", &mut |at, text| {
        let Some(path) = path_of(text) else { return };
        let mode = std::fs::metadata(path).map_or(0, |file| file.permissions().mode());
        if mode & READ_BY_OTHERS != 0 {
            let message = format!(
                "every user of this machine may read {path}: run `chmod o-r {path}`, or set `secrets.world_readable: allow`"
            );
            problems.push(Problem::new(at, message));
        }
    });
}

/// Prefix of a reference to a secret file.
const PREFIX: &str = "${file:";

/// Returns the path of a secret that is read from a file.
fn path_of(text: &str) -> Option<&str> {
    text.strip_prefix(PREFIX)?.strip_suffix('}')
}

/// Beginning of a reference to a credential that systemd passes to the service.
const CREDENTIAL_PREFIX: &str = "${credential:";

/// Returns the secret files that a config's text refers to, even if the config is invalid.
pub fn paths(text: &str) -> impl Iterator<Item = PathBuf> {
    let named = move |prefix: &'static str| {
        text.split(prefix).skip(1).filter_map(|rest| Some(rest.split_once('}')?.0))
    };
    named(PREFIX).map(PathBuf::from).chain(named(CREDENTIAL_PREFIX).filter_map(credential_path))
}

/// Returns the files beside a config that its text names with a key `file`, such as scripts, even if the
/// config is invalid. Paths are relative to `directory`. Words that only look like such a key name no file,
/// or one that is watched in vain.
pub fn named_files(text: &str, directory: &Path) -> Vec<PathBuf> {
    let value = |rest: &str| {
        let rest = rest.trim_start();
        let end = match rest.chars().next()? {
            quote @ ('"' | '\'') => return Some(rest[1..].split(quote).next()?.to_owned()),
            _ => rest.find([',', '}', '\n', '\r', '#']).unwrap_or(rest.len()),
        };
        Some(rest[..end].trim_end().to_owned())
    };
    let paths = text.split("file: ").skip(1).filter_map(value).filter(|path| !path.is_empty());
    let files = paths.map(|path| directory.join(path)).filter(|path| path.is_file());
    files.take(NAMED_FILES_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paths_are_found_in_any_text() {
        let text = "a: ${file:/run/a}\nb: '${file:b}' # nothing\nc: ${env:C}";
        assert_eq!(paths(text).collect::<Vec<_>>(), ["/run/a", "b"].map(PathBuf::from));
    }

    #[test]
    fn files_beside_a_config_are_found_where_they_are() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["a.js", "b c.js"] {
            std::fs::write(directory.path().join(name), "").unwrap();
        }
        let text = "- script: { file: a.js, time: 1ms }\n- script:\n    file: 'b c.js' # x\n  file: no-such.js\nfile:";
        let expected = ["a.js", "b c.js"].map(|name| directory.path().join(name));
        assert_eq!(named_files(text, directory.path()), expected);
    }

    #[test]
    fn a_file_that_others_may_read_is_reported_with_its_key() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let written = serde_json::json!({ "a": [{ "key": format!("${{file:{}}}", file.path().display()) }] });
        for (mode, expected) in [(0o600, vec![]), (0o604, vec!["a[0].key"])] {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            let mut problems = Vec::new();
            check_permissions(&written, &mut problems);
            assert_eq!(problems.iter().map(|problem| &*problem.path).collect::<Vec<_>>(), expected);
        }
    }
}
