//! The token for the config's files if the config has none: created at each start, and kept in a file that
//! only its owner can read. Users of the machine who cannot read the file cannot change the config.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use egret_config::Secret;
use egret_control::ControlConfig;
use egret_files::{is_ours, private_directory, private_file, replace_file};
use egret_measure::streams::say;
use zeroize::Zeroizing;

/// The file's name in the data directory.
pub const FILE_NAME: &str = "control-token";

/// Length of the token in bytes; in the file it has two hexadecimal digits for each.
const TOKEN_BYTES: usize = 32;

/// Maximum length of the file. A token has far less.
const FILE_BYTES_MAX: u64 = 4 << 10;

/// The created token and its file, which is removed when this is dropped.
pub struct ControlToken {
    path: PathBuf,
    token: Option<Secret>,
    /// `true` if the file belongs to another process.
    is_foreign: bool,
}

impl ControlToken {
    /// Uses the token of the process that runs with the data directory, which keeps the file until this one
    /// has [taken it over](Self::own).
    pub fn adopt(config: &ControlConfig, data_dir: &Path) -> Self {
        let path = data_dir.join(FILE_NAME);
        let is_wanted = config.token.is_none();
        let text = if is_wanted { read_own(&path).ok() } else { None };
        let token = text.map(|text| Zeroizing::new(text.trim_end().to_owned())).filter(|text| is_token(text));
        let token = token.map(|text| Secret::from_value("the token of the running Egret", text.to_string()));
        Self { path, token, is_foreign: true }
    }

    /// Removes the file at the end from now on.
    pub fn own(&mut self) {
        self.is_foreign = false;
    }

    /// Leaves the file to a process that has taken over.
    pub fn leave(&mut self) {
        self.is_foreign = true;
    }

    /// Creates a token in the data directory, unless the config has one. A token of an earlier start is
    /// replaced or removed. Without a file that can be written there is no token, and the log says what to
    /// do.
    pub fn create(config: &ControlConfig, data_dir: &Path) -> Self {
        let path = data_dir.join(FILE_NAME);
        if config.token.is_some() {
            let _ = fs::remove_file(&path);
            return Self { path, token: None, is_foreign: false };
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
        Self { path, token, is_foreign: false }
    }

    /// Returns that there is none: the config's files are not accessible over the API.
    pub const fn none() -> Self {
        Self { path: PathBuf::new(), token: None, is_foreign: true }
    }

    /// Returns the token.
    pub fn token(&self) -> Option<Secret> {
        self.token.clone()
    }

    /// Returns the address of the page, with the token if there is one. Only for a terminal: logs are kept
    /// and passed on.
    pub fn page(&self, control: SocketAddr) -> String {
        let token = self.token.as_ref().map(|token| format!("#token={}", token.expose()));
        format!("http://{control}/{}", token.unwrap_or_default())
    }

    /// Tells the user of a terminal the page's address with the token, and everybody else the name of its
    /// file.
    pub fn announce(&self, control: SocketAddr) {
        if self.token.is_none() {
            return;
        }
        if io::stderr().is_terminal() {
            say(format_args!("page: {}", self.page(control)));
        } else {
            tracing::info!("control token: {}", self.path.display());
        }
    }
}

impl Drop for ControlToken {
    fn drop(&mut self) {
        let Some(token) = self.token.as_ref().filter(|_| !self.is_foreign) else { return };
        // Another Egret with the same data directory may have replaced it.
        if fs::read_to_string(&self.path).is_ok_and(|kept| kept.trim_end() == token.expose()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Reads the file, unless another user has made it.
fn read_own(path: &Path) -> io::Result<String> {
    let file = private_file().read(true).open(path)?;
    is_ours(&file.metadata()?).map_err(io::Error::other)?;
    io::read_to_string(file.take(FILE_BYTES_MAX))
}

/// Returns `true` for a text that this program writes as a token.
fn is_token(text: &str) -> bool {
    text.len() == 2 * TOKEN_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Replaces the file by one with a new token.
fn write_new(path: &Path) -> io::Result<Secret> {
    if let Some(directory) = path.parent() {
        private_directory(directory)?;
    }
    let token = Zeroizing::new(random_hex::<TOKEN_BYTES>()?);
    replace_file(path, Zeroizing::new(format!("{}\n", *token)).as_bytes())?;
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
    fn a_token_is_new_private_and_removed_at_exit() {
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
    fn a_configured_token_replaces_the_created_one() {
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
    fn a_process_that_takes_over_keeps_the_token() {
        let directory = tempfile::tempdir().unwrap();
        let config = ControlConfig::default();
        let adopt = || ControlToken::adopt(&config, directory.path());
        assert!(adopt().token().is_none(), "there is none yet");
        let mut old = ControlToken::create(&config, directory.path());
        drop(adopt());
        let mut new = adopt();
        assert_eq!(new.token().unwrap().expose(), old.token().unwrap().expose());
        new.own();
        old.leave();
        drop(old);
        assert!(directory.path().join(FILE_NAME).exists());
        drop(new);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        fs::write(directory.path().join(FILE_NAME), "something else").unwrap();
        assert!(adopt().token().is_none());
    }

    #[test]
    fn without_a_directory_there_is_no_token() {
        let created = ControlToken::create(&ControlConfig::default(), Path::new("/dev/null/data"));
        assert!(created.token().is_none());
    }
}
