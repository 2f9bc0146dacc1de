//! Files that are replaced as a whole: readers see what was there before, or all that is new.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;

use crate::private_file;
use crate::system::{DirBuilder, DirBuilderExt as _};

/// All permissions for the owner.
const DIRECTORY_MODE: u32 = 0o700;

/// Creates a directory that only its owner may enter, with its parents. Directories that are there keep their
/// permissions.
///
/// # Errors
///
/// Fails if the system does not create one of them.
pub fn private_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(path)
}

/// Puts a private file with these bytes in the place of the one at `path`, if there is one. The bytes are on
/// the disk before. Of several that replace a file at once, the last one wins. A process that is killed
/// meanwhile may leave its draft, a hidden file beside `path`.
///
/// # Errors
///
/// Fails, and leaves the old file, if the new one cannot be written or renamed.
pub fn replace_file(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let draft = write_beside(path, bytes)?;
    fs::rename(&draft, path).inspect_err(|_| drop(fs::remove_file(&draft)))
}

/// Writes a private file beside `path`, under a name that nothing else has. Returns its path.
pub(crate) fn write_beside(path: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    let mut suffix = [0; 8];
    rand::fill(&mut suffix).map_err(|_| io::Error::other("the system provided no random bytes"))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let draft = path.with_file_name(format!(".{name}.{:016x}", u64::from_be_bytes(suffix)));
    let mut file = private_file().write(true).create_new(true).open(&draft)?;
    match file.write_all(bytes).and_then(|()| file.sync_all()) {
        Ok(()) => Ok(draft),
        Err(error) => {
            let _ = fs::remove_file(&draft);
            Err(error)
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_file_is_replaced_and_private_and_nothing_else_is_left() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("a/b");
        private_directory(&inner).unwrap();
        private_directory(&inner).unwrap();
        assert_eq!(mode(&inner), 0o700);
        let path = inner.join("file");
        fs::write(&path, "old").unwrap();
        let mut reader = fs::File::open(&path).unwrap();
        replace_file(&path, b"new").unwrap();
        assert_eq!((fs::read(&path).unwrap(), mode(&path)), (b"new".to_vec(), 0o600));
        assert_eq!(io::read_to_string(&mut reader).unwrap(), "old");
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
    }

    #[test]
    fn a_link_is_replaced_and_not_followed() {
        let directory = tempfile::tempdir().unwrap();
        let (target, link) = (directory.path().join("target"), directory.path().join("link"));
        fs::write(&target, "kept").unwrap();
        symlink(&target, &link).unwrap();
        replace_file(&link, b"new").unwrap();
        assert_eq!(
            (fs::read(&target).unwrap(), fs::read(&link).unwrap()),
            (b"kept".to_vec(), b"new".to_vec())
        );
    }

    #[test]
    fn a_file_that_cannot_be_replaced_leaves_no_draft() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("directory");
        fs::create_dir_all(path.join("inside")).unwrap();
        assert!(replace_file(&path, b"new").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(replace_file(&directory.path().join("none/file"), b"new").is_err());
    }
}
