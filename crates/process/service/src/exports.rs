//! Resources of diagnoses outside of flows: the exporters' sinks, and the pseudonym key.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_diagnosis::{Exports, StateStore};
use egret_export::Exporters;
use egret_files::replace_file;
use egret_flow::config::FlowConfig;
use egret_har::Key;
use egret_settings::config::Config;

/// File name of the key in the data directory.
const KEY_FILE: &str = "har.key";

/// The pseudonym key, once a config has needed it. A changed key file takes effect after a restart.
#[derive(Debug, Default)]
pub struct PseudonymKey {
    key: Option<Arc<Key>>,
}

impl PseudonymKey {
    /// Returns the resources for the flows of `config`, with `exporters` open.
    pub fn exports(&mut self, config: &Config, exporters: &Exporters) -> Result<Exports, KeyFileError> {
        if self.key.is_none() && config.flows.iter().any(FlowConfig::needs_key) {
            self.key = Some(Arc::new(load(&config.data_dir)?));
        }
        Ok(Exports {
            sinks: exporters.sinks(),
            key: self.key.as_ref().map(Arc::clone),
            state_store: Some(Arc::new(DataDirectory::new(&config.data_dir))),
        })
    }
}

fn load(data_dir: &Path) -> Result<Key, KeyFileError> {
    std::fs::create_dir_all(data_dir)
        .map_err(|error| KeyFileError::Directory { path: data_dir.to_owned(), error })?;
    let file = data_dir.join(KEY_FILE);
    Key::load_or_create(&file).map_err(|error| KeyFileError::File { path: file, error: error.into() })
}

/// The reason why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The data directory cannot be created.
    #[error("cannot create the data directory {path}: {error}")]
    Directory {
        /// Its path.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The key file cannot be read or created.
    #[error("{path}: {error}")]
    File {
        /// Its path.
        path: PathBuf,
        /// The reason.
        error: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// Files in the data directory.
#[derive(Debug)]
pub(crate) struct DataDirectory(PathBuf);

impl DataDirectory {
    /// Files in this directory, which is created when one is saved.
    pub fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }
}

/// A longer file was not written by Egret.
const STATE_BYTES_MAX: u64 = 256 << 20;

impl StateStore for DataDirectory {
    fn load(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.0.join(name)).ok()?;
        let read = file.take(STATE_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|error| tracing::warn!(file = name, "cannot read saved state: {error}")).ok()?;
        Some(bytes)
    }

    /// Replaces the previous file once the new one is complete.
    fn save(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        if let Err(error) = std::fs::create_dir_all(&self.0).and_then(|()| replace_file(&path, bytes)) {
            tracing::warn!(file = %path.display(), "cannot save state: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_when_a_flow_needs_it_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let mut config = Config { data_dir: data_dir.clone(), ..Config::default() };
        let mut key = PseudonymKey::default();
        assert!(key.exports(&config, &Exporters::default()).unwrap().key.is_none());
        assert!(!data_dir.exists());
        let flow = serde_json::json!({ "name": "f", "diagnoses": [{ "har": { "export": "kept" } }] });
        config.flows = vec![serde_json::from_value(flow).unwrap()];
        let mut id = || key.exports(&config, &Exporters::default()).unwrap().key.unwrap().id().to_owned();
        assert_eq!(id(), id());
        assert!(data_dir.join(KEY_FILE).is_file());
    }

    #[test]
    fn a_flow_that_names_an_exporter_that_is_not_there_is_refused() {
        let text = "exporters:\n  archive: { type: har, directory: ./har }\nflows:\n- name: f\n  diagnoses:\n  - har: { export: archiv }\n";
        let report = Config::parse("egret.yaml", text).unwrap_err().to_string();
        assert!(report.contains("no exporter is called `archiv`") && report.contains("archive"), "{report}");
        assert!(Config::parse("egret.yaml", &text.replace("archiv }", "archive }")).is_ok());
    }
}
