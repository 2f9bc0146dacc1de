//! Sealed states of tokens on disk. A store may lose a refresh token that was replaced, and nothing else has
//! it.

use std::io::{self, Read as _};
use std::path::PathBuf;

use egret_files::{private_directory, replace_file};

/// Maximum length of a file.
const BYTES_MAX: u64 = 256 << 10;
/// Length of the version at the start of a file.
const VERSION_BYTES: usize = 8;

/// The directory of the files, one for each token that is exclusive.
#[derive(Debug)]
pub(super) struct TokenFiles(pub PathBuf);

impl TokenFiles {
    /// Reads the version and the sealed state of a token, if there is one.
    pub fn read(&self, name: &str) -> io::Result<Option<(u64, Vec<u8>)>> {
        let file = match std::fs::File::open(self.0.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        let mut bytes = Vec::new();
        file.take(BYTES_MAX).read_to_end(&mut bytes)?;
        let Some((version, sealed)) = bytes.split_first_chunk::<VERSION_BYTES>() else { return Ok(None) };
        Ok(Some((u64::from_le_bytes(*version), sealed.to_vec())))
    }

    /// Replaces the state of a token, durably.
    pub fn write(&self, name: &str, version: u64, sealed: &[u8]) -> io::Result<()> {
        private_directory(&self.0)?;
        replace_file(&self.0.join(name), &[&version.to_le_bytes(), sealed].concat())?;
        std::fs::File::open(&self.0)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_state_is_replaced_and_is_its_owners_alone() {
        let directory = tempfile::tempdir().unwrap();
        let files = TokenFiles(directory.path().join("tokens"));
        assert_eq!(files.read("a").unwrap(), None);
        files.write("a", 1, b"one").unwrap();
        files.write("a", 2, b"two").unwrap();
        assert_eq!(files.read("a").unwrap(), Some((2, b"two".to_vec())));
        let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(files.0.clone()), mode(files.0.join("a"))), (0o700, 0o600));
    }

    #[test]
    fn a_file_that_was_cut_is_no_state() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("a"), b"1234567").unwrap();
        assert_eq!(TokenFiles(directory.path().to_owned()).read("a").unwrap(), None);
    }
}
