//! The place of the authority's files, and the words that the commands share.

use std::path::{Path, PathBuf};

use clap::Args;
use egret_ca::{Authority, Bundle, CaDirectory, CaError, Root};
use egret_config::without_secrets;
use egret_settings::authority::now;
use egret_settings::config::Config;
use egret_settings::failure::Failure;
use egret_settings::location::Location;
use egret_settings::{config_file, config_path, data_dir};

/// The place of the authority.
#[derive(Debug, Args)]
pub struct AuthorityPlace {
    /// The config file, for `data_dir` and for the hosts to intercept. Default: `egret.yaml` in the working
    /// directory. Without that, `data_dir` is `./egret-data`.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl AuthorityPlace {
    /// Reads the config, without its secrets: an authority is made without any.
    pub fn config(&self) -> Result<Config, Failure> {
        let Some(file) = config_path::named_or_found(self.config.clone())? else {
            return Ok(Config::default());
        };
        without_secrets(|| config_file::load(&file)).map(|loaded| loaded.config)
    }

    /// The authority's directory, with an absolute path. Nothing but `data_dir` is read of the config.
    pub fn directory(&self) -> Result<CaDirectory, Failure> {
        let file = config_path::named_or_found(self.config.clone())?;
        absolute(&Location::read(file.as_deref())?.data_dir)
    }

    /// Reads the authority, which must exist and be valid.
    pub fn authority(&self) -> Result<Authority, Failure> {
        let directory = self.directory()?;
        directory.load(now()).map_err(Failure::failed)?.ok_or_else(|| self.missing(&directory))
    }

    /// Reads the root, which must exist. It may have expired.
    pub fn root(&self) -> Result<Root, Failure> {
        let directory = self.directory()?;
        directory.root().map_err(Failure::failed)?.ok_or_else(|| self.missing(&directory))
    }

    fn missing(&self, directory: &CaDirectory) -> Failure {
        let (path, init) = (directory.path().display(), self.command("init"));
        Failure::Failed(format!("{path}: there is no certificate authority: run `{init}`"))
    }

    /// The command line of another command of `egret ca` for the same place.
    pub fn command(&self, name: &str) -> String {
        let config =
            self.config.as_ref().map(|file| format!(" --config {}", quoted(&file.display().to_string())));
        format!("egret ca {name}{}", config.unwrap_or_default())
    }
}

/// The authority's directory in this data directory, with an absolute path: it is printed for use elsewhere.
///
/// # Errors
///
/// Fails if the data directory is another user's.
pub fn absolute(data_dir: &Path) -> Result<CaDirectory, Failure> {
    data_dir::check(data_dir)?;
    let failed = |error| Failure::Failed(format!("{}: {error}", data_dir.display()));
    std::path::absolute(data_dir).map(|path| CaDirectory::new(&path)).map_err(failed)
}

/// The authorities that programs trust without Egret.
pub fn bundle(directory: &CaDirectory) -> Result<Bundle, CaError> {
    let inherited = std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty());
    directory.bundle(inherited.as_deref().map(Path::new))
}

/// Returns a word of a shell's command line.
pub fn quoted(word: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_./:=,@+%".contains(&byte);
    if !word.is_empty() && word.bytes().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_if_a_shell_would_read_them_otherwise() {
        for (word, expected) in
            [("/a/b-c.crt", "/a/b-c.crt"), ("", "''"), ("a b", "'a b'"), ("it's", r"'it'\''s'")]
        {
            assert_eq!(quoted(word), expected);
        }
        let place = AuthorityPlace { config: Some("my egret.yaml".into()) };
        assert_eq!(place.command("init"), "egret ca init --config 'my egret.yaml'");
    }
}
