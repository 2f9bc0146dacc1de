//! The parts of a config that lead to its gateway. Nothing else is read, so a command in another terminal
//! needs neither the secrets nor the variables of the rest.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use egret_control::ControlConfig;
use serde::Deserialize;

use crate::config::Config;
use crate::config_file;
use crate::failure::Failure;

/// The address of the control port, and the data directory.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Location {
    control: Listening,
    /// The data directory, relative to the working directory.
    pub data_dir: PathBuf,
    /// The directory of the config.
    #[serde(skip)]
    directory: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
struct Listening {
    listen: SocketAddr,
}

impl Default for Location {
    fn default() -> Self {
        Self {
            control: Listening::default(),
            data_dir: Config::default().data_dir,
            directory: PathBuf::new(),
        }
    }
}

impl Default for Listening {
    fn default() -> Self {
        Self { listen: ControlConfig::default().listen }
    }
}

impl Location {
    /// Reads it from a config file, or returns the default without one.
    pub fn read(file: Option<&Path>) -> Result<Self, Failure> {
        let Some(file) = file else { return Ok(Self::default()) };
        let sources = config_file::read(file).map_err(Failure::misused)?;
        let mut document = sources.complete().and_then(Config::document).map_err(Failure::misused)?;
        let location: Self = document.read().map_err(Failure::misused)?;
        Ok(Self { directory: file.parent().map(Path::to_owned).unwrap_or_default(), ..location })
    }

    /// The address of the control port.
    pub fn control(&self) -> SocketAddr {
        self.control.listen
    }

    /// The data directories that a gateway with this config may have: it may run in the working directory, or
    /// in that of its config.
    pub fn data_dirs(&self) -> Vec<PathBuf> {
        let beside = self.directory.join(&self.data_dir);
        if beside == self.data_dir { vec![beside] } else { vec![self.data_dir.clone(), beside] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_secrets_nor_variables_of_other_keys_are_needed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("egret.yaml");
        let read = |text: &str| {
            std::fs::write(&file, text).unwrap();
            Location::read(Some(&file))
        };
        let text = "control: { listen: '127.0.0.1:7', token: '${env:EGRET_NO_SUCH}' }\ndata_dir: /d\n\
                    providers: { a: { url: 'https://${env:EGRET_NO_SUCH}/' } }\n\
                    accounts: { b: { provider: a, bearer: { token: '${file:/no/such}' } } }\nunknown: 1\n";
        let location = read(text).unwrap();
        assert_eq!((location.control().port(), location.data_dir), (7, "/d".into()));
        let default = read("{}").unwrap();
        assert_eq!(
            (default.control(), &default.data_dir),
            (Location::default().control(), &"./egret-data".into())
        );
        assert_eq!(default.data_dirs(), ["./egret-data".into(), directory.path().join("./egret-data")]);
        assert_eq!(read("data_dir: /d").unwrap().data_dirs(), [PathBuf::from("/d")]);
        assert_eq!(Location::read(None).unwrap().control(), Config::default().control.listen);
        let error = read("control: { listen: 1 }").unwrap_err().to_string();
        assert!(error.contains("egret.yaml:1:"), "{error}");
        let error = read("data_dir: '${env:EGRET_NO_SUCH}'").unwrap_err().to_string();
        assert!(error.contains("EGRET_NO_SUCH is not set"), "{error}");
    }
}
