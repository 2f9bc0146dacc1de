//! The key of the pseudonyms: 32 random bytes, made once per installation and kept in a file that only its owner can read.
//!
//! Whoever has the key can test guesses against pseudonyms; nobody can read a value out of one. A new key makes pseudonyms that have
//! nothing to do with those before. Which key was used is told by its [`Key::id`], which says nothing of the key.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::{hmac, rand};
use zeroize::Zeroizing;

/// Length of a key in bytes: that of a SHA-256 digest, more than which brings nothing (RFC 2104 §3).
pub const KEY_BYTES: usize = 32;

/// Who may read and write the file: its owner.
const MODE: u32 = 0o600;

/// A key, ready for use. What it was made of is wiped at once, and the digest's state when it is dropped.
#[derive(Clone)]
pub struct Key {
    hmac: hmac::Key,
    id: String,
}

/// Why there is no key.
#[derive(Debug)]
pub enum KeyError {
    /// The file cannot be read, made or replaced.
    Io(io::Error),
    /// Others than its owner may read or write the file; these are its permissions.
    Exposed(u32),
    /// It is no file, or one of another length than [`KEY_BYTES`].
    NoKey,
    /// The system gave no random bytes.
    NoRandom,
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "the key file cannot be used: {error}"),
            Self::Exposed(mode) => {
                write!(
                    f,
                    "others than its owner can get at the key file (mode {mode:04o}): make it {MODE:04o}, and the key anew if it was seen"
                )
            }
            Self::NoKey => write!(f, "the key file is no file of {KEY_BYTES} bytes"),
            Self::NoRandom => f.write_str("the system gave no random bytes for a key"),
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
    /// Of these bytes.
    pub fn new(secret: &[u8; KEY_BYTES]) -> Self {
        let hmac = hmac::Key::new(hmac::HMAC_SHA256, secret);
        // Starts like no value's digest, see `pseudonym`.
        let tag = hmac::sign(&hmac, b"key id");
        let bits = tag.as_ref()[..8].iter().fold(0_u64, |bits, byte| bits << 8 | u64::from(*byte));
        let id = format!("{bits:016x}");
        Self { hmac, id }
    }

    /// The key in the file at `path`, which is made if there is none. Two that make it at once get the same.
    pub fn load_or_create(path: &Path) -> Result<Self, KeyError> {
        match Self::load(path) {
            Err(KeyError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {}
            loaded => return loaded,
        }
        let new = write_new(path)?;
        // Unlike renaming, this never replaces what another has made meanwhile.
        let linked = fs::hard_link(&new, path);
        fs::remove_file(&new)?;
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.into()),
            _ => Self::load(path),
        }
    }

    /// The key in the file at `path`. Refused where others than its owner may read or write it.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        // Opening anything else, such as a pipe, could take for ever.
        if !fs::metadata(path)?.is_file() {
            return Err(KeyError::NoKey);
        }
        let mut file = File::open(path)?;
        // Of the file that was opened, whatever stands at the path by now.
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

    /// Puts a new key in the place of the one at `path`, which is gone: nothing links pseudonyms of the one to those of the other.
    pub fn rotate(path: &Path) -> Result<Self, KeyError> {
        let new = write_new(path)?;
        if let Err(error) = fs::rename(&new, path) {
            fs::remove_file(&new)?;
            return Err(error.into());
        }
        Self::load(path)
    }

    /// By which a key is known, 16 hexadecimal digits. It says nothing of the key.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A digest under this key that is fed piece by piece.
    pub(crate) fn digest(&self) -> hmac::Context {
        hmac::Context::with_key(&self.hmac)
    }
}

/// Writes a new key beside `path`, and says where.
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

/// Shows which key it is, never the key.
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
