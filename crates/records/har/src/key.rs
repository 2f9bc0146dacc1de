//! The key of the pseudonyms: 32 random bytes, created once per installation and kept in a file that only its
//! owner can read.
//!
//! A pseudonym cannot be reversed, but anyone with the key can test guesses against it. Pseudonyms of
//! different keys are unrelated. Files name their key by its [`Key::id`], which reveals nothing about the
//! key.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::{hmac, rand};
use zeroize::Zeroizing;

/// Length of a key in bytes: that of a SHA-256 digest. A longer key adds no security (RFC 2104 §3).
pub const KEY_BYTES: usize = 32;

/// Permissions of the key file: read and write for its owner only.
const MODE: u32 = 0o600;

/// A key, ready for use. The bytes of the key are wiped after construction, and the HMAC state when the key
/// is dropped.
#[derive(Clone)]
pub struct Key {
    hmac: hmac::Key,
    id: String,
}

/// The reason why a key could not be loaded, created or replaced.
#[derive(Debug)]
pub enum KeyError {
    /// The file cannot be read, created or replaced.
    Io(io::Error),
    /// Users other than the owner may read or write the file, which has these permissions.
    Exposed(u32),
    /// The path is not a regular file, or its length is not [`KEY_BYTES`].
    NoKey,
    /// The system provided no random bytes.
    NoRandom,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot use the key file: {error}"),
            Self::Exposed(mode) => {
                write!(
                    f,
                    "the key file is accessible to users other than its owner (mode {mode:04o}): set its mode to {MODE:04o}, and create a new key if it may have been read"
                )
            }
            Self::NoKey => write!(f, "the key file is not a regular file of {KEY_BYTES} bytes"),
            Self::NoRandom => f.write_str("the system provided no random bytes for a key"),
        }
    }
}

impl std::error::Error for KeyError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for KeyError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl Key {
    /// Returns the key made of these bytes.
    pub fn new(secret: &[u8; KEY_BYTES]) -> Self {
        let hmac = hmac::Key::new(hmac::HMAC_SHA256, secret);
        // No value's digest starts with this text, see `pseudonym`.
        let tag = hmac::sign(&hmac, b"key id");
        let bits = tag.as_ref()[..8].iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        let id = format!("{bits:016x}");
        Self { hmac, id }
    }

    /// Returns a new key that is kept nowhere.
    pub fn random() -> Result<Self, KeyError> {
        let mut secret = Zeroizing::new([0; KEY_BYTES]);
        rand::fill(&mut *secret).map_err(|_| KeyError::NoRandom)?;
        Ok(Self::new(&secret))
    }

    /// Loads the key in the file at `path`, or creates it if the file does not exist. Callers that create it
    /// at the same time get the same key.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match Self::load(path) {
            Err(KeyError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        let new = write_new(path)?;
        // Unlike a rename, a hard link never replaces a key that another process has created meanwhile.
        let linked = fs::hard_link(&new, path);
        fs::remove_file(&new)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
            _ => Self::load(path),
        }
    }

    /// Loads the key in the file at `path`. Returns an error if users other than the owner may read or write
    /// the file.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        // Opening anything other than a regular file, such as a pipe, could block forever.
        if !fs::metadata(path)?.is_file() {
            return Err(KeyError::NoKey);
        }
        let mut file = File::open(path)?;
        // Check the file that was opened: another may be at the path by now.
        let metadata = file.metadata()?;
        let mode = metadata.mode() & 0o7777;
        if mode & 0o077 != 0 {
            return Err(KeyError::Exposed(mode));
        }
        if metadata.len() != KEY_BYTES as u64 {
            return Err(KeyError::NoKey);
        }
        let mut secret = Zeroizing::new([0; KEY_BYTES]);
        file.read_exact(&mut *secret)?;
        Ok(Self::new(&secret))
    }

    /// Replaces the key at `path` by a new one. The old key is lost, so nothing links old pseudonyms to new
    /// ones.
    pub fn rotate(path: &Path) -> Result<Self, KeyError> {
        let new = write_new(path)?;
        if let Err(error) = fs::rename(&new, path) {
            fs::remove_file(&new)?;
            return Err(error.into());
        }
        Self::load(path)
    }

    /// Returns the id of the key, 16 hexadecimal digits. It reveals nothing about the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns an incremental digest under this key.
    pub(crate) fn digest(&self) -> hmac::Context {
        hmac::Context::with_key(&self.hmac)
    }
}

/// Writes a new key beside `path`, and returns the path of that file.
fn write_new(path: &Path) -> Result<PathBuf, KeyError> {
    let mut secret = Zeroizing::new([0; KEY_BYTES]);
    let mut suffix = [0; 8];
    rand::fill(&mut *secret).and_then(|()| rand::fill(&mut suffix)).map_err(|_| KeyError::NoRandom)?;
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{:016x}", u64::from_be_bytes(suffix)));
    let new = PathBuf::from(name);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&new)?;
    let written = file.write_all(&*secret).and_then(|()| file.sync_all());
    if let Err(error) = written {
        fs::remove_file(&new)?;
        return Err(error.into());
    }
    Ok(new)
}

/// Shows the id of the key, never the key.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.id)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_key_is_made_once_and_only_its_owner_can_read_it() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("har.key");
        let key = Key::load_or_create(&path).unwrap();
        assert_eq!(Key::load_or_create(&path).unwrap().id(), key.id());
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.len()), (MODE, 32));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn those_that_make_a_key_at_once_get_the_same() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("har.key");
        let ids: Vec<String> = std::thread::scope(|scope| {
            let load = || Key::load_or_create(&path).unwrap().id().to_owned();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(load)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    }

    #[test]
    fn a_key_that_others_can_get_at_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("har.key");
        Key::load_or_create(&path).unwrap();
        for mode in [0o640, 0o604, 0o620, 0o644] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            assert!(matches!(Key::load_or_create(&path), Err(KeyError::Exposed(found)) if found == mode));
        }
    }

    #[test]
    fn what_is_no_key_is_refused_and_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("har.key");
        fs::write(&path, "short").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(MODE)).unwrap();
        assert!(matches!(Key::load_or_create(&path), Err(KeyError::NoKey)));
        assert_eq!(fs::read(&path).unwrap(), b"short");
        assert!(matches!(Key::load_or_create(directory.path()), Err(KeyError::NoKey)));
        assert!(matches!(Key::load_or_create(&path.join("none")), Err(KeyError::Io(_))));
    }

    #[test]
    fn a_rotated_key_is_another_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("har.key");
        let before = Key::load_or_create(&path).unwrap();
        let after = Key::rotate(&path).unwrap();
        assert_ne!(before.id(), after.id());
        assert_eq!(Key::load(&path).unwrap().id(), after.id());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = Key::new(&[7; KEY_BYTES]);
        assert_eq!(format!("{key:?}"), format!("Key({})", key.id()));
        assert_eq!(key.id().len(), 16);
    }
}
