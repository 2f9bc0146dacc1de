//! The key of the pseudonyms: 32 random bytes, created once per installation and kept in a file that only its
//! owner can read.
//!
//! A pseudonym cannot be reversed, but anyone with the key can test guesses against it. Pseudonyms of
//! different keys are unrelated. Files name their key by its [`Key::id`], which reveals nothing about the
//! key.

use std::path::Path;

use aws_lc_rs::{hmac, rand};
use egret_files::{load_key, load_or_create_key, replace_key};
use egret_items::opaque;
use zeroize::Zeroizing;

pub use egret_files::{KEY_BYTES, KeyError};

/// A key, ready for use. The bytes of the key are wiped after construction, and the HMAC state when the key
/// is dropped.
#[derive(Clone)]
pub struct Key {
    hmac: hmac::Key,
    id: String,
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
        load_or_create_key(path).map(|secret| Self::new(&secret))
    }

    /// Loads the key in the file at `path`. Returns an error if another user has made the file, or may read
    /// or write it.
    pub fn load(path: &Path) -> Result<Self, KeyError> {
        load_key(path).map(|secret| Self::new(&secret))
    }

    /// Replaces the key at `path` by a new one. The old key is lost, so nothing links old pseudonyms to new
    /// ones.
    pub fn rotate(path: &Path) -> Result<Self, KeyError> {
        replace_key(path).map(|secret| Self::new(&secret))
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

opaque!(Key { id });

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_key_has_one_id_until_it_is_rotated() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("har.key");
        let key = Key::load_or_create(&path).unwrap();
        assert_eq!(Key::load_or_create(&path).unwrap().id(), key.id());
        let after = Key::rotate(&path).unwrap();
        assert_ne!(key.id(), after.id());
        assert_eq!(Key::load(&path).unwrap().id(), after.id());
    }

    #[test]
    fn a_key_is_not_shown() {
        let key = Key::new(&[7; KEY_BYTES]);
        assert_eq!(format!("{key:?}"), format!("Key {{ id: {:?}, .. }}", key.id()));
        assert_eq!(key.id().len(), 16);
    }
}
