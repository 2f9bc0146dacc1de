//! `egret ca`: the certificate authority for intercepted hosts, as files.

mod export;
pub mod init;
mod show;
mod trust_stores;

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use egret_ca::{Authority, Bundle, CaDirectory, CaError, Root};
use egret_clock::{Clock, Moment, Timestamp};

use crate::config::Config;
use crate::config_file;
use crate::failure::Failure;
use crate::output::print;

/// The commands of `egret ca`.
#[derive(Debug, Subcommand)]
pub enum CaCommand {
    /// Make a certificate authority for the hosts to intercept.
    ///
    /// It may speak for the configured providers, `interception.hosts`, and the hosts given here, and for no
    /// others. Prints its fingerprint and the next step. A gateway that runs uses it after a restart.
    Init(init::Init),
    /// Print the authority's root certificate, or a file with it and all authorities that are trusted anyway.
    ///
    /// The authority's key is never printed.
    Export(export::Export),
    /// Print the path of a file that makes a program trust the authority: `curl --cacert "$(egret ca path)"`
    Path(export::PathArguments),
    /// Add the root certificate to the trust stores of this system and of Chromium.
    ///
    /// Prints each command before it runs. Every program that uses these stores then trusts the authority, so
    /// prefer `egret ca path` where one program is enough.
    Install(trust_stores::Change),
    /// Remove the root certificate from the trust stores.
    Uninstall(trust_stores::Change),
    /// Show the authority's hosts, the end of its validity and its fingerprint.
    Show(Place),
}

impl CaCommand {
    /// Runs the command.
    pub fn run(self) -> Result<(), Failure> {
        match self {
            Self::Init(init) => init.run(),
            Self::Export(export) => export.run(),
            Self::Path(path) => path.run(),
            Self::Install(change) => change.install(),
            Self::Uninstall(change) => change.uninstall(),
            Self::Show(place) => print(&show::text(&place.authority()?, &place.directory()?)),
        }
    }
}

/// The place of the authority.
#[derive(Debug, Args)]
pub struct Place {
    /// The config file, for `data_dir` and for the hosts to intercept. Without it, `data_dir` is
    /// `./egret-data`.
    #[arg(long, short, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Place {
    /// Reads the config.
    fn config(&self) -> Result<Config, Failure> {
        let Some(file) = &self.config else { return Ok(Config::default()) };
        let text = config_file::read(file).map_err(Failure::misused)?;
        Config::parse(&file.display().to_string(), &text).map_err(Failure::misused)
    }

    /// The authority's directory, with an absolute path: it is printed for use elsewhere.
    fn directory(&self) -> Result<CaDirectory, Failure> {
        absolute(&self.config()?.data_dir)
    }

    /// Reads the authority, which must exist and be valid.
    fn authority(&self) -> Result<Authority, Failure> {
        let directory = self.directory()?;
        directory.load(now()).map_err(Failure::failed)?.ok_or_else(|| self.missing(&directory))
    }

    /// Reads the root, which must exist. It may have expired.
    fn root(&self) -> Result<Root, Failure> {
        let directory = self.directory()?;
        directory.root().map_err(Failure::failed)?.ok_or_else(|| self.missing(&directory))
    }

    fn missing(&self, directory: &CaDirectory) -> Failure {
        let (path, init) = (directory.path().display(), self.command("init"));
        Failure::Failed(format!("{path}: there is no certificate authority: run `{init}`"))
    }

    /// The command line of another command of `egret ca` for the same place.
    fn command(&self, name: &str) -> String {
        let config =
            self.config.as_ref().map(|file| format!(" --config {}", quoted(&file.display().to_string())));
        format!("egret ca {name}{}", config.unwrap_or_default())
    }
}

fn absolute(data_dir: &Path) -> Result<CaDirectory, Failure> {
    let failed = |error| Failure::Failed(format!("{}: {error}", data_dir.display()));
    std::path::absolute(data_dir).map(|path| CaDirectory::new(&path)).map_err(failed)
}

/// The system's time. Tests may simulate it.
fn now() -> Timestamp {
    Clock::new().timestamp(Moment::now())
}

/// The authorities that programs trust without Egret.
fn bundle(directory: &CaDirectory) -> Result<Bundle, CaError> {
    let inherited = std::env::var_os("SSL_CERT_FILE").filter(|path| !path.is_empty());
    directory.bundle(inherited.as_deref().map(Path::new))
}

/// Returns a word of a shell's command line.
fn quoted(word: &str) -> String {
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
        let place = Place { config: Some("my egret.yaml".into()) };
        assert_eq!(place.command("init"), "egret ca init --config 'my egret.yaml'");
    }
}
