//! A key in a file: 32 random bytes, made once, and accessible to their owner only.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use aws_lc_rs::rand;
use zeroize::Zeroizing;

use crate::owner::{Distrust, is_ours};
use crate::replace::{replace_file, write_beside};

/// Length of a key in bytes: that of a SHA-256 digest. A longer key adds no security (RFC 2104 §3).
pub const KEY_BYTES: usize = 32;

/// Any access by the group or by others.
const OTHERS: u32 = 0o077;

/// The bytes of a key, wiped when they are dropped.
type Bytes = Zeroizing<[u8; KEY_BYTES]>;

/// The reason why a key could not be loaded, created or replaced.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read, created or replaced.
    #[error("cannot use the key file: {0}")]
    Io(#[from] io::Error),
    /// Users other than the owner may read or write the file, which has these permissions.
    #[error(
        "the key file is accessible to users other than its owner (mode {0:04o}): set its mode to 0600, and create a new key if it may have been read"
    )]
    Exposed(u32),
    /// Another user has made the file, and knows the key.
    #[error("the key file is not used: {0}")]
    Foreign(Distrust),
    /// The path is not a regular file, or its length is not [`KEY_BYTES`].
    #[error("the key file is not a regular file of {KEY_BYTES} bytes")]
    NoKey,
    /// The system provided no random bytes.
    #[error("the system provided no random bytes for a key")]
    NoRandom,
}

impl KeyError {
    /// Returns `true` if there is no file.
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Io(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

/// Loads the key in the file at `path`, or creates it if the file does not exist. Callers that create it at
/// the same time get the same key.
///
/// # Errors
///
/// Fails as [`load_key`] does, and if the file cannot be created.
pub fn load_or_create_key(path: &Path) -> Result<Bytes, KeyError> {
    match load_key(path) {
        Err(error) if error.is_missing() => {}
        loaded => return loaded,
    }
    let new = write_beside(path, &*new_key()?)?;
    // Unlike a rename, a hard link never replaces a key that another process has created meanwhile.
    let linked = fs::hard_link(&new, path);
    fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
        _ => load_key(path),
    }
}

/// Loads the key in the file at `path`.
///
/// # Errors
///
/// Fails if the file is not one of a key, if another user has made it, and if users other than the owner may
/// read or write it.
pub fn load_key(path: &Path) -> Result<Bytes, KeyError> {
    // Opening anything other than a regular file, such as a pipe, could block forever.
    if !fs::metadata(path)?.is_file() {
        return Err(KeyError::NoKey);
    }
    let mut file = File::open(path)?;
    // Check the file that was opened: another may be at the path by now.
    let metadata = file.metadata()?;
    is_ours(&metadata).map_err(KeyError::Foreign)?;
    let mode = metadata.mode() & 0o7777;
    if mode & OTHERS != 0 {
        return Err(KeyError::Exposed(mode));
    }
    if metadata.len() != KEY_BYTES as u64 {
        return Err(KeyError::NoKey);
    }
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    file.read_exact(&mut *bytes)?;
    Ok(bytes)
}

/// Replaces the key at `path` by a new one. The old key is lost.
///
/// # Errors
///
/// Fails if the file cannot be replaced.
pub fn replace_key(path: &Path) -> Result<Bytes, KeyError> {
    replace_file(path, &*new_key()?)?;
    load_key(path)
}

/// Returns a new key.
fn new_key() -> Result<Bytes, KeyError> {
    let mut bytes = Zeroizing::new([0; KEY_BYTES]);
    rand::fill(&mut *bytes).map_err(|_| KeyError::NoRandom)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, chown};

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        let key = load_or_create_key(&path).unwrap();
        assert_eq!(*load_or_create_key(&path).unwrap(), *key);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.len()), (0o600, 32));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn those_that_make_a_key_at_once_get_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        let keys: Vec<_> = std::thread::scope(|scope| {
            let load = || load_or_create_key(&path).unwrap();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| **key == *keys[0]));
    }

    #[test]
    fn a_key_that_others_can_get_at_or_have_made_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        load_or_create_key(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(load_or_create_key(&path), Err(KeyError::Exposed(found)) if found == mode));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        if chown(&path, Some(65_534), None).is_ok() {
            let error = load_or_create_key(&path).unwrap_err();
            assert!(matches!(error, KeyError::Foreign(Distrust::Owner(65_534))), "{error}");
        } else {
            println!("not run as root: a key of another user is not tried");
        }
    }

    #[test]
    fn a_file_that_is_no_key_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        fs::write(&path, "short").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(load_or_create_key(&path), Err(KeyError::NoKey)));
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert!(matches!(load_or_create_key(directory.path()), Err(KeyError::NoKey)));
        assert!(matches!(load_or_create_key(&path.join("none")), Err(KeyError::Io(_))));
    }

    #[test]
    fn a_replaced_key_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.key");
        let before = load_or_create_key(&path).unwrap();
        let after = replace_key(&path).unwrap();
        assert_ne!(*before, *after);
        assert_eq!(*load_key(&path).unwrap(), *after);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
