//! Files that only their owner may read, and the decision which files of others may be followed.

mod key_file;
mod owner;
mod replace;
pub mod system;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;

use rustix::fs::OFlags;

pub use key_file::{KEY_BYTES, KeyError, load_key, load_or_create_key, replace_key};
pub use owner::{Distrust, FoundError, check_found, is_ours, is_ours_alone, user_name};
pub use replace::{private_directory, replace_file};

/// Read and write permission for the owner.
const MODE: u32 = 0o600;

/// Returns the options for opening a private file for writing. A new file is accessible to its owner only,
/// whatever the umask; an existing one keeps its permissions. A symbolic link in its place is an error
/// (ELOOP): an attacker with access to the directory could redirect the output with it. Links in the path to
/// the directory are followed.
pub fn private_file() -> OpenOptions {
    let mut options = File::options();
    // The flag is the same bit in both types.
    options.mode(MODE).custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

/// Returns `true` if opening a [`private_file`] failed because a symbolic link is in its place.
pub fn is_symbolic_link(error: &std::io::Error) -> bool {
    error.raw_os_error() == Some(rustix::io::Errno::LOOP.raw_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn a_new_file_is_private_and_an_old_one_keeps_permissions() {
        let directory = tempfile::tempdir().unwrap();
        let (new, old) = (directory.path().join("new"), directory.path().join("old"));
        std::fs::write(&old, "1").unwrap();
        std::fs::set_permissions(&old, std::fs::Permissions::from_mode(0o640)).unwrap();
        for (path, mode) in [(&new, 0o600), (&old, 0o640)] {
            private_file().append(true).create(true).open(path).unwrap().write_all(b"2").unwrap();
            assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, mode);
        }
        assert_eq!(std::fs::read(old).unwrap(), b"12");
    }

    #[test]
    fn a_symbolic_link_is_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (file, link) = (directory.path().join("file"), directory.path().join("link"));
        std::fs::write(&file, "1").unwrap();
        for target in [&file, &directory.path().join("not-there")] {
            symlink(target, &link).unwrap();
            let error = private_file().append(true).create(true).open(&link).unwrap_err();
            assert!(is_symbolic_link(&error), "{error}");
            std::fs::remove_file(&link).unwrap();
        }
        assert_eq!(std::fs::read(file).unwrap(), b"1");
    }
}
