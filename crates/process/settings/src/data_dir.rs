//! The data directory, whose files Egret believes: keys, tokens and an authority. That of another user is
//! refused.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use egret_files::{Distrust, is_ours, is_ours_alone, user_name};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use crate::failure::Failure;

/// Checks that the directory belongs to the user that runs this program or to root, if it exists.
///
/// # Errors
///
/// Fails otherwise, with the owner and what to do.
pub fn check(data_dir: &Path) -> Result<(), Failure> {
    // One that cannot be entered is reported where a file in it is needed.
    let Ok(metadata) = fs::metadata(data_dir) else { return Ok(()) };
    is_ours(&metadata).map_err(|distrust| {
        let (at, instead) = (data_dir.display(), instead(metadata.uid()));
        Failure::Misused(format!(
            "{at} (`data_dir`): {distrust}: run the command as its owner, {instead}, or set `data_dir` to a directory of your own"
        ))
    })
}

/// Checks the same for a gateway. A directory that this user cannot even enter is no danger, and the gateway
/// runs without files, as in a container that is started with another user than its image has.
///
/// # Errors
///
/// Fails as [`check`] does.
pub fn check_for_gateway(data_dir: &Path) -> Result<(), Failure> {
    match access(data_dir, Access::EXEC_OK) {
        Err(Errno::ACCESS) => Ok(()),
        _ => check(data_dir),
    }
}

/// Returns the beginning of a command that runs as this user.
fn instead(user: u32) -> String {
    match user_name(user) {
        Some(name) => format!("`sudo -u {name} egret ...`"),
        None => format!("`sudo -u '#{user}' egret ...`"),
    }
}

/// Logs a warning if other users can replace files in the user's own directory. That of a container's volume
/// is root's, and there are no other users.
pub fn warn_of_writers(data_dir: &Path) {
    let Ok(metadata) = fs::metadata(data_dir) else { return };
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    if let (true, Err(Distrust::Writable(mode))) = (is_own, is_ours_alone(&metadata)) {
        tracing::warn!(
            directory = %data_dir.display(),
            mode = format!("{mode:04o}"),
            "other users can replace the files in `data_dir`: run `chmod go-w` on it"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::chown;

    use super::*;

    #[test]
    fn a_directory_of_another_user_is_refused_with_what_to_run() {
        let directory = tempfile::tempdir().unwrap();
        assert!(check(directory.path()).is_ok() && check(&directory.path().join("none")).is_ok());
        if chown(directory.path(), Some(123_456), None).is_err() {
            egret_measure::streams::say("not run as root: a directory of another user is not tried");
            return;
        }
        let error = check(directory.path()).unwrap_err().to_string();
        assert!(
            error.contains("it belongs to user 123456, and this program runs as root (user 0)"),
            "{error}"
        );
        assert!(error.contains("`sudo -u '#123456' egret ...`"), "{error}");
    }
}
