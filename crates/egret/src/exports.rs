//! Resources of diagnoses outside of flows: the exporters' sinks, and the pseudonym key.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use egret_diagnosis::diagnosis::{Exports, StateStore};
use egret_export::{ExporterConfig, ExporterConfigs, Exporters};
use egret_har::Key;
use egret_har::sink::{Content, Exported, Sink};
use egret_store::private_file;

use crate::config::Config;

/// File name of the key in the data directory.
const KEY_FILE: &str = "har.key";

/// The pseudonym key, once a config has needed it. A changed key file takes effect after a restart.
#[derive(Debug, Default)]
pub struct Keyring {
    key: Option<Arc<Key>>,
}

impl Keyring {
    /// Returns the resources for the diagnoses of `config`, with `exporters` open.
    pub fn exports(&mut self, config: &Config, exporters: &Exporters) -> Result<Exports, String> {
        if self.key.is_none() && config.flows.iter().any(|flow| !flow.diagnoses.is_empty()) {
            self.key = Some(Arc::new(load(&config.data_dir)?));
        }
        Ok(Exports {
            sinks: exporters.sinks(),
            key: self.key.as_ref().map(Arc::clone),
            keeper: Some(Arc::new(Kept(config.data_dir.clone()))),
        })
    }
}

fn load(data_dir: &Path) -> Result<Key, String> {
    let file = data_dir.join(KEY_FILE);
    let name = file.display();
    std::fs::create_dir_all(data_dir)
        .map_err(|error| format!("cannot create the data directory {}: {error}", data_dir.display()))?;
    Key::load_or_create(&file).map_err(|error| format!("{name}: {error}"))
}

/// Files in the data directory.
#[derive(Debug)]
struct Kept(PathBuf);

/// A longer file was not written by Egret.
const KEPT_BYTES_MAX: u64 = 256 << 20;

impl StateStore for Kept {
    fn load(&self, name: &str) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        let file = File::open(self.0.join(name)).ok()?;
        let read = file.take(KEPT_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|error| tracing::warn!(file = name, "cannot read saved state: {error}")).ok()?;
        Some(bytes)
    }

    /// Replaces the previous file once the new one is complete.
    fn save(&self, name: &str, bytes: &[u8]) {
        let (path, draft) = (self.0.join(name), self.0.join(format!(".{name}.part")));
        let written = std::fs::create_dir_all(&self.0).and_then(|()| {
            let mut file = private_file().write(true).create(true).truncate(true).open(&draft)?;
            file.write_all(bytes)?;
            file.sync_data()?;
            std::fs::rename(&draft, &path)
        });
        if let Err(error) = written {
            let _ = std::fs::remove_file(&draft);
            tracing::warn!(file = %path.display(), "cannot save state: {error}");
        }
    }
}

/// Returns placeholders for exporters that are not open, to check a config.
pub fn unopened(exporters: &ExporterConfigs) -> Exports {
    let sink = |(name, config): (&String, &ExporterConfig)| -> (String, Arc<dyn Sink>) {
        (name.clone(), Arc::new(Unopened(config.clone())))
    };
    Exports { sinks: exporters.iter().map(sink).collect(), key: None, keeper: None }
}

/// An exporter that is not open.
#[derive(Debug)]
struct Unopened(ExporterConfig);

impl Sink for Unopened {
    fn takes(&self, content: Content) -> bool {
        self.0.takes(content)
    }

    fn put(&self, _: Exported<'_>) {}

    fn tick(&self) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_is_made_when_a_flow_needs_it_and_stays() {
        let directory = tempfile::tempdir().unwrap();
        let data_dir = directory.path().join("data");
        let mut config = Config { data_dir: data_dir.clone(), ..Config::default() };
        let mut keyring = Keyring::default();
        assert!(keyring.exports(&config, &Exporters::default()).unwrap().key.is_none());
        assert!(!data_dir.exists());
        let flow = serde_json::json!({ "name": "f", "diagnoses": [{ "har": { "export": "kept" } }] });
        config.flows = vec![serde_json::from_value(flow).unwrap()];
        let mut id = || keyring.exports(&config, &Exporters::default()).unwrap().key.unwrap().id().to_owned();
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
