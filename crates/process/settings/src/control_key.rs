//! The key in the data directory by which a gateway proves to commands of the same user that it is theirs.
//!
//! It outlives the gateway: several gateways may have the same data directory, one after the other or, for
//! `egret exec`, side by side. No other file can serve: the token is replaced at each start, and is for
//! people and scripts; the key of the pseudonyms may be given to those who read recordings.

use std::path::Path;

use egret_control::{ControlKey, Identity};
use egret_files::{KeyError, load_key, load_or_create_key, private_directory};

use crate::data_dir;
use crate::failure::Failure;

/// The file's name in the data directory.
pub const FILE_NAME: &str = "control.key";

/// Reads the key. `None` if no gateway has run with this data directory.
///
/// # Errors
///
/// Fails if the directory or the file is another user's, and if others can read the file.
pub fn load(data_dir: &Path) -> Result<Option<ControlKey>, Failure> {
    data_dir::check(data_dir)?;
    let path = data_dir.join(FILE_NAME);
    match load_key(&path) {
        Ok(bytes) => Ok(Some(ControlKey::new(&bytes))),
        Err(error) if error.is_missing() => Ok(None),
        Err(error) => Err(Failure::Misused(format!("{}: {error}", path.display()))),
    }
}

/// Returns the identity of a gateway with this data directory. If the key cannot be kept there is none, and
/// the log says what to do.
pub fn identity(data_dir: &Path) -> Option<Identity> {
    match load_or_create(data_dir) {
        Ok(key) => Identity::new(key),
        Err(error) => {
            tracing::info!(
                file = %data_dir.join(FILE_NAME).display(),
                "commands such as `egret tail` cannot recognize this gateway: {error}; set a writable `data_dir`"
            );
            None
        }
    }
}

fn load_or_create(data_dir: &Path) -> Result<ControlKey, KeyError> {
    private_directory(data_dir)?;
    load_or_create_key(&data_dir.join(FILE_NAME)).map(|bytes| ControlKey::new(&bytes))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_key_is_kept_for_all_gateways_of_a_data_directory() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        assert!(load(&data_dir).unwrap().is_none());
        assert!(identity(&data_dir).is_some() && load(&data_dir).unwrap().is_some());
        let before = fs::read(data_dir.join(FILE_NAME)).unwrap();
        assert!(identity(&data_dir).is_some());
        assert_eq!(fs::read(data_dir.join(FILE_NAME)).unwrap(), before);
        assert!(identity(Path::new("/dev/null/data")).is_none());
    }
}
