//! The token for the config's files if the config has none: created at each start, and kept in a file that
//! only its owner can read. Users of the machine who cannot read the file cannot change the config.

use std::fs;
use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use egret_config::Secret;
use egret_control::ControlConfig;
use egret_files::private_file;
use egret_measure::streams::say;
use zeroize::Zeroizing;

/// The file's name in the data directory.
pub const FILE_NAME: &str = "control-token";

/// Length of the token in bytes; in the file it has two hexadecimal digits for each.
const TOKEN_BYTES: usize = 32;

/// Permissions of a new data directory: its owner's alone.
const DIRECTORY_MODE: u32 = 0o700;

/// The created token and its file, which is removed when this is dropped.
pub struct ControlToken {
    path: PathBuf,
    token: Option<Secret>,
}

impl ControlToken {
    /// Creates a token in the data directory, unless the config has one. A token of an earlier start is
    /// replaced or removed. Without a file that can be written there is no token, and the log says what to
    /// do.
    pub fn create(config: &ControlConfig, data_dir: &Path) -> Self {
        let path = data_dir.join(FILE_NAME);
        if config.token.is_some() {
            let _ = fs::remove_file(&path);
            return Self { path, token: None };
        }
        let token = match write_new(&path) {
            Ok(token) => Some(token),
            Err(error) => {
                tracing::info!(
                    file = %path.display(),
                    "the config cannot be read and changed over the API, because its token cannot be kept: {error}; set \
                     `control.token`, or a writable `data_dir`"
                );
                None
            }
        };
        Self { path, token }
    }

    /// Returns that there is none: the config's files are not accessible over the API.
    pub const fn none() -> Self {
        Self { path: PathBuf::new(), token: None }
    }

    /// Returns the token.
    pub fn token(&self) -> Option<Secret> {
        self.token.clone()
    }

    /// Tells the user of a terminal the page's address with the token, and everybody else the name of its
    /// file: logs are kept and passed on.
    pub fn announce(&self, control: SocketAddr) {
        let Some(token) = &self.token else { return };
        if io::stderr().is_terminal() {
            say(format_args!("page: http://{control}/#token={}", token.expose()));
        } else {
            tracing::info!(file = %self.path.display(), "the token for changes of the config is in this file");
        }
    }
}

impl Drop for ControlToken {
    fn drop(&mut self) {
        let Some(token) = &self.token else { return };
        // Another Egret with the same data directory may have replaced it.
        if fs::read_to_string(&self.path).is_ok_and(|kept| kept.trim_end() == token.expose()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Writes a new token beside the path, and renames it into place: the file always holds a whole token.
fn write_new(path: &Path) -> io::Result<Secret> {
    if let Some(directory) = path.parent() {
        fs::DirBuilder::new().recursive(true).mode(DIRECTORY_MODE).create(directory)?;
    }
    let token = Zeroizing::new(random_hex::<TOKEN_BYTES>()?);
    let draft = path.with_file_name(format!(".{FILE_NAME}.{}", random_hex::<8>()?));
    let mut file = private_file().write(true).create_new(true).open(&draft)?;
    let written = writeln!(file, "{}", *token).and_then(|()| fs::rename(&draft, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&draft);
        return Err(error);
    }
    Ok(Secret::from_value("the token created at start", token.to_string()))
}

/// Returns random bytes as hexadecimal digits.
pub fn random_hex<const BYTES: usize>() -> io::Result<String> {
    let mut bytes = Zeroizing::new([0; BYTES]);
    rand::fill(&mut *bytes).map_err(|_| io::Error::other("the system provided no random bytes"))?;
    Ok(data_encoding::HEXLOWER.encode(&*bytes))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_new_at_each_start_private_and_gone_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let (data_dir, config) = (directory.path().join("data"), ControlConfig::default());
        let first = ControlToken::create(&config, &data_dir);
        let file = data_dir.join(FILE_NAME);
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&file), mode(&data_dir)), (0o600, 0o700));
        let second = ControlToken::create(&config, &data_dir);
        let (one, two) = (first.token().unwrap(), second.token().unwrap());
        assert_ne!(one.expose(), two.expose());
        assert_eq!(two.expose().len(), 2 * TOKEN_BYTES);
        drop(first);
        assert_eq!(fs::read_to_string(&file).unwrap().trim_end(), two.expose());
        drop(second);
        assert_eq!(fs::read_dir(&data_dir).unwrap().count(), 0);
    }

    #[test]
    fn with_a_token_of_the_config_none_is_created_and_an_old_one_goes() {
        let directory = tempfile::tempdir().unwrap();
        std::mem::forget(ControlToken::create(&ControlConfig::default(), directory.path()));
        let config = ControlConfig {
            token: Some(Secret::resolve("${env:PATH}").unwrap()),
            ..ControlConfig::default()
        };
        assert!(ControlToken::create(&config, directory.path()).token().is_none());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_a_directory_there_is_no_token() {
        let created = ControlToken::create(&ControlConfig::default(), Path::new("/dev/null/data"));
        assert!(created.token().is_none());
    }
}
