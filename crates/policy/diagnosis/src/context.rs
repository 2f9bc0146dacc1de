//! The context in which a diagnosis is compiled, and the external resources that it may use.

use std::collections::HashMap;
use std::fmt::Debug;
use std::sync::Arc;

use egret_config::Problem;
use egret_config::reload::StateKeeper;
use egret_har::Key;
use egret_har::sink::{Content, Sink};
use egret_match::matching::MatchConfig;

/// Storage for state that outlives the process. Called on a low-priority thread, so it may block on disk.
pub trait StateStore: Debug + Send + Sync {
    /// Loads the bytes last saved under `name`, if any.
    fn load(&self, name: &str) -> Option<Vec<u8>>;

    /// Saves `bytes` under `name`, replacing earlier ones. On failure it logs the error and keeps the earlier
    /// bytes.
    fn save(&self, name: &str, bytes: &[u8]);
}

/// External resources that diagnoses need: exporters, the pseudonym key, and storage.
#[derive(Debug, Clone, Default)]
pub struct Exports {
    /// Sinks by the names of their exporters in the config.
    pub sinks: HashMap<String, Arc<dyn Sink>>,
    /// Key of the pseudonyms; `None` while a config is only checked.
    pub key: Option<Arc<Key>>,
    /// Storage for state that outlives the process; `None` while a config is only checked.
    pub state_store: Option<Arc<dyn StateStore>>,
}

/// The context in which a diagnosis is compiled.
#[derive(Debug)]
pub struct CompileContext<'a> {
    /// The match of the flow.
    pub matching: &'a MatchConfig,
    /// Exporters, the pseudonym key, and storage.
    pub exports: &'a Exports,
    /// Names of fields and parameters that hold the secrets of the config's accounts.
    pub secret_names: &'a Arc<[Box<str>]>,
    /// Path in the config: `flows[0].diagnoses[1].har`.
    pub path: String,
    /// Problems found so far.
    pub problems: &'a mut Vec<Problem>,
    /// Identity of the diagnosis across reloads, and the state that it keeps.
    pub states: StateKeeper<'a>,
}

impl CompileContext<'_> {
    /// Adds a problem for `key` of this diagnosis.
    pub fn problem(&mut self, key: &str, message: impl Into<String>) {
        self.problems.push(Problem::new(format!("{}.{key}", self.path), message));
    }

    /// Returns the sink of the exporter that `key` of this diagnosis names. Adds a problem if there is none
    /// or it does not accept `content`.
    pub fn sink(&mut self, key: &str, name: &str, content: Content) -> Option<Arc<dyn Sink>> {
        let path = format!("{}.{key}", self.path);
        let Some(sink) = self.exports.sinks.get(name) else {
            let names = self.exports.sinks.keys().map(String::as_str);
            self.problems.push(Problem::unknown_name(path, "exporter", name, names));
            return None;
        };
        if !sink.takes(content) {
            let (what, types) = match content {
                Content::Entries => ("HAR entries", "`har`, `ndjson`, `alf`, `s3` or `stdout`"),
                Content::Lines => ("lines", "`lines`, `stdout`, or `s3` with `format: lines`"),
                Content::Telemetry => ("spans and metrics", "`otlp`"),
                Content::Alerts => ("alerts", "`webhook`"),
            };
            let message =
                format!("the exporter `{name}` does not accept {what}: use one of the type {types}");
            self.problems.push(Problem::new(path, message));
            return None;
        }
        Some(Arc::clone(sink))
    }

    /// Returns `true` if the flow has an earlier diagnosis of the same kind.
    pub fn is_another(&self) -> bool {
        self.states.identity().ordinal > 1
    }

    /// Name of the flow.
    pub fn flow(&self) -> &str {
        &self.states.identity().flow
    }
}
